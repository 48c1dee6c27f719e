package config

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/adaptive"
	"github.com/spillway-go/spillway/response"
)

// Schema returns the JSON Schema (draft 2020-12) of documents, for editors. It knows the form of a document and no more:
// [Parse] and [Build] are the judges.
func Schema() []byte {
	s := schemaOf(reflect.TypeFor[Document](), noRules)
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["properties"].(map[string]any)["$schema"] = map[string]any{"description": "where this schema is, for editors"}
	s["title"] = "spillway policy document"
	s["patternProperties"] = map[string]any{"^x-": map[string]any{}}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil { // never: maps of texts and numbers
		panic("config: " + err.Error())
	}
	return append(text, '\n')
}

func structOf(t reflect.Type) map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, f := range fieldsOf(t).fields {
		p := schemaOf(t.Field(f.index).Type, f.rules)
		p["description"] = f.about
		properties[f.name] = p
		if f.rules.required {
			required = append(required, f.name)
		}
	}
	out := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

func schemaOf(t reflect.Type, r rules) map[string]any {
	if t.Kind() == reflect.Pointer {
		return schemaOf(t.Elem(), r)
	}
	text := map[string]any{"type": "string", "minLength": 1}
	switch t {
	case reflect.TypeFor[response.Set]():
		return map[string]any{"enum": setNames}
	case reflect.TypeFor[Limit]():
		return map[string]any{"anyOf": []any{text, map[string]any{"type": "integer", "minimum": 1}}} // the number alone, where windows are aligned
	case reflect.TypeFor[Duration]():
		d := map[string]any{"type": "string", "pattern": `^([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$`}
		if r.off {
			return map[string]any{"anyOf": []any{d, map[string]any{"const": off}}}
		}
		return d
	case reflect.TypeFor[Count]():
		return map[string]any{"anyOf": []any{map[string]any{"type": "integer", "minimum": 1, "maximum": limiter.MaxRate}, map[string]any{"const": off}}}
	case reflect.TypeFor[Statuses]():
		return map[string]any{"anyOf": []any{
			map[string]any{"type": "integer", "minimum": 100, "maximum": 599},
			map[string]any{"type": "string", "pattern": "^([1-5][xX][xX]|[1-5][0-9][0-9])$"},
		}}
	case reflect.TypeFor[Share]():
		forms := []any{map[string]any{"type": "number", "exclusiveMinimum": 0, "maximum": 1}, map[string]any{"type": "string", "pattern": `^[0-9]+(\.[0-9]+)?%?$`}}
		if r.off {
			forms = append(forms, map[string]any{"const": off})
		}
		return map[string]any{"anyOf": forms}
	case reflect.TypeFor[Number]():
		return map[string]any{"type": "number", "exclusiveMinimum": 0, "maximum": adaptive.MaxScale}
	case reflect.TypeFor[Chain]():
		one := schemaOf(reflect.TypeFor[Handler](), noRules)
		return map[string]any{"anyOf": append(one["anyOf"].([]any), map[string]any{"type": "array", "items": one, "maxItems": r.len})}
	case reflect.TypeFor[Handler]():
		fields := structOf(t)
		fields["minProperties"], fields["maxProperties"] = 1, 1
		var incomplete []string
		for name, p := range fields["properties"].(map[string]any) {
			if p.(map[string]any)["required"] != nil {
				incomplete = append(incomplete, name)
			}
		}
		slices.Sort(incomplete)
		text["not"] = map[string]any{"enum": incomplete}
		return map[string]any{"anyOf": []any{text, fields}}
	case reflect.TypeFor[List]():
		many := map[string]any{"type": "array", "items": text, "maxItems": r.len}
		return map[string]any{"anyOf": []any{text, many}}
	}
	switch t.Kind() {
	case reflect.Struct:
		return structOf(t)
	case reflect.Map:
		out := map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem(), noRules), "propertyNames": map[string]any{"minLength": 1}}
		if r.len > 0 {
			out["maxProperties"] = r.len
		}
		return out
	case reflect.Slice:
		out := map[string]any{"type": "array", "items": schemaOf(t.Elem(), noRules)}
		if r.len > 0 {
			out["maxItems"] = r.len
		}
		if r.filled {
			out["minItems"] = 1
		}
		return out
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int:
		out := map[string]any{"type": "integer"}
		if r.min != "" {
			out["minimum"], out["maximum"] = integer(r.min), integer(r.max)
		}
		if r.oneOf != nil {
			var values []int
			for _, s := range r.oneOf {
				n, _ := strconv.Atoi(s)
				values = append(values, n)
			}
			out["enum"] = values
		}
		return out
	}
	if r.oneOf != nil {
		return map[string]any{"enum": r.oneOf}
	}
	if r.len > 0 {
		text["maxLength"] = r.len
	}
	return text
}
