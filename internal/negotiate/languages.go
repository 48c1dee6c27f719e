package negotiate

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/text/language"
)

const (
	// maxLanguages bounds the Accept-Language that is looked at, in bytes: real ones are far shorter, and parsing is not
	// free.
	maxLanguages = 128
	// maxAnswers bounds how many of them are remembered. Clients choose the text: once full, nothing is forgotten for
	// a new one, and a stranger's inventions cost only the parsing they would have cost anyway.
	maxAnswers = 256
)

// What Choose returns where there is no index.
const (
	Other = -1 // the client wants languages that are not there
	Any   = -2 // the client names no language
)

// Tag is a language tag (BCP 47). Tags of one language compare equal however they were spelled.
type Tag = language.Tag

// ParseTag reads a language tag.
func ParseTag(name string) (Tag, error) { return language.Parse(name) }

// Languages are languages to choose from. They are safe for concurrent use; nil ones are none.
type Languages struct {
	matcher language.Matcher

	// Indexes found for Accept-Language values: parsing and matching take microseconds and twenty allocations. Replaced
	// whole, at most maxAnswers times.
	answers atomic.Pointer[map[string]int]
	mu      sync.Mutex // of writers to answers
}

// NewLanguages returns the languages of tags, nil without any.
func NewLanguages(tags ...Tag) *Languages {
	if len(tags) == 0 {
		return nil
	}
	return &Languages{matcher: language.NewMatcher(tags)}
}

// Choose returns the index of the tag that the lines of an Accept-Language prefer, or else [Other] or [Any]. Only the first
// line is looked at, and none that is malformed or longer than 128 bytes.
func (l *Languages) Choose(lines []string) int {
	switch {
	case len(lines) == 0 || lines[0] == "" || lines[0] == "*":
		return Any
	case l == nil || len(lines[0]) > maxLanguages:
		return Other
	}
	known := l.answers.Load()
	if known != nil {
		if i, ok := (*known)[lines[0]]; ok {
			return i
		}
	}
	i := l.match(lines[0])
	if known == nil || len(*known) < maxAnswers {
		l.remember(lines[0], i)
	}
	return i
}

func (l *Languages) remember(accept string, i int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := make(map[string]int)
	if known := l.answers.Load(); known != nil {
		if len(*known) >= maxAnswers {
			return
		}
		maps.Copy(next, *known)
	}
	next[strings.Clone(accept)] = i
	l.answers.Store(&next)
}

func (l *Languages) match(accept string) int {
	tags, _, err := language.ParseAcceptLanguage(accept)
	if err != nil || len(tags) == 0 {
		return Other
	}
	// Related languages that a reader may or may not understand are no match.
	if _, i, confidence := l.matcher.Match(tags...); confidence >= language.High {
		return i
	}
	return Other
}
