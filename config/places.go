package config

import (
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// place is where something stands; 0: nowhere.
type place struct{ line, column int }

func placeOf(t *token.Token) place {
	if t == nil || t.Position == nil {
		return place{}
	}
	return place{max(t.Position.Line, 1), max(t.Position.Column, 1)}
}

// first returns the token with which a node begins.
func first(n ast.Node) *token.Token {
	switch x := n.(type) {
	case *ast.MappingNode:
		if !x.IsFlowStyle && len(x.Values) > 0 {
			return first(x.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return first(x.Key)
	}
	if n == nil {
		return nil
	}
	return n.GetToken()
}

// source is the text of a document and where its fields stand.
type source struct {
	lines   []string
	places  map[string]place
	hidden  map[int]bool // lines that hold a secret
	secrets []string     // parts of secrets that are nowhere to be shown

	digests bool           // the text says hmac
	callers *callersHidden // of the document

	suspects []string // words that may be secrets, not to be shown in findings
}

func newSource(data []byte) *source {
	return &source{digests: digests.Match(data), lines: strings.Split(string(data), "\n"), places: make(map[string]place), hidden: make(map[int]bool)}
}

// at returns the place of a path, or of what it is in.
func (s *source) at(path string) place {
	for s != nil && path != "" {
		if p, ok := s.places[path]; ok {
			return p
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return place{}
}

// text returns a line for people to recognise it by.
func (s *source) text(line int) string {
	if s == nil || line < 1 || line > len(s.lines) || s.hidden[line] {
		return ""
	}
	const most = 120
	text := strings.TrimSpace(s.lines[line-1])
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
