package otelobserve

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

const (
	maxTexts    = 32   // values of one attribute of one instrument and policy, beside those known beforehand
	maxPolicies = 1024 // policies that no guard has
	maxBytes    = 128  // of one value
)

// other is the value of all that there is no room for.
const other = "other"

// clean returns text as attributes may have it and as it may be kept: events are lent, and a message with invalid UTF-8 is
// refused by exporters as a whole.
func clean(text string) string {
	return strings.Clone(strings.ToValidUTF8(text[:min(len(text), maxBytes)], "\uFFFD"))
}

// table has what belongs to texts that others choose. Reading what is there, or has no room any more, takes no lock.
type table[V any] struct {
	room  int
	build func(text string) *V

	mu   sync.Mutex
	read atomic.Pointer[map[string]*V] // replaced, never changed
}

// newTable has room for maxTexts beside those that are known.
func newTable[V any](build func(text string) *V, known []string) *table[V] {
	t := &table[V]{room: maxTexts + len(known), build: build}
	m := make(map[string]*V, len(known))
	for _, text := range known {
		m[text] = build(text)
	}
	t.read.Store(&m)
	return t
}

func (t *table[V]) all() map[string]*V { return *t.read.Load() }

// get returns what belongs to text; nil: there is no room for it.
func (t *table[V]) get(text string) *V { return t.within(t.room, text) }

// orOther returns what belongs to text, or to all the rest.
func (t *table[V]) orOther(text string) *V {
	if v := t.get(text); v != nil {
		return v
	}
	return t.within(t.room+1, other)
}

func (t *table[V]) within(room int, text string) *V {
	m := t.all()
	if v, ok := m[text]; ok {
		return v
	}
	text = clean(text)
	if v, ok := m[text]; ok {
		return v
	}
	if len(m) >= room {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	m = t.all()
	if v, ok := m[text]; ok {
		return v
	}
	if len(m) >= room {
		return nil
	}
	next := maps.Clone(m)
	next[text] = t.build(text)
	t.read.Store(&next)
	return next[text]
}

// drop makes room of what belongs to text, and returns it; nil: there is nothing.
func (t *table[V]) drop(text string) *V {
	text = clean(text)
	t.mu.Lock()
	defer t.mu.Unlock()
	m := t.all()
	v := m[text]
	if v != nil {
		next := maps.Clone(m)
		delete(next, text)
		t.read.Store(&next)
	}
	return v
}

// word is a value of an attribute, ready for every instrument.
type word struct {
	text   string
	set    metric.MeasurementOption
	add    []metric.AddOption
	record []metric.RecordOption
}

func newWord(text string, kvs ...attribute.KeyValue) *word {
	set := metric.WithAttributeSet(attribute.NewSet(kvs...))
	return &word{text: text, set: set, add: []metric.AddOption{set}, record: []metric.RecordOption{set}}
}

// words is a table of the values of one attribute, beside which there are others that do not vary.
func words(key attribute.Key, known []string, beside ...attribute.KeyValue) *table[word] {
	return newTable(func(text string) *word {
		return newWord(text, append([]attribute.KeyValue{key.String(text)}, beside...)...)
	}, known)
}
