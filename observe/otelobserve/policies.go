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

// find returns the policy of e, which is a new one if there is none and room for it, and otherwise other. A policy that is
// gone stays so for limiters that know nothing of guards. All else is of a guard that has it still and binds nothing.
func (s *policies) find(e *limiter.Event) *policy {
	if e.Policy == "" {
		return s.none
	}
	late := e.Kind == limiter.EventLease || e.Kind == limiter.EventAdapt
	if p := s.known(e.Policy, late); p != nil {
		return p
	}
	if p := s.within(maxPolicies, clean(e.Policy), late); p != nil {
		return p
	}
	return s.within(maxPolicies+1, other, late)
}

// known returns the policy of that name if there is one that counts.
func (s *policies) known(name string, late bool) *policy {
	if p := s.read.Load().byName[name]; p != nil && (late || !p.gone.Load()) {
		return p
	}
	return nil
}

// within returns the policy, a new one if fewer than room have no guard; nil: there is no room for it.
func (s *policies) within(room int, name string, late bool) *policy {
	if p := s.known(name, late); p != nil || s.read.Load().loose >= room {
		return p
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.read.Load()
	if p := s.known(name, late); p != nil || r.loose >= room {
		return p
	}
	if r.byName[name] != nil {
		s.left--
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
	case p.gone.Load():
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
	p.gone.Store(true)
	if s.left++; s.left > maxPolicies {
		s.left--
		s.set(name, nil, 0)
	}
}
