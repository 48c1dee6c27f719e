package otelobserve

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/spillway-go/spillway/limiter"
)

// Gauges are read when metrics are collected: what is gone by then has no value, which an instrument that is written to
// could not take back.

const (
	keyLimiter attribute.Key = "limiter"
	keyHash    attribute.Key = "hash"
)

// breaker is a circuit breaker of a limiter.
type breaker struct {
	*word
	state atomic.Int64
}

func newBreaker(text string) *breaker { return &breaker{word: newWord(text, keyLimiter.String(text))} }

// memory is the table of a memory store.
type memory struct {
	mu       sync.Mutex
	keys     int64
	overflow int64 // the most that was told
}

func (o *Observer) sawMemory(ctx context.Context, e *limiter.Event) {
	var m *memory
	if closed := e.State != 0; closed {
		m = o.memories.drop(e.Name)
	} else {
		m = o.memories.get(e.Name)
	}
	if m == nil {
		return
	}
	m.mu.Lock()
	m.keys = e.Keys
	// Reports of a store may overtake one another, and two stores may have one name: going by the most that was told
	// counts nothing twice.
	more := max(0, e.Overflow-m.overflow)
	m.overflow += more
	m.mu.Unlock()
	o.overflow.Add(ctx, more)
}

// source is where configurations come from, and what it has: the document in force, and the one that is not, if it has
// another by now.
type source struct {
	mu        sync.Mutex
	good, bad string // "": none
}

// noDocument stands for the hash of a document that there is none of.
const noDocument = "none"

func (s *source) set(hash string, inForce bool) {
	if hash == "" {
		hash = noDocument
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	is := &s.bad
	if inForce {
		is, s.bad = &s.good, ""
	}
	if *is != hash {
		*is = clean(hash)
	}
}

// collectDocuments tells of each document whether it is in force, for any of the sources.
func (o *Observer) collectDocuments(to metric.Observer) {
	documents := map[string]int64{}
	for _, s := range o.sources.all() {
		s.mu.Lock()
		good, bad := s.good, s.bad
		s.mu.Unlock()
		if bad != "" {
			documents[bad] = max(documents[bad], 0)
		}
		if good != "" {
			documents[good] = 1
		}
	}
	for hash, inForce := range documents {
		to.ObserveInt64(o.configInfo, inForce, metric.WithAttributes(keyHash.String(hash)))
	}
}

// collect tells the values of all gauges.
func (o *Observer) collect(_ context.Context, to metric.Observer) error {
	now := time.Now()
	for _, p := range o.policies.read.Load().byName {
		p.collect(now, to)
	}
	for _, b := range o.breakers.all() {
		to.ObserveInt64(o.breakerState, b.state.Load(), b.set)
	}
	o.collectDocuments(to)
	memories := o.memories.all()
	if len(memories) == 0 {
		return nil
	}
	keys := int64(0)
	for _, m := range memories {
		m.mu.Lock()
		keys += m.keys
		m.mu.Unlock()
	}
	to.ObserveInt64(o.memoryKeys, keys)
	return nil
}

func (p *policy) collect(now time.Time, to metric.Observer) {
	if p.gone.Load() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock() // nothing below waits for anybody
	o := p.observer
	if !p.used.at.IsZero() {
		to.ObserveFloat64(o.quotaUsed, p.used.by(now), p.set)
	}
	p.collectLeases(now, to)
	if p.adapted == nil {
		return
	}
	to.ObserveFloat64(o.adaptiveLimit, p.adapted.limit, p.set)
	for _, reason := range p.adapted.reasons.all() {
		inForce := int64(0)
		if reason == p.adapted.now {
			inForce = 1
		}
		to.ObserveInt64(o.adaptiveReason, inForce, reason.set)
	}
}
