package config

import (
	"fmt"

	"github.com/goccy/go-yaml/token"
)

// Bounds on what a document may cost, for it may come over a network. The lexer takes linear time; the parser takes time
// that is quadratic in the number of empty values, of tags and of entries of one mapping, and recursion as deep as the
// document. Of all shapes in the tests none takes more than a second for [MaxDocument] within these bounds.
const (
	maxMarks    = 250_000 // bytes that end or begin something: newlines, brackets, commas, colons, dashes
	maxDepth    = 64
	maxEntries  = 10_000      // of one list or mapping
	maxEmpty    = 1_000       // values that are left out
	maxTags     = 100         // none is understood anyway
	maxVisited  = 300_000     // values, with those of aliases as often as they are named
	maxText     = 8 << 20     // bytes of values and names, likewise
	maxPaths    = 8 * maxText // bytes of the names around each of them
	maxFindings = 100         // told of errors, and as many of warnings
)

// marks counts what can begin a token, before there are any. It is right within a factor of two.
func marks(data []byte) (n int) {
	for k, c := range data {
		switch c {
		case '\n', ',', '[', ']', '{', '}', ':', '&', '*', '!', '?':
			n++
		case '-':
			if k+1 == len(data) || data[k+1] <= ' ' {
				n++
			}
		}
	}
	return n
}

// bounds looks at the tokens of a document before anything that recurs or takes quadratic time does.
type bounds struct {
	flow   []level // of each open bracket
	block  []level // by column, outside of brackets
	around int     // bytes of the names around
	paths  int     // sum of that over all tokens: the parser keeps the path of every node
	empty  int
	tags   int
	second *token.Token // begins a second document

	begun     bool // a document has begun
	ended     bool
	directive int // the line of the last one
}

// level is what is in one bracket, or begins at one column; name is the length of the last name.
type level struct{ column, keys, dashes, name int }

// named notes the name of what comes next in a level.
func (b *bounds) named(l *level, name *token.Token) {
	length := 0
	if name != nil {
		length = len(name.Value)
	}
	b.around += length - l.name
	l.name = length
}

// left notes the end of the last of levels, if there is one.
func (b *bounds) left(levels []level) []level {
	if len(levels) == 0 {
		return levels
	}
	b.around -= levels[len(levels)-1].name
	return levels[:len(levels)-1]
}

// check returns what is too much and where, "" if nothing is.
func (b *bounds) check(tokens token.Tokens) (*token.Token, string) {
	for k, t := range tokens {
		var before, next *token.Token
		if k > 0 {
			before = tokens[k-1]
		}
		if k+1 < len(tokens) {
			next = tokens[k+1]
		}
		b.documents(t)
		many := false
		switch t.Type {
		case token.SequenceStartType, token.MappingStartType:
			b.flow = append(b.flow, level{keys: 1})
		case token.SequenceEndType, token.MappingEndType:
			b.flow = b.left(b.flow)
		case token.CollectEntryType:
			if n := len(b.flow); n > 0 {
				b.flow[n-1].keys++
				many = b.flow[n-1].keys > maxEntries
			}
		case token.TagType:
			b.tags++
		case token.SequenceEntryType, token.MappingKeyType:
			many = b.entry(t.Position.Column, 0, 1)
			b.count(t, next, t.Position.Column, false)
		case token.MappingValueType:
			column := t.Position.Column
			if before != nil {
				column = before.Position.Column
			}
			many = b.entry(column, 1, 0)
			if n := len(b.flow); n > 0 {
				b.named(&b.flow[n-1], before)
			} else {
				b.named(&b.block[len(b.block)-1], before)
			}
			b.count(t, next, column, true)
		}
		b.paths += b.around
		switch {
		case b.paths > maxPaths:
			return t, fmt.Sprintf("the names around what stands here have more than %d bytes together", maxPaths)
		case many:
			return t, fmt.Sprintf("more than %d entries", maxEntries)
		case len(b.flow)+len(b.block) > maxDepth:
			return t, fmt.Sprintf("nested deeper than %d", maxDepth)
		case b.empty > maxEmpty:
			return t, fmt.Sprintf("more than %d empty values", maxEmpty)
		case b.tags > maxTags:
			return t, fmt.Sprintf("more than %d tags", maxTags)
		}
	}
	return nil, ""
}

// documents notes where a second document begins. Comments and directives are before one.
func (b *bounds) documents(t *token.Token) {
	if t.Type == token.DirectiveType {
		b.directive = t.Position.Line
	}
	if b.second == nil && (b.ended || b.begun && t.Type == token.DocumentHeaderType) {
		b.second = t
	}
	b.begun = b.begun || t.Type != token.CommentType && t.Position.Line != b.directive
	b.ended = b.ended || t.Type == token.DocumentEndType
}

// entry notes an entry of a block that begins at column.
func (b *bounds) entry(column, keys, dashes int) (many bool) {
	if len(b.flow) > 0 {
		return false
	}
	for len(b.block) > 0 && b.block[len(b.block)-1].column > column {
		b.block = b.left(b.block)
	}
	if n := len(b.block); n == 0 || b.block[n-1].column < column {
		b.block = append(b.block, level{column: column})
	}
	top := &b.block[len(b.block)-1]
	top.keys += keys
	top.dashes += dashes
	return top.keys > maxEntries || top.dashes > maxEntries
}

// count notes whether nothing stands behind t.
func (b *bounds) count(t, next *token.Token, column int, key bool) {
	switch {
	case next == nil:
		b.empty++
	case len(b.flow) > 0:
		if next.Type == token.CollectEntryType || next.Type == token.SequenceEndType || next.Type == token.MappingEndType {
			b.empty++
		}
	case next.Position.Line > t.Position.Line && next.Position.Column <= column:
		if !key || next.Type != token.SequenceEntryType || next.Position.Column < column {
			b.empty++
		}
	}
}
