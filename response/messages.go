package response

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spillway-go/spillway/internal/negotiate"
)

const keyLanguage = "Accept-Language"

// Messages are one text in several languages. It is safe for concurrent use; a nil one has no text.
type Messages struct {
	texts     []string // by index of languages
	languages *negotiate.Languages
	fallback  string // for a client whose languages are not there
	anyone    string // for a client that names no language
}

// NewMessages returns the texts by language tag (BCP 47), such as {"en": "…", "zh-CN": "…"}. The tag "" holds the text
// for clients that want another language; without it they get none. Clients that name no language get the text of "",
// or else the only one there is. The error names every tag that is malformed or there twice, and every text that is
// empty or not UTF-8.
func NewMessages(texts map[string]string) (*Messages, error) {
	m := new(Messages)
	var errs []error
	var tags []negotiate.Tag
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		text := texts[name]
		if strings.TrimSpace(text) == "" || !utf8.ValidString(text) {
			errs = append(errs, fmt.Errorf("response: message %q is empty or not UTF-8", name))
		}
		if name == "" {
			m.fallback, m.anyone = text, text
			continue
		}
		tag, err := negotiate.ParseTag(name)
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
	m.languages = negotiate.NewLanguages(tags...)
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
	switch i := m.languages.Choose(lines); i {
	case negotiate.Any:
		return m.anyone
	case negotiate.Other:
		return m.fallback
	default:
		return m.texts[i]
	}
}
