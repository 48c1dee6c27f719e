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

	"github.com/goccy/go-yaml"
)

// redacted stands where a secret was.
const redacted = "(redacted)"

// Change is one difference between two documents. Policies are named and not numbered: policies.search.limit.
type Change struct {
	Path string `json:"path"`
	Old  string `json:"old,omitempty"` // "": was not there
	New  string `json:"new,omitempty"` // "": is not there
}

// String returns path: old → new.
func (c Change) String() string {
	switch {
	case c.Old == "":
		return fmt.Sprintf("%s: + %s", c.Path, c.New)
	case c.New == "":
		return fmt.Sprintf("%s: − %s", c.Path, c.Old)
	}
	return fmt.Sprintf("%s: %s → %s", c.Path, c.Old, c.New)
}

// Diff returns what differs, by path. Secrets are redacted: that one has changed is told, and not what it is.
func Diff(old, new *Document) (changes []Change) {
	hidden := hiddenCallers(old, new)
	was, is := flatten(old, false, hidden[0]), flatten(new, false, hidden[1])
	before, after := flatten(old, true, hidden[0]), flatten(new, true, hidden[1]) // with secrets
	for _, path := range slices.Sorted(maps.Keys(merge(was, is))) {
		if before[path] != after[path] {
			changes = append(changes, Change{mask(path, old, new), mask(was[path], old, new), mask(is[path], old, new)})
		}
	}
	// The order of policies is that in which responses tell them.
	if a, b := names(old), names(new); !slices.Equal(a, b) && slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))) {
		changes = append(changes, Change{"policies", strings.Join(a, ", "), strings.Join(b, ", ")})
	}
	return changes
}

func names(d *Document) (out []string) {
	if d != nil {
		for _, p := range d.Policies {
			out = append(out, p.Name)
		}
	}
	return out
}

func merge(a, b map[string]string) map[string]string {
	m := maps.Clone(a)
	maps.Copy(m, b)
	return m
}

// flatten returns every value that is written in d by its path.
func flatten(d *Document, secrets bool, callers callersHidden) map[string]string {
	out := make(map[string]string)
	if d == nil {
		return out
	}
	var walk func(path string, x any)
	walk = func(path string, x any) {
		switch x := x.(type) {
		case yaml.MapSlice:
			for _, item := range x {
				walk(join(path, fmt.Sprint(item.Key)), item.Value)
			}
		case []any:
			if path == "policies" {
				for _, p := range x {
					if fields, ok := p.(yaml.MapSlice); ok && len(fields) > 0 {
						walk(path+"."+fmt.Sprint(fields[0].Value), fields)
					}
				}
				return
			}
			texts := make([]string, len(x))
			for k := range x {
				if fields, ok := x[k].(yaml.MapSlice); ok {
					walk(fmt.Sprintf("%s[%d]", path, k), fields)
					if texts[k] = fmt.Sprint(fields[0].Key); !isHandler(fields) {
						texts[k] = fmt.Sprint(fields[0].Value)
					}
					continue
				}
				texts[k] = fmt.Sprint(x[k])
			}
			out[path] = strings.Join(texts, ", ")
		default:
			out[path] = fmt.Sprint(x)
		}
	}
	walk("", d.tree(secrets, callers))
	return out
}

// isHandler tells a handler with settings, which is known by its name, from fields, which are by the first of them.
func isHandler(fields yaml.MapSlice) bool {
	_, settings := fields[0].Value.(yaml.MapSlice)
	return settings
}

// Redacted returns the document as YAML, as it was understood and without its secrets.
func (d *Document) Redacted() []byte {
	text, err := yaml.MarshalWithOptions(d.tree(false, hiddenCallers(d)[0]), yaml.IndentSequence(true))
	if err != nil { // never: a tree holds texts, numbers and lists of them
		return []byte("# " + err.Error() + "\n")
	}
	return []byte(mask(string(text), d))
}

// mask takes the secrets of documents out of a text: they may stand in a wrong place, too.
func mask(text string, docs ...*Document) string {
	for _, d := range docs {
		if d != nil {
			text = d.source.mask(text)
		}
	}
	return text
}

// tree returns what is written in d in the order of its fields.
func (d *Document) tree(secrets bool, callers callersHidden) yaml.MapSlice {
	shown := *d
	shown.Policies = slices.Clone(d.Policies)
	for k := range shown.Policies {
		shown.Policies[k].Overrides = callers.shown(k, d.Policies[k].Overrides)
	}
	t, _ := tree(reflect.ValueOf(&shown).Elem(), secrets).(yaml.MapSlice)
	return t
}

// tree turns a part of a document into maps and lists; nil: nothing is written there.
func tree(v reflect.Value, secrets bool) any {
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		return tree(v.Elem(), secrets)
	}
	if v.IsZero() && v.Kind() != reflect.Struct {
		return nil
	}
	switch x := v.Interface().(type) {
	case Handler:
		name, settings := x.alone()
		if fields := settingsOf(settings, secrets); fields != nil {
			return yaml.MapSlice{{Key: name, Value: fields}}
		}
		return name
	case Duration:
		if x == -1 {
			return off
		}
		return x.String()
	case Count:
		if x == -1 {
			return off
		}
		return int(x)
	case Number:
		return float64(x)
	case Statuses:
		if x.From != x.To {
			return strconv.Itoa(x.From/100) + "xx"
		}
		return x.From
	case encoding.TextMarshaler:
		if v.IsZero() {
			return nil
		}
		text, err := x.MarshalText()
		if err != nil {
			return err.Error()
		}
		return string(text)
	}
	switch v.Kind() {
	case reflect.Struct:
		var out yaml.MapSlice
		for _, f := range fieldsOf(v.Type()).fields {
			x := tree(v.Field(f.index), secrets)
			if s, ok := x.(string); ok && f.rules.secret && !secrets {
				if _, reference := envName(s); !reference {
					x = redacted
				}
			}
			if x != nil {
				out = append(out, yaml.MapItem{Key: f.name, Value: x})
			}
		}
		if out == nil {
			return nil
		}
		return out
	case reflect.Map:
		var out yaml.MapSlice
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range keys {
			out = append(out, yaml.MapItem{Key: k.String(), Value: tree(v.MapIndex(k), secrets)})
		}
		return out
	case reflect.Slice:
		out := make([]any, v.Len())
		for k := range out {
			out[k] = tree(v.Index(k), secrets)
		}
		return out
	case reflect.String:
		return v.String()
	case reflect.Int:
		return int(v.Int())
	}
	return v.Bool()
}

// settingsOf is tree of the settings of a handler, nil without any.
func settingsOf(v reflect.Value, secrets bool) any {
	if !v.IsValid() {
		return nil
	}
	return tree(v, secrets)
}

// String returns a time as it is written.
func (d Duration) String() string {
	s := time.Duration(d).String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-2]
		}
	}
	return s
}
