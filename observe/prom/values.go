package prom

import (
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	other     = "other"
	maxValues = 32  // of one label beside another, beyond those that are known
	maxLabel  = 128 // bytes
)

// label makes a text fit for a label: one that is no UTF-8 would fail.
func label(s string) string {
	if len(s) > maxLabel {
		s = s[:maxLabel]
	}
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	return s
}

// values are the handles of one metric by the value of its last label. Values beyond the bound are other.
type values[T any] struct {
	known   map[string]T // from the beginning
	handles sync.Map     // value → T
	n       atomic.Int32
	mu      sync.Mutex
	make    func(value string) T
}

// counters are values that count.
type counters = values[prometheus.Counter]

// init makes the handles of values that are known: their series begin at 0, so that the first failure is a rise.
func (v *values[T]) init(handle func(value string) T, known ...string) {
	v.make, v.known = handle, make(map[string]T, len(known))
	for _, s := range known {
		v.known[s] = handle(s)
	}
}

func (v *values[T]) of(value string) T {
	if x, ok := v.known[value]; ok {
		return x
	}
	if x, ok := v.handles.Load(value); ok {
		return x.(T)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.n.Load() >= maxValues {
		value = other
	}
	if x, ok := v.handles.Load(value); ok {
		return x.(T)
	}
	v.n.Add(1)
	x := v.make(label(value))
	v.handles.Store(value, x)
	return x
}
