package config

import (
	"reflect"
	"strconv"
	"strings"
	"sync"
)

// rules are what the tag of a field says of its value.
type rules struct {
	required bool
	secret   bool
	off      bool // "off" is a value
	filled   bool // an empty list is none
	min, max string
	len      int
	oneOf    []string
}

var noRules rules

// field is one field of a part of the document.
type field struct {
	name  string
	about string
	index int
	rules rules
}

type fieldSet struct {
	fields []field
	byName map[string]*field
	names  []string
}

var fieldSets sync.Map // reflect.Type → *fieldSet

func fieldsOf(t reflect.Type) *fieldSet {
	if x, ok := fieldSets.Load(t); ok {
		return x.(*fieldSet)
	}
	s := &fieldSet{byName: make(map[string]*field)}
	for k := range t.NumField() {
		f := t.Field(k)
		if name := f.Tag.Get("yaml"); name != "" {
			s.fields = append(s.fields, field{name: name, about: f.Tag.Get("about"), index: k, rules: parseRules(f.Tag.Get("rules"))})
		}
	}
	for k := range s.fields {
		s.byName[s.fields[k].name] = &s.fields[k]
		s.names = append(s.names, s.fields[k].name)
	}
	x, _ := fieldSets.LoadOrStore(t, s)
	return x.(*fieldSet)
}

func parseRules(tag string) (r rules) {
	for rule := range strings.SplitSeq(tag, ",") {
		name, value, _ := strings.Cut(rule, "=")
		switch name {
		case "":
		case "required":
			r.required = true
		case "secret":
			r.secret = true
		case off:
			r.off = true
		case "filled":
			r.filled = true
		case "min":
			r.min = value
		case "max":
			r.max = value
		case "len":
			r.len, _ = strconv.Atoi(value)
		case "oneof":
			r.oneOf = strings.Split(value, "|")
		default:
			panic("config: unknown rule " + rule)
		}
	}
	return r
}
