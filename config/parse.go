package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// Parse reads a document in YAML or JSON and finds everything that is wrong with its form: with [Findings.Err] nil it is
// well-formed, and [Build] tells the rest. It never panics, and a document that is made to be expensive is refused.
func Parse(data []byte) (*Document, Findings) {
	data = plain(data)
	d := &decoder{source: newSource(data)}
	doc := &Document{source: d.source}
	d.parse(data, doc)
	d.source.callers = &hiddenCallers(doc)[0]
	return doc, d.found.finish(d.source)
}

// plain returns data without a byte order mark and with newlines alone at the ends of lines.
func plain(data []byte) []byte {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	if bytes.IndexByte(data, '\r') >= 0 {
		data = bytes.ReplaceAll(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n"))
	}
	return data
}

func (d *decoder) parse(data []byte, doc *Document) {
	if len(data) > MaxDocument {
		d.add(place{}, Finding{ID: TooLarge, Message: fmt.Sprintf("the document has %d bytes, above %d", len(data), MaxDocument)})
		return
	}
	if n := marks(data); n > maxMarks {
		d.add(place{}, Finding{ID: TooLarge, Message: fmt.Sprintf("the document has too many parts: %d newlines, commas, colons and brackets are more than %d", n, maxMarks)})
		return
	}
	if line, what := unreadable(data); what != "" {
		d.add(place{line: line, column: 1}, Finding{ID: Syntax, Message: what})
		return
	}
	tokens, err := tokenize(data)
	if err == nil {
		d.source.hideSecrets(tokens)
		var b bounds
		if t, what := b.check(tokens); what != "" {
			d.add(placeOf(t), Finding{ID: TooLarge, Message: what})
			return
		}
		if b.second != nil {
			d.add(placeOf(b.second), Finding{ID: Syntax, Message: "one document is expected, and here a second one begins"})
			return
		}
		var file *ast.File
		if file, err = parse(tokens); err == nil {
			d.file(file, doc)
			return
		}
	}
	p, message := place{}, errNoYAML.Error()
	var syntax *yaml.SyntaxError
	if errors.As(err, &syntax) { // its Error prints what is around, in time quadratic in the tokens of a line
		p, message = placeOf(syntax.Token), syntax.Message
	}
	d.source.hideLines()
	message, _, _ = strings.Cut(message, `: "`) // what follows is from the document
	suggestion := ""
	if strings.HasPrefix(message, "found character '\t'") {
		message, suggestion = "a tab cannot indent", "Use spaces."
	}
	d.add(p, Finding{ID: Syntax, Message: message, Suggestion: suggestion})
}

func (d *decoder) file(file *ast.File, doc *Document) {
	for _, x := range file.Docs {
		switch x.Body.(type) {
		case nil, *ast.CommentGroupNode, *ast.DirectiveNode:
			continue
		}
		d.document(x.Body, doc)
		return
	}
	d.add(place{}, Finding{ID: Syntax, Message: "the document is empty"})
}

// unreadable tells of bytes that no document has, and in which line they are.
func unreadable(data []byte) (line int, what string) {
	line = 1
	for len(data) > 0 {
		r, n := utf8.DecodeRune(data)
		switch {
		case r == '\n':
			line++
		case r == utf8.RuneError && n == 1:
			return line, "this is not UTF-8"
		case r < ' ' && r != '\t' || r >= 0x7f && r < 0xa0:
			return line, fmt.Sprintf("the control character %U is in the text", r)
		}
		data = data[n:]
	}
	return 0, ""
}

var errNoYAML = errors.New("this is no YAML")

// tokenize contains panics of the lexer.
func tokenize(data []byte) (tokens token.Tokens, err error) {
	defer func() {
		if recover() != nil {
			err = errNoYAML
		}
	}()
	return lexer.Tokenize(string(data)), nil
}

// parse contains panics of the parser. Fields that stand there twice are told by the decoder, with everything else.
func parse(tokens token.Tokens) (file *ast.File, err error) {
	defer func() {
		if recover() != nil {
			err = errNoYAML
		}
	}()
	return parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
}
