package otelobserve

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/spillway-go/spillway/limiter"
)

// policies are those of guards, and those that only events tell of. Finding one that is there takes no lock.
type policies struct {
	observer *Observer
	none     *policy // what belongs to no policy

	mu   sync.Mutex
	left int                    // policies that are gone and still here, lest a late word of a limiter brings them back
	read atomic.Pointer[roster] // replaced, never changed
}

type roster struct {
	byName map[string]*policy
	loose  int // how many of them no guard has
}

func (s *policies) init(o *Observer) {
	s.observer = o
	s.none = newPolicy(o, "")
	s.read.Store(&roster{byName: map[string]*policy{}})
}

// find returns the policy of that name, which is a new one if there is none and room for it, and otherwise other.
func (s *policies) find(name string) *policy {
	if name == "" {
		return s.none
	}
	r := s.read.Load()
	if p, ok := r.byName[name]; ok {
		return p
	}
	if p := s.within(maxPolicies, name); p != nil {
		return p
	}
	return s.within(maxPolicies+1, other)
}

// within returns the policy, a new one if fewer than room have no guard; nil: there is no room for it.
func (s *policies) within(room int, name string) *policy {
	name = clean(name)
	if r := s.read.Load(); r.loose >= room || r.byName[name] != nil {
		return r.byName[name]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.read.Load()
	if r.loose >= room || r.byName[name] != nil {
		return r.byName[name]
	}
	p := newPolicy(s.observer, name)
	s.set(name, p, 1)
	return p
}

// set makes p the policy of that name, nil: nobody. The lock is held.
func (s *policies) set(name string, p *policy, loose int) {
	r := s.read.Load()
	next := &roster{byName: maps.Clone(r.byName), loose: r.loose + loose}
	if next.byName[name] = p; p == nil {
		delete(next.byName, name)
	}
	s.read.Store(next)
}

func (s *policies) bind(name string) (limiter.Observer, func()) {
	if name == "" {
		return s.none, func() {}
	}
	name = clean(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.read.Load().byName[name]
	switch {
	case p == nil:
		p = newPolicy(s.observer, name)
		s.set(name, p, 0)
	case p.isGone():
		s.left--
		p = newPolicy(s.observer, name)
		s.set(name, p, 0)
	case p.guards == 0:
		s.set(name, p, -1)
	}
	p.guards++
	return p, sync.OnceFunc(func() { s.release(name, p) })
}

func (s *policies) release(name string, p *policy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.guards--; p.guards > 0 {
		return
	}
	p.mu.Lock()
	p.gone = true
	p.mu.Unlock()
	if s.left++; s.left > maxPolicies {
		s.left--
		s.set(name, nil, 0)
	}
}

func (p *policy) isGone() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone
}
