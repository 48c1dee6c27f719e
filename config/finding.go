package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// Finding is one thing that is wrong with a document, or looks wrong.
type Finding struct {
	ID         string `json:"id"` // one of those below
	Warning    bool   `json:"warning,omitempty"`
	Path       string `json:"path,omitempty"` // such as policies[2].limit
	Line       int    `json:"line,omitempty"` // from 1; 0 if it stands nowhere
	Column     int    `json:"column,omitempty"`
	Text       string `json:"text,omitempty"` // of the line; secrets are left out
	Message    string `json:"message"`
	Suggestion string `json:"suggestion,omitempty"`
}

// Identifiers of findings. They stay as they are.
const (
	Syntax         = "syntax"          // no YAML, or no JSON
	TooLarge       = "too_large"       // too long, too deep, or aliases that expand to too much
	UnknownField   = "unknown_field"   // no such field here
	DuplicateField = "duplicate_field" // written twice
	MissingField   = "missing_field"   // required, or required by another field
	InvalidValue   = "invalid_value"   // not of the form, or out of range
	Conflict       = "conflict"        // two fields that cannot both stand
	UnknownName    = "unknown_name"    // nobody has registered it
	NotAvailable   = "not_available"   // this application has no limiter for it
	InvalidPolicy  = "invalid_policy"  // the guard refuses it
	Unreadable     = "unreadable"      // a secret's file or variable
	NeedsRestart   = "needs_restart"   // cannot change while serving
	ClientChosen   = "client_chosen"   // warning: the client alone chooses the key or the plan
	NoPrefix       = "no_prefix"       // warning: keys on Redis without a prefix
	NoEffect       = "no_effect"       // warning: it changes nothing
)

// String returns line:column, the identifier and the message, followed by the line and a suggestion where there are any.
func (f Finding) String() string {
	var b strings.Builder
	if f.Line > 0 {
		fmt.Fprintf(&b, "%d:%d: ", f.Line, f.Column)
	}
	if f.Warning {
		b.WriteString("warning: ")
	}
	if f.Path != "" {
		b.WriteString(f.Path + ": ")
	}
	fmt.Fprintf(&b, "%s (%s)", f.Message, f.ID)
	if f.Text != "" {
		fmt.Fprintf(&b, "\n    %s", f.Text)
	}
	if f.Suggestion != "" {
		fmt.Fprintf(&b, "\n    %s", f.Suggestion)
	}
	return b.String()
}

// Findings is all that was found, in the order of the document. As an error it is its errors alone.
type Findings []Finding

// Err returns the errors as one, nil if there are only warnings.
func (f Findings) Err() error {
	if errs := f.pick(false); len(errs) > 0 {
		return errs
	}
	return nil
}

// Warnings returns the findings that do not refuse a document.
func (f Findings) Warnings() Findings { return f.pick(true) }

func (f Findings) pick(warning bool) (out Findings) {
	for _, x := range f {
		if x.Warning == warning {
			out = append(out, x)
		}
	}
	return out
}

// Error lists all findings.
func (f Findings) Error() string {
	lines := make([]string, len(f))
	for k, x := range f {
		lines[k] = x.String()
	}
	return "config: " + strings.Join(lines, "\nconfig: ")
}

// finish brings findings into the order of the document, leaves out what is beyond any use, and takes secrets out.
func (f Findings) finish(s *source) Findings {
	slices.SortStableFunc(f, func(a, b Finding) int { return cmp.Or(a.Line-b.Line, a.Column-b.Column) })
	if s != nil && len(s.suspects) > 0 {
		all := *s
		all.secrets = slices.Concat(s.secrets, s.suspects)
		s = &all
	}
	var out Findings
	told := make(map[bool]int)
	for _, x := range f {
		if told[x.Warning]++; told[x.Warning] > maxFindings {
			if told[x.Warning] == maxFindings+1 {
				out = append(out, Finding{ID: TooLarge, Warning: x.Warning, Message: fmt.Sprintf("more than %d things: the others are not told", maxFindings)})
			}
			continue
		}
		if s != nil {
			s.callers.finding(&x)
		}
		for _, text := range []*string{&x.Path, &x.Text, &x.Message, &x.Suggestion} {
			*text = strings.ToValidUTF8(strings.Map(printable, s.mask(*text)), "")
		}
		out = append(out, x)
	}
	return out
}

// printable keeps what would move a terminal's cursor out of messages.
func printable(r rune) rune {
	if r == '\t' {
		return ' '
	}
	if !unicode.IsPrint(r) {
		return '\ufffd'
	}
	return r
}

// nearest returns the name that was probably meant, "" if none is near.
func nearest(name string, names []string) string {
	best, most := "", max(1, len(name)/3)
	for _, n := range names {
		if d := distance(strings.ToLower(name), n); d <= most {
			best, most = n, d-1
		}
	}
	return best
}

// distance is that of Levenshtein, with neighbours that changed places as one step, over short texts.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return 64
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j]+cost, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// meant is the suggestion of the name that was probably meant.
func meant(name string, names []string) string {
	if n := nearest(name, names); n != "" {
		return fmt.Sprintf("Did you mean %q?", n)
	}
	return ""
}

// suggest is meant, or all names if there are few.
func suggest(name string, names []string) string {
	if s := meant(name, names); s != "" {
		return s
	}
	if len(names) > 0 && len(names) <= 40 {
		return "Known: " + strings.Join(names, ", ") + "."
	}
	return ""
}
