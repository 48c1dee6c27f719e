package middleware

import (
	"sync"
	"sync/atomic"
	"time"
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

// prune forgets the states of policies that are gone and have no request in flight, once there are many.
func (s *states) prune(now *snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.m) < 2*len(now.policies)+64 {
		return
	}
	keep := make(map[*policyState]bool, len(now.policies))
	for _, p := range now.policies {
		keep[p.state] = true
	}
	for space, x := range s.m {
		if !keep[x] && x.inflight.empty() {
			delete(s.m, space)
		}
	}
}

// calm is how long a policy has to decide again before that is told: where some of its keys cannot be decided and others
// can, as on a Cluster without one of its servers, every request would be a change.
const calm = time.Second

var began = time.Now()

// fails notes a failure, and reports whether it is the first of a row.
func (s *policyState) fails() bool {
	s.failed.Store(int64(time.Since(began)))
	return s.undecided.CompareAndSwap(false, true)
}

// recovers reports whether a row of failures has ended.
func (s *policyState) recovers() bool {
	return s.undecided.Load() && int64(time.Since(began))-s.failed.Load() >= int64(calm) && s.undecided.CompareAndSwap(true, false)
}

// policyState is what outlives a change of the policies: it belongs to the policy's name and stage.
type policyState struct {
	undecided atomic.Bool  // it has been told that no decision can be made
	failed    atomic.Int64 // when that was so last, in nanoseconds since began
	keyless   atomic.Bool  // it has been told that requests have no key
	malformed atomic.Bool  // and that some are malformed
	inflight  inflight
}
