// Package negotiate exists so that refusals and what is served in their place read Accept and Accept-Language alike.
package negotiate

import "strings"

// maxRanges bounds how many media ranges of an Accept are looked at: real ones name far fewer, and clients choose how long
// theirs is.
const maxRanges = 64

// IsJSON reports whether a media range is one of JSON, in one of its spellings (RFC 6839 section 3.1) or by the wildcard.
func IsJSON(name string) bool {
	return strings.EqualFold(name, "application/json") || strings.EqualFold(name, "application/*") || strings.EqualFold(name, "text/json") ||
		len(name) > 5 && strings.EqualFold(name[len(name)-5:], "+json")
}

// Weight reads the q parameter in thousandths (RFC 9110 section 12.4.2): 1000 without one, and for one that is malformed.
func Weight(params string) int {
	for params != "" {
		var p string
		p, params, _ = strings.Cut(params, ";")
		p = strings.Trim(p, " \t")
		if len(p) < 2 || p[0]|0x20 != 'q' || p[1] != '=' {
			continue
		}
		v := p[2:]
		if v == "" || v[0] != '0' && v[0] != '1' || len(v) > 5 || len(v) > 1 && v[1] != '.' {
			return 1000
		}
		n := int(v[0]-'0') * 1000
		for i, unit := 2, 100; i < len(v); i, unit = i+1, unit/10 {
			if v[i] < '0' || v[i] > '9' {
				return 1000
			}
			n += int(v[i]-'0') * unit
		}
		return min(n, 1000)
	}
	return 1000
}

// Types are media types to choose from. They are safe for concurrent use.
type Types []mediaType

type mediaType struct {
	name  string
	group string // with the slash: "text/"
	json  bool
}

// NewTypes returns the types of these names, such as "text/html", without parameters.
func NewTypes(names ...string) Types {
	t := make(Types, len(names))
	for i, name := range names {
		t[i] = mediaType{name: name, group: name[:strings.IndexByte(name, '/')+1], json: IsJSON(name)}
	}
	return t
}

// How a type is welcome: of two with the same weight, the one that is named counts more than one that a wildcard covers.
const (
	byAny = iota
	byGroup
	byFamily
	byName
)

// Choose returns the index of the type that the lines of an Accept prefer (RFC 9110 section 12.5.1), or -1 if none is
// welcome. Of types equally welcome it is the one that is named, then the first; without an Accept the first. Parameters of
// ranges other than q are not looked at, and of more than 64 ranges only the first: both are a preference and no promise.
// All of JSON welcomes all of JSON, unless the type itself is named.
func (t Types) Choose(lines []string) int {
	if len(lines) == 0 {
		return min(0, len(t)-1)
	}
	best, bestWeight, bestBy := -1, 0, byAny
	for i := range t {
		if weight, by := t[i].weight(lines); weight > bestWeight || weight == bestWeight && weight > 0 && by > bestBy {
			best, bestWeight, bestBy = i, weight, by
		}
	}
	return best
}

// weight returns how welcome the type is, in thousandths, and by which kind of range: the most specific one decides.
func (t *mediaType) weight(lines []string) (weight, by int) {
	w := [...]int{byAny: -1, byGroup: -1, byFamily: -1, byName: -1}
	ranges := 0
	for _, line := range lines {
		for line != "" && ranges < maxRanges {
			// Commas in quoted strings are not told apart: what then looks like a range names no type.
			var element string
			element, line, _ = strings.Cut(line, ",")
			name, params, _ := strings.Cut(element, ";")
			name = strings.Trim(name, " \t")
			ranges++
			by := byAny
			switch {
			case name == "*/*":
			case strings.EqualFold(name, t.name):
				by = byName
			case len(name) == len(t.group)+1 && name[len(name)-1] == '*' && strings.EqualFold(name[:len(t.group)], t.group):
				by = byGroup
			case t.json && IsJSON(name):
				by = byFamily
			default:
				continue
			}
			w[by] = max(w[by], Weight(params))
		}
	}
	if w[byName] >= 0 {
		return w[byName], byName
	}
	by = byAny
	if w[byGroup] >= 0 {
		by = byGroup
	}
	// The standard knows no families: one can only add to what its ranges say.
	if w[byFamily] >= w[by] {
		by = byFamily
	}
	return max(w[by], 0), by
}
