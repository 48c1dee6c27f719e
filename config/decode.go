package config

import (
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// decoder turns nodes into values and notes everything that does not fit.
type decoder struct {
	source  *source
	found   Findings
	anchors map[string]ast.Node
	merges  map[ast.Node][]named // what has been merged once
	visited int
	text    int // bytes of values and names
	paths   int // bytes of where they stand
}

func (d *decoder) add(p place, f Finding) {
	if d.full() {
		return
	}
	f.Line, f.Column, f.Text = p.line, p.column, d.source.text(p.line)
	d.found = append(d.found, f)
}

// full tells that enough has been found; finish tells that there is more. What is behind costs nothing.
func (d *decoder) full() bool { return len(d.found) > maxFindings }

// over tells that nothing is looked at any more.
func (d *decoder) over() bool {
	return d.full() || d.visited > maxVisited || d.text > maxText || d.paths > maxPaths
}

func (d *decoder) wrong(n ast.Node, path, id, suggestion, format string, args ...any) {
	d.add(placeOf(first(n)), Finding{ID: id, Path: path, Message: fmt.Sprintf(format, args...), Suggestion: suggestion})
}

func (d *decoder) document(n ast.Node, doc *Document) {
	d.anchors, d.merges = make(map[string]ast.Node), make(map[ast.Node][]named)
	d.note(n)
	d.value(n, "", reflect.ValueOf(doc).Elem(), noRules)
}

// note finds the anchors before they are named.
func (d *decoder) note(n ast.Node) {
	for _, x := range ast.Filter(ast.AnchorType, n) {
		a, ok := x.(*ast.AnchorNode)
		if !ok || a.Name == nil {
			continue
		}
		name := a.Name.GetToken().Value
		if d.anchors[name] != nil {
			d.wrong(a, "", InvalidValue, "", "the anchor %q is there twice", name)
		}
		d.anchors[name] = a.Value
	}
}

// visit counts nodes that are looked at, those of aliases as often as they are named. false: enough.
func (d *decoder) visit(n ast.Node, path string, count int) bool {
	if d.over() {
		return false
	}
	if d.visited += count; d.visited > maxVisited {
		d.wrong(n, path, TooLarge, "", "the document has more than %d values", maxVisited)
		return false
	}
	return true
}

// spend counts the bytes of a value or a name, and of its path, which is kept: those of aliases as often as they are named.
// false: enough.
func (d *decoder) spend(n ast.Node, path string, text int) bool {
	if d.over() {
		return false
	}
	d.text, d.paths = d.text+text, d.paths+len(path)
	switch {
	case d.text > maxText:
		d.wrong(n, "", TooLarge, "", "the values and names of the document have more than %d bytes, with those of aliases as often as they are named", maxText)
		return false
	case d.paths > maxPaths:
		d.wrong(n, "", TooLarge, "", "the names around the values of the document have more than %d bytes together", maxPaths)
		return false
	}
	return true
}

// resolve follows anchors, aliases and tags to the node that counts; nil: there is none, and that has been told.
func (d *decoder) resolve(n ast.Node, path string) ast.Node {
	for {
		if !d.visit(n, path, 1) {
			return nil
		}
		switch x := n.(type) {
		case *ast.AnchorNode:
			n = x.Value
		case *ast.AliasNode:
			name := x.Value.GetToken().Value
			next, ok := d.anchors[name]
			if !ok {
				d.wrong(x, path, InvalidValue, d.known(name), "there is no anchor %q", name)
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

// known suggests an anchor, where there are as few as people write: one is looked for among all.
func (d *decoder) known(name string) string {
	if len(d.anchors) > 100 {
		return ""
	}
	return suggest(name, slices.Sorted(maps.Keys(d.anchors)))
}

// value decodes n into v.
func (d *decoder) value(n ast.Node, path string, v reflect.Value, rules rules) {
	place := placeOf(first(n))
	if rules.secret && d.shared(n, path) {
		return
	}
	if n = d.resolve(n, path); n == nil {
		return
	}
	if _, seen := d.source.places[path]; !seen {
		d.source.places[path] = place
	}
	if _, empty := n.(*ast.NullNode); empty {
		d.wrong(n, path, InvalidValue, giveValue, "nothing is given")
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
	case v.Type() == reflect.TypeFor[Chain]():
		if _, several := n.(*ast.SequenceNode); !several {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			d.handler(n, path+"[0]", v.Index(0))
			return
		}
	case v.Type() == reflect.TypeFor[Handler]():
		d.handler(n, path, v)
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

const giveValue = "Give a value, or leave the field out."

// shared refuses a secret that also stands elsewhere, where it would be shown.
func (d *decoder) shared(n ast.Node, path string) bool {
	switch n.(type) {
	case *ast.AnchorNode, *ast.AliasNode:
		d.wrong(n, path, InvalidValue, "Write it here alone.", "a secret has neither anchor nor alias")
		return true
	}
	return false
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

// named is a field of a mapping with its name.
type named struct {
	name string
	*ast.MappingValueNode
}

// pairs returns the fields of a mapping, with those that are merged into it behind its own.
func (d *decoder) pairs(n ast.Node, path string, depth int) (pairs []named, ok bool) {
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
	if !d.visit(n, path, len(own)) {
		return nil, false
	}
	var merged []named
	for _, pair := range own {
		if pair.Key == nil {
			continue
		}
		if _, merge := pair.Key.(*ast.MergeKeyNode); merge {
			merged = append(merged, d.merged(pair.Value, path, depth)...)
		} else if name, ok := d.nameOf(pair.Key, path); ok {
			pairs = append(pairs, named{name, pair})
		}
	}
	if len(merged) == 0 {
		return pairs, true
	}
	names := make(map[string]bool)
	for _, pair := range pairs {
		names[pair.name] = true
	}
	for _, pair := range merged {
		if !names[pair.name] {
			names[pair.name] = true
			pairs = append(pairs, pair)
		}
	}
	return pairs, true
}

// merged returns the fields of what << names: a mapping, or several, of which the earlier ones win.
func (d *decoder) merged(n ast.Node, path string, depth int) (pairs []named) {
	n = d.resolve(n, path)
	from := []ast.Node{n}
	if list, several := n.(*ast.SequenceNode); several {
		from = list.Values
	}
	for _, f := range from {
		if f = d.resolve(f, path); f == nil {
			continue
		}
		more, known := d.merges[f]
		switch {
		case !known && depth == maxDepth:
			d.wrong(f, path, TooLarge, "", "merged deeper than %d", maxDepth)
			continue
		case !known:
			d.merges[f] = nil // of what merges itself
			more, _ = d.pairs(f, path, depth+1)
			d.merges[f] = more
		case !d.visit(f, path, len(more)):
			continue
		}
		pairs = append(pairs, more...)
	}
	return pairs
}

// nameOf returns the name of a field as it is written. false: it is no name, and that has been told.
func (d *decoder) nameOf(n ast.Node, path string) (string, bool) {
	switch x := n.(type) {
	case *ast.MappingKeyNode:
		return d.nameOf(x.Value, path)
	case *ast.AnchorNode:
		return d.nameOf(x.Value, path)
	case *ast.AliasNode: // of a secret it would hide that it is one
		d.wrong(n, path, InvalidValue, "Write the name itself.", "an alias is no name")
		return "", false
	case *ast.TagNode:
		d.wrong(n, path, InvalidValue, "", "tags such as %s are not understood", x.GetToken().Value)
		return "", false
	case *ast.NullNode:
		d.wrong(n, path, InvalidValue, "Put it in quotes if it is a name.", "a name is expected here")
		return "", false
	}
	text, _, ok := scalarText(n)
	if !ok {
		d.wrong(n, path, InvalidValue, "", "a name is expected here")
	}
	return text, ok
}

func (d *decoder) fields(n ast.Node, path string, v reflect.Value) {
	pairs, ok := d.pairs(n, path, 0)
	if !ok {
		return
	}
	if len(pairs) == 0 && v.Type() == reflect.TypeFor[Match]() {
		d.add(placeOf(first(n)), Finding{ID: NoEffect, Warning: true, Path: path, Message: "nothing is in it", Suggestion: "Leave it out."})
	}
	known := fieldsOf(v.Type())
	seen := make(map[string]bool)
	for _, pair := range pairs {
		name := pair.name
		if !d.spend(pair.Key, path, len(name)) {
			return
		}
		at := join(path, name)
		f, ok := known.byName[name]
		switch {
		case !ok && path == "" && (strings.HasPrefix(name, "x-") || name == "$schema"): // places for anchors, and what editors go by
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
	d.required(n, path, known, seen)
}

// required tells of the fields that have to be there and are not.
func (d *decoder) required(n ast.Node, path string, known *fieldSet, seen map[string]bool) {
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
		name := pair.name
		if !d.spend(pair.Key, path, len(name)) {
			return
		}
		at := join(path, name)
		switch {
		case name == "" || strings.ContainsFunc(name, unprintable) || strings.ContainsAny(name, "\n\t"):
			d.wrong(pair.Key, path, InvalidValue, "", "the name %q is empty, or has a control character", name)
			continue
		case v.MapIndex(reflect.ValueOf(name)).IsValid():
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
	if rules.filled && len(list.Values) == 0 {
		d.wrong(n, path, InvalidValue, "Leave the field out to mean all.", "the list is empty")
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(list.Values), len(list.Values)))
	for k, x := range list.Values {
		if d.over() {
			return
		}
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

// handler decodes a name alone, or one field.
func (d *decoder) handler(n ast.Node, path string, v reflect.Value) {
	if _, seen := d.source.places[path]; !seen {
		d.source.places[path] = placeOf(first(n))
	}
	h := v.Addr().Interface().(*Handler)
	if _, _, alone := scalarText(n); alone {
		var name string
		d.scalar(n, path, reflect.ValueOf(&name).Elem(), noRules)
		if name != "" {
			h.setAlone(name)
		}
		if _, settings := h.alone(); settings.IsValid() {
			d.required(n, join(path, name), fieldsOf(settings.Type().Elem()), nil)
		}
		return
	}
	pairs, ok := d.pairs(n, path, 0)
	if !ok {
		return
	}
	if len(pairs) != 1 {
		d.wrong(n, path, InvalidValue, "Begin each with a dash of its own.", "one handler is expected here, and there are %d fields", len(pairs))
		return
	}
	d.fields(n, path, v)
}

func (d *decoder) fits(n ast.Node, path string, length int, rules rules) bool {
	if rules.len > 0 && length > rules.len {
		d.wrong(n, path, TooLarge, "", "%d are too many: at most %d", length, rules.len)
		return false
	}
	return true
}
