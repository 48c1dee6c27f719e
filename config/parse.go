package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Parse reads a document in YAML or JSON and finds everything that is wrong with its form: with [Findings.Err] nil it is
// well-formed, and [Build] tells the rest. It never panics, and a document that is made to be expensive is refused.
func Parse(data []byte) (*Document, Findings) {
	d := &decoder{source: newSource(data)}
	doc := &Document{source: d.source}
	if len(data) > MaxDocument {
		d.add(place{}, Finding{ID: TooLarge, Message: fmt.Sprintf("the document has %d bytes, above %d", len(data), MaxDocument)})
		return doc, d.found
	}
	if !utf8.Valid(data) {
		d.add(place{}, Finding{ID: Syntax, Message: "the document is not UTF-8"})
		return doc, d.found
	}
	if p, what := tooDeep(data); what != "" {
		d.add(p, Finding{ID: TooLarge, Message: what})
		return doc, d.found
	}
	file, err := parse(data)
	if err != nil {
		p, message := place{}, err.Error()
		var syntax *yaml.SyntaxError
		if errors.As(err, &syntax) {
			p, message = placeOf(syntax.Token), syntax.Message
		}
		f := Finding{ID: Syntax, Message: message}
		if strings.Contains(message, "already defined") {
			f.ID = DuplicateField
		}
		d.add(p, f)
		return doc, d.found
	}
	var bodies []ast.Node
	for _, x := range file.Docs {
		if x.Body != nil {
			bodies = append(bodies, x.Body)
		}
	}
	switch len(bodies) {
	case 0:
		d.add(place{}, Finding{ID: Syntax, Message: "the document is empty"})
	case 1:
		d.anchors = make(map[string]ast.Node)
		d.document(bodies[0], doc)
	default:
		d.add(placeOf(bodies[1].GetToken()), Finding{ID: Syntax, Message: "one document is expected, and here a second one begins"})
	}
	return doc, d.found.sorted()
}

// parse contains panics of the parser: documents come over networks.
func parse(data []byte) (file *ast.File, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = errors.New("this is no YAML")
		}
	}()
	return parser.ParseBytes(data, 0)
}

// Bounds on what a parser has to bear: it is recursive, and takes quadratic time in the depth.
const (
	maxDepth   = 64
	maxLine    = 16 << 10
	maxVisited = 100_000 // nodes, with those of aliases as often as they are named
)

// tooDeep looks at brackets and dashes without regard to what they mean, but for those in quotes and comments.
func tooDeep(data []byte) (place, string) {
	depth, quote := 0, byte(0)
	line := 0
	for text := range bytes.Lines(data) {
		line++
		if len(text) > maxLine {
			return place{line: line, column: 1}, fmt.Sprintf("the line has more than %d bytes", maxLine)
		}
		lead, dashes := true, 0
		for k := 0; k < len(text); k++ {
			c := text[k]
			starts := k == 0 || bytes.IndexByte([]byte(" \t[{,:"), text[k-1]) >= 0
			switch {
			case quote == '"' && c == '\\':
				k++
			case quote != 0:
				if c == quote {
					quote = 0
				}
			case (c == '"' || c == '\'') && starts:
				quote = c
			case c == '#' && starts:
				k = len(text)
			case c == '[', c == '{':
				depth++
			case c == ']', c == '}':
				depth = max(0, depth-1)
			case lead && (c == '-' || c == '?'):
				dashes++
			}
			lead = lead && (c == ' ' || c == '-' || c == '?')
			if depth > maxDepth || dashes > maxDepth {
				return place{line: line, column: k + 1}, fmt.Sprintf("nested deeper than %d", maxDepth)
			}
		}
	}
	return place{}, ""
}
