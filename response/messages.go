package response

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"golang.org/x/text/language"
)

const keyLanguage = "Accept-Language"

const (
	// maxLanguages bounds the Accept-Language that is looked at: real ones are far shorter, and parsing is not free.
	maxLanguages = 128
	// maxAnswers bounds how many of them are remembered. Clients choose the text: once full, nothing is forgotten for
	// a new one, and a stranger's inventions cost only the parsing they would have cost anyway.
	maxAnswers = 256
)

// Messages are one text in several languages. It is safe for concurrent use; a nil one has no text.
type Messages struct {
	texts    []string // by index of the matcher
	matcher  language.Matcher
	fallback string // for a client whose languages are not there
	anyone   string // for a client that names no language

	// Texts found for Accept-Language values: parsing and matching take microseconds and twenty allocations. Replaced
	// whole, at most maxAnswers times.
	answers atomic.Pointer[map[string]string]
	mu      sync.Mutex // of writers to answers
}

// NewMessages returns the texts by language tag (BCP 47), such as {"en": "…", "zh-CN": "…"}. The tag "" holds the text
// for clients that want another language; without it they get none. Clients that name no language get the text of "",
// or else the only one there is. The error names every tag that is malformed or there twice, and every text that is
// empty or not UTF-8.
func NewMessages(texts map[string]string) (*Messages, error) {
	m := new(Messages)
	var errs []error
	var tags []language.Tag
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		text := texts[name]
		if strings.TrimSpace(text) == "" || !utf8.ValidString(text) {
			errs = append(errs, fmt.Errorf("response: message %q is empty or not UTF-8", name))
		}
		if name == "" {
			m.fallback, m.anyone = text, text
			continue
		}
		tag, err := language.Parse(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("response: message %q: not a language tag: %w", name, err))
			continue
		}
		if slices.Contains(tags, tag) {
			errs = append(errs, fmt.Errorf("response: message %q: the language %v is there twice", name, tag))
		}
		tags = append(tags, tag)
		m.texts = append(m.texts, text)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if len(tags) > 0 {
		m.matcher = language.NewMatcher(tags)
	}
	if m.anyone == "" && len(m.texts) == 1 {
		m.anyone = m.texts[0]
	}
	return m, nil
}

// For returns the text in the language that the request prefers (Accept-Language), or "".
func (m *Messages) For(r *http.Request) string {
	if m == nil {
		return ""
	}
	var lines []string
	if r != nil {
		lines = r.Header[keyLanguage]
	}
	switch {
	case len(lines) == 0 || lines[0] == "" || lines[0] == "*":
		return m.anyone
	case m.matcher == nil || len(lines[0]) > maxLanguages:
		return m.fallback
	}
	known := m.answers.Load()
	if known != nil {
		if text, ok := (*known)[lines[0]]; ok {
			return text
		}
	}
	text := m.match(lines[0])
	if known == nil || len(*known) < maxAnswers {
		m.remember(lines[0], text)
	}
	return text
}

func (m *Messages) remember(accept, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := make(map[string]string)
	if known := m.answers.Load(); known != nil {
		if len(*known) >= maxAnswers {
			return
		}
		maps.Copy(next, *known)
	}
	next[strings.Clone(accept)] = text
	m.answers.Store(&next)
}

func (m *Messages) match(accept string) string {
	tags, _, err := language.ParseAcceptLanguage(accept)
	if err != nil || len(tags) == 0 {
		return m.fallback
	}
	// Related languages that a reader may or may not understand are no match.
	if _, i, confidence := m.matcher.Match(tags...); confidence >= language.High {
		return m.texts[i]
	}
	return m.fallback
}
