package limitertest

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// Model is the plainest correct limiter: a map of states behind one mutex, decided by the pure steps of package limiter.
// It never forgets a key and is meant as the oracle of tests, not for production. Its methods are safe for concurrent use.
type Model struct {
	mu    sync.Mutex
	fixed time.Time // what the clock shows; zero: time.Now
	rules map[limiter.Limit]*limiter.Rule
	state map[modelKey]*limiter.State
}

// modelKey is one counter: another algorithm is another counter.
type modelKey struct {
	key       limiter.Key
	algorithm limiter.Algorithm
}

// NewModel returns a Model whose clock is time.Now until [Model.SetClock] is called.
func NewModel() *Model {
	return &Model{rules: map[limiter.Limit]*limiter.Rule{}, state: map[modelKey]*limiter.State{}}
}

// SetClock stops the model's own clock at an instant; the zero time lets it follow time.Now again. A clock set back by
// more than a second is a clock that was stepped: see the rules of package limiter.
func (m *Model) SetClock(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fixed = at
}

// Allow implements [limiter.Limiter].
func (m *Model) Allow(ctx context.Context, key limiter.Key, limit limiter.Limit, n int) (limiter.Decision, error) {
	takes := []limiter.Take{{Key: key, Limit: limit, N: n}}
	if _, err := m.AllowAll(ctx, time.Time{}, takes); err != nil {
		return limiter.Decision{}, err
	}
	return takes[0].Decision, nil
}

// part is the takes of one call that count together.
type part struct {
	rule     *limiter.Rule
	state    *limiter.State
	key      modelKey
	shadow   bool
	n        int
	maxDelay time.Duration
	decision limiter.Decision
}

// AllowAll implements [limiter.Batcher].
func (m *Model) AllowAll(ctx context.Context, at time.Time, takes []limiter.Take) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	parts, index, err := m.parts(takes)
	if err != nil {
		return false, err
	}
	now := m.reading(at)
	allowed, never := true, false
	for _, p := range parts {
		p.decision = p.rule.Peek(p.state, now, p.n, p.maxDelay)
		if !p.decision.Allowed && !p.shadow {
			allowed = false
			never = never || p.decision.RetryAfter == limiter.Never
		}
	}
	for _, shadow := range []bool{false, true} { // a shadow take may have the key of a real one, which comes first
		for _, p := range parts {
			if p.shadow == shadow {
				p.settle(now, allowed, never)
			}
		}
	}
	for k := range takes {
		takes[k].Decision = parts[index[k]].decision
	}
	return allowed, nil
}

// settle books a part of an allowed call; of a refused one it only lets the part learn what a refusal may.
func (p *part) settle(now limiter.Reading, allowed, never bool) {
	switch {
	case p.n == 0:
	case allowed && p.decision.Allowed:
		p.decision = p.rule.Take(p.state, now, p.n, p.maxDelay)
	case p.decision.RetryAfter == limiter.Never || never:
		if p.decision.Allowed {
			p.decision = p.rule.Peek(p.state, now, 0, 0)
		}
	default:
		if p.decision.Allowed { // not the cause
			p.decision = p.rule.Peek(p.state, now, 0, 0)
		}
		p.rule.Learn(p.state, now)
	}
}

// parts checks the takes and puts those together that count together; index says which part a take belongs to.
func (m *Model) parts(takes []limiter.Take) (parts []*part, index []int, err error) {
	queues := 0
	for k, t := range takes {
		if t.N < 0 {
			return nil, nil, fmt.Errorf("%w: take %d: n %d is negative", limiter.ErrInvalid, k, t.N)
		}
		rule, err := m.rule(t.Limit)
		if err != nil {
			return nil, nil, fmt.Errorf("take %d: %w", k, err)
		}
		key, at := modelKey{t.Key, t.Limit.Algorithm}, -1
		for i, p := range parts {
			if p.key == key && p.rule != rule {
				return nil, nil, fmt.Errorf("%w: take %d: two limits for one key", limiter.ErrInvalid, k)
			}
			if p.key == key && p.shadow == t.Shadow {
				at = i
			}
		}
		if at < 0 {
			at = len(parts)
			parts = append(parts, &part{rule: rule, state: m.stateOf(key), key: key, shadow: t.Shadow, maxDelay: t.MaxDelay})
		}
		p := parts[at]
		if t.N > 0 && p.n == 0 && !t.Shadow && t.Limit.Algorithm == limiter.LeakyBucket {
			if queues++; queues > 1 {
				return nil, nil, fmt.Errorf("%w: take %d: two leaky buckets cannot leave at one instant", limiter.ErrInvalid, k)
			}
		}
		if p.n += t.N; p.n < 0 {
			p.n = int(^uint(0) >> 1) // the sum is beyond every quota
		}
		p.maxDelay = min(p.maxDelay, t.MaxDelay)
		index = append(index, at)
	}
	return parts, index, nil
}

// Refund implements [limiter.Refunder]. A take that booked nothing gives nothing back.
func (m *Model) Refund(ctx context.Context, at time.Time, t *limiter.Take) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.state[modelKey{t.Key, t.Limit.Algorithm}]; s != nil && t.Decision.Mark != 0 {
		s.Refund(m.reading(at), t.N, t.Decision.Mark)
	}
	return nil
}

// Reset implements [limiter.Resetter].
func (m *Model) Reset(ctx context.Context, key limiter.Key) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range limiter.Algorithms() {
		delete(m.state, modelKey{key, a})
	}
	return nil
}

// reading is the model's own clock, or an instant of the caller's.
func (m *Model) reading(at time.Time) limiter.Reading {
	switch {
	case !at.IsZero():
		return limiter.Reading{Now: at.UnixNano(), Caller: true}
	case !m.fixed.IsZero():
		return limiter.Reading{Now: m.fixed.UnixNano()}
	}
	return limiter.Reading{Now: time.Now().UnixNano()}
}

func (m *Model) rule(l limiter.Limit) (*limiter.Rule, error) {
	if r := m.rules[l]; r != nil {
		return r, nil
	}
	r, err := limiter.NewRule(l)
	if err != nil {
		return nil, err
	}
	m.rules[l] = r
	return r, nil
}

func (m *Model) stateOf(key modelKey) *limiter.State {
	s := m.state[key]
	if s == nil {
		s = new(limiter.State)
		m.state[key] = s
	}
	return s
}

var (
	_ limiter.Batcher  = (*Model)(nil)
	_ limiter.Refunder = (*Model)(nil)
	_ limiter.Resetter = (*Model)(nil)
	_ limiter.Limiter  = (*Model)(nil)
)
