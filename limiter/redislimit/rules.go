package redislimit

import (
	"sync"
	"sync/atomic"

	"github.com/spillway-go/spillway/limiter"
)

// maxRules bounds the prepared limits that are kept: plans and overrides are few, and limits that move leave theirs behind.
const maxRules = 4096

// ruleTable keeps limits prepared.
type ruleTable struct {
	last atomic.Pointer[rule] // most calls ask for the one that was asked for before
	mu   sync.RWMutex
	made map[limiter.Limit]*rule
}

// get returns the rule of a limit, or an error wrapping [limiter.ErrInvalid].
func (t *ruleTable) get(l limiter.Limit) (*rule, error) {
	if r := t.last.Load(); r != nil && r.limit == l {
		return r, nil
	}
	t.mu.RLock()
	r := t.made[l]
	t.mu.RUnlock()
	if r != nil {
		t.last.Store(r)
		return r, nil
	}
	r, err := newRule(l)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.made) >= maxRules || t.made == nil {
		t.made = make(map[limiter.Limit]*rule)
	}
	t.made[l] = r
	return r, nil
}
