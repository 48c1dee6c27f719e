package middleware

import (
	"sync"
	"sync/atomic"
)

// states keeps what outlives a snapshot.
type states struct {
	mu sync.Mutex
	m  map[string]*policyState
}

func (s *states) of(p *policy) *policyState {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil {
		s.m = make(map[string]*policyState)
	}
	x := s.m[p.space]
	if x == nil {
		x = new(policyState)
		s.m[p.space] = x
	}
	return x
}

// policyState is what outlives a change of the policies: it belongs to the policy's name and stage.
type policyState struct {
	undecided atomic.Bool // no decision could be made at the last request
	keyless   atomic.Bool // it has been told that requests have no key
	malformed atomic.Bool // and that some are malformed
	inflight  inflight
}
