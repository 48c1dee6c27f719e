package config

import (
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

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

// source is the text of a document and where its fields stand.
type source struct {
	lines  []string
	places map[string]place
	secret map[int]bool // lines that hold a secret
}

func newSource(data []byte) *source {
	return &source{lines: strings.Split(string(data), "\n"), places: make(map[string]place), secret: make(map[int]bool)}
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
	if s == nil || line < 1 || line > len(s.lines) || s.secret[line] {
		return ""
	}
	const most = 120
	text := strings.TrimSpace(s.lines[line-1])
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// decoder turns nodes into values and notes everything that does not fit.
type decoder struct {
	source  *source
	found   Findings
	anchors map[string]ast.Node
	visited int
}

func (d *decoder) add(p place, f Finding) {
	f.Line, f.Column, f.Text = p.line, p.column, d.source.text(p.line)
	d.found = append(d.found, f)
}

func (d *decoder) wrong(n ast.Node, path, id, suggestion, format string, args ...any) {
	d.add(placeOf(first(n)), Finding{ID: id, Path: path, Message: fmt.Sprintf(format, args...), Suggestion: suggestion})
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

func (d *decoder) document(n ast.Node, doc *Document) {
	d.note(n)
	d.value(n, "", reflect.ValueOf(doc).Elem(), noRules)
}

// note finds the anchors before they are named.
func (d *decoder) note(n ast.Node) {
	for _, x := range ast.Filter(ast.AnchorType, n) {
		if a, ok := x.(*ast.AnchorNode); ok && a.Name != nil {
			d.anchors[a.Name.GetToken().Value] = a.Value
		}
	}
}

// resolve follows anchors, aliases and tags to the node that counts; nil: there is none, and that has been told.
func (d *decoder) resolve(n ast.Node, path string) ast.Node {
	for {
		if d.visited++; d.visited > maxVisited {
			if d.visited == maxVisited+1 {
				d.wrong(n, path, TooLarge, "", "the document has more than %d values", maxVisited)
			}
			return nil
		}
		switch x := n.(type) {
		case *ast.AnchorNode:
			n = x.Value
		case *ast.AliasNode:
			name := x.Value.GetToken().Value
			next, ok := d.anchors[name]
			if !ok {
				d.wrong(x, path, InvalidValue, suggest(name, slices.Sorted(maps.Keys(d.anchors))), "there is no anchor %q", name)
				return nil
			}
			n = next
		case *ast.TagNode:
			d.wrong(x, path, InvalidValue, "", "tags such as %s are not understood", x.GetToken().Value)
			return nil
		case nil:
			return nil
		default:
			return n
		}
	}
}

// value decodes n into v.
func (d *decoder) value(n ast.Node, path string, v reflect.Value, rules rules) {
	place := placeOf(first(n))
	if n = d.resolve(n, path); n == nil {
		return
	}
	if _, seen := d.source.places[path]; !seen {
		d.source.places[path] = place
	}
	if rules.secret {
		d.hide(n)
	}
	if _, empty := n.(*ast.NullNode); empty {
		d.wrong(n, path, InvalidValue, "Leave the field out.", "nothing is given")
		return
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	switch {
	case v.Type() == reflect.TypeFor[List]():
		d.list(n, path, v, rules)
		return
	case isScalar(v.Type()):
		d.scalar(n, path, v, rules)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		d.fields(n, path, v)
	case reflect.Map:
		d.entries(n, path, v, rules)
	case reflect.Slice:
		d.elements(n, path, v, rules)
	default:
		panic("config: a document cannot hold " + v.Type().String())
	}
}

// hide keeps the lines of a secret out of findings.
func (d *decoder) hide(n ast.Node) {
	from := placeOf(n.GetToken()).line
	for line := from; line <= from+strings.Count(n.String(), "\n")+1; line++ {
		if line == from || strings.Contains(n.String(), "\n") {
			d.source.secret[line] = true
		}
	}
}

func isScalar(t reflect.Type) bool {
	if reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return true
	}
	switch t.Kind() {
	case reflect.String, reflect.Int, reflect.Bool:
		return true
	}
	return false
}

// pairs returns the fields of a mapping, with those that are merged into it behind its own.
func (d *decoder) pairs(n ast.Node, path string, depth int) (pairs []*ast.MappingValueNode, ok bool) {
	var own []*ast.MappingValueNode
	switch x := n.(type) {
	case *ast.MappingNode:
		own = x.Values
	case *ast.MappingValueNode:
		own = []*ast.MappingValueNode{x}
	default:
		d.wrong(n, path, InvalidValue, "", "fields are expected here, as in name: value")
		return nil, false
	}
	var merged []*ast.MappingValueNode
	for _, pair := range own {
		if pair.Key == nil {
			continue
		}
		if _, merge := pair.Key.(*ast.MergeKeyNode); !merge {
			pairs = append(pairs, pair)
			continue
		}
		from := []ast.Node{pair.Value}
		if list, several := d.resolve(pair.Value, path).(*ast.SequenceNode); several {
			from = list.Values
		}
		for _, f := range from {
			f = d.resolve(f, path)
			if f == nil || depth > maxDepth {
				continue
			}
			more, _ := d.pairs(f, path, depth+1)
			merged = append(merged, more...)
		}
	}
	names := make(map[string]bool)
	for _, pair := range pairs {
		names[keyText(pair.Key)] = true
	}
	for _, pair := range merged {
		if name := keyText(pair.Key); !names[name] {
			names[name] = true
			pairs = append(pairs, pair)
		}
	}
	return pairs, true
}

func keyText(n ast.MapKeyNode) string {
	if n == nil {
		return ""
	}
	if s, ok := n.(*ast.StringNode); ok {
		return s.Value
	}
	return n.GetToken().Value
}

func (d *decoder) fields(n ast.Node, path string, v reflect.Value) {
	pairs, ok := d.pairs(n, path, 0)
	if !ok {
		return
	}
	known := fieldsOf(v.Type())
	seen := make(map[string]bool)
	for _, pair := range pairs {
		name := keyText(pair.Key)
		at := join(path, name)
		f, ok := known.byName[name]
		switch {
		case !ok && path == "" && strings.HasPrefix(name, "x-"): // a place for anchors
			continue
		case !ok:
			d.wrong(pair.Key, at, UnknownField, suggest(name, known.names), "there is no field %q here", name)
			continue
		case seen[name]:
			d.wrong(pair.Key, at, DuplicateField, "", "the field %q stands here twice", name)
			continue
		}
		seen[name] = true
		d.value(pair.Value, at, v.Field(f.index), f.rules)
	}
	for _, f := range known.fields {
		if f.rules.required && !seen[f.name] {
			d.wrong(n, path, MissingField, "", "the field %q is required: %s", f.name, f.about)
		}
	}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func (d *decoder) entries(n ast.Node, path string, v reflect.Value, rules rules) {
	pairs, ok := d.pairs(n, path, 0)
	if !ok || !d.fits(n, path, len(pairs), rules) {
		return
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(pairs)))
	for _, pair := range pairs {
		name := keyText(pair.Key)
		at := join(path, name)
		if v.MapIndex(reflect.ValueOf(name)).IsValid() {
			d.wrong(pair.Key, at, DuplicateField, "", "%q stands here twice", name)
			continue
		}
		x := reflect.New(v.Type().Elem()).Elem()
		d.value(pair.Value, at, x, noRules)
		v.SetMapIndex(reflect.ValueOf(name), x)
	}
}

func (d *decoder) elements(n ast.Node, path string, v reflect.Value, rules rules) {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		d.wrong(n, path, InvalidValue, "", "a list is expected here, as in [a, b]")
		return
	}
	if !d.fits(n, path, len(list.Values), rules) {
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(list.Values), len(list.Values)))
	for k, x := range list.Values {
		d.value(x, fmt.Sprintf("%s[%d]", path, k), v.Index(k), noRules)
	}
}

// list decodes one text or several.
func (d *decoder) list(n ast.Node, path string, v reflect.Value, rules rules) {
	if _, several := n.(*ast.SequenceNode); several {
		d.elements(n, path, v, rules)
		return
	}
	var one string
	d.scalar(n, path, reflect.ValueOf(&one).Elem(), noRules)
	v.Set(reflect.ValueOf(List{one}))
}

func (d *decoder) fits(n ast.Node, path string, length int, rules rules) bool {
	if rules.len > 0 && length > rules.len {
		d.wrong(n, path, TooLarge, "", "%d are too many: at most %d", length, rules.len)
		return false
	}
	return true
}

func (d *decoder) scalar(n ast.Node, path string, v reflect.Value, rules rules) {
	text, quoted, ok := scalarText(n)
	if !ok {
		d.wrong(n, path, InvalidValue, "", "one value is expected here")
		return
	}
	shown := fmt.Sprintf("%q", text)
	if rules.secret {
		shown = "the value"
	}
	bad := func(format string, args ...any) {
		d.wrong(n, path, InvalidValue, "", format, args...)
	}
	if rules.off && text == off {
		v.SetInt(-1)
		return
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if err := u.UnmarshalText([]byte(text)); err != nil {
			bad("%s: %v", shown, err)
			return
		}
		if t, ok := u.(*Duration); ok && (rules.min != "" && *t < duration(rules.min) || rules.max != "" && *t > duration(rules.max)) {
			bad("%s is outside %s to %s", shown, rules.min, rules.max)
		}
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		if text != "true" && text != "false" || quoted {
			bad("%s: want true or false", shown)
			return
		}
		v.SetBool(text == "true")
	case reflect.Int:
		number, err := strconv.ParseInt(text, 10, 64)
		if err != nil || quoted || strconv.FormatInt(number, 10) != text {
			bad("%s: want a whole number", shown)
			return
		}
		if rules.min != "" && number < integer(rules.min) || rules.max != "" && number > integer(rules.max) {
			bad("%s is outside %s to %s", shown, rules.min, rules.max)
			return
		}
		if len(rules.oneOf) > 0 && !slices.Contains(rules.oneOf, text) {
			bad("%s: want %s", shown, strings.Join(rules.oneOf, " or "))
			return
		}
		v.SetInt(number)
	default:
		switch {
		case text == "":
			bad("the value is empty")
		case rules.len > 0 && len(text) > rules.len:
			bad("%d bytes are too many: at most %d", len(text), rules.len)
		case len(rules.oneOf) > 0 && !slices.Contains(rules.oneOf, text):
			d.wrong(n, path, InvalidValue, suggest(text, rules.oneOf), "%s: want one of %s", shown, strings.Join(rules.oneOf, ", "))
		default:
			v.SetString(text)
		}
	}
}

// scalarText returns what stands there, as it stands there, and whether it was in quotes.
func scalarText(n ast.Node) (text string, quoted, ok bool) {
	switch x := n.(type) {
	case *ast.StringNode:
		quoted = x.Token.Type == token.DoubleQuoteType || x.Token.Type == token.SingleQuoteType
		return x.Value, quoted, true
	case *ast.LiteralNode:
		return x.Value.Value, true, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, false, true
	}
	return "", false, false
}

func duration(s string) Duration {
	d, err := time.ParseDuration(s)
	if err != nil {
		panic("config: " + err.Error()) // a tag of ours
	}
	return Duration(d)
}

func integer(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic("config: " + err.Error())
	}
	return n
}
