package response

import (
	"fmt"
	"strings"
)

// Draft is a revision of draft-ietf-httpapi-ratelimit-headers. The zero value sends none.
type Draft uint8

// Revisions. A response carries one of them: where policies ask for different ones, that of the first told policy.
const (
	NoDraft   Draft = iota
	Draft11         // lists of named policies: RateLimit: "default";r=50;t=30 (drafts 8 to 11)
	Draft07         // one dictionary: RateLimit: limit=100, remaining=50, reset=30
	Draft06         // three fields: RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset (seconds from now)
	DraftNext       // the unpublished text after draft 11: RateLimit: "default";a=50;w=30. It may still change
)

var draftNames = [...]string{"", "draft-11", "draft-07", "draft-06", "next"}

// String returns "draft-11", "draft-07", "draft-06", "next", or "" for [NoDraft].
func (d Draft) String() string {
	if int(d) < len(draftNames) {
		return draftNames[d]
	}
	return fmt.Sprintf("Draft(%d)", uint8(d))
}

// Set says which fields tell of a policy. The zero Set asks for nothing itself and inherits: a policy's from its
// guard, a guard's from the default, [X]. Sets are comparable values.
type Set struct {
	X     bool  // X-RateLimit-Limit, -Remaining, -Reset
	Draft Draft // a form of RateLimit and RateLimit-Policy
	off   bool  // only in Off, which must differ from the zero Set
}

var (
	// X is the three X-RateLimit fields, the default.
	X = Set{X: true}
	// Draft11Set is RateLimit and RateLimit-Policy as in draft 11.
	Draft11Set = Set{Draft: Draft11}
	// Both is X and draft 11.
	Both = Set{X: true, Draft: Draft11}
	// Off tells nothing of a policy, not even Retry-After.
	Off = Set{off: true}
)

// Or returns s, or d if s is the zero Set.
func (s Set) Or(d Set) Set {
	if s == (Set{}) {
		return d
	}
	return s
}

// String returns the name that [ParseSet] reads: "x", "draft-11", "both", "off"; "draft-07", "draft-06" and "next",
// which become "x+draft-07" and so on together with X; "" for the zero Set.
func (s Set) String() string {
	switch {
	case s.off:
		return "off"
	case s == Both:
		return "both"
	case s == X:
		return "x"
	case s.X:
		return "x+" + s.Draft.String()
	}
	return s.Draft.String()
}

// ParseSet reads the name of a set as [Set.String] writes it, in lower case; "x+draft-11" is also understood. The empty
// text is the zero Set.
func ParseSet(text string) (Set, error) {
	switch text {
	case "":
		return Set{}, nil
	case "off":
		return Off, nil
	case "both":
		return Both, nil
	case "x":
		return X, nil
	}
	name, x := strings.CutPrefix(text, "x+")
	for d := Draft11; int(d) < len(draftNames); d++ {
		if name == draftNames[d] {
			return Set{X: x, Draft: d}, nil
		}
	}
	return Set{}, fmt.Errorf("response: header set %q is none of x, draft-11, both, off, draft-07, draft-06, next, x+draft-07, x+draft-06, x+next", text)
}

// MarshalText implements [encoding.TextMarshaler] with [Set.String]. An unknown Draft is an error.
func (s Set) MarshalText() ([]byte, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return []byte(s.String()), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler] with [ParseSet].
func (s *Set) UnmarshalText(text []byte) error {
	set, err := ParseSet(string(text))
	if err == nil {
		*s = set
	}
	return err
}

// Validate returns an error if s names an unknown draft, or is [Off] and something else at once.
func (s Set) Validate() error {
	if int(s.Draft) >= len(draftNames) {
		return fmt.Errorf("response: draft %d is unknown", uint8(s.Draft))
	}
	if s.off && s != Off {
		return fmt.Errorf("response: header set off takes no other fields")
	}
	return nil
}
