package limitertest_test

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/limitertest"
)

// mutant is a model with a fault: each hook replaces a part of it.
type mutant struct {
	*limitertest.Model
	mu sync.Mutex

	ctx    func(context.Context) context.Context
	before func(m *mutant, at time.Time, t *limiter.Take)               // changes a take on its way in
	after  func(m *mutant, at time.Time, t *limiter.Take)               // changes its decision on the way out
	all    func(*mutant, context.Context, []limiter.Take) (bool, error) // decides instead
	refund func(*mutant, context.Context, time.Time, *limiter.Take) error
	reset  func(*mutant, context.Context, limiter.Key) error
	err    func(error) error
	now    func(m *mutant, at time.Time) time.Time

	newest time.Time
	credit atomic.Int64
	used   atomic.Int64
}

func (m *mutant) Allow(ctx context.Context, key limiter.Key, limit limiter.Limit, n int) (limiter.Decision, error) {
	takes := []limiter.Take{{Key: key, Limit: limit, N: n}}
	_, err := m.AllowAll(ctx, time.Time{}, takes)
	return takes[0].Decision, err
}

func (m *mutant) AllowAll(ctx context.Context, at time.Time, takes []limiter.Take) (bool, error) {
	if m.ctx != nil {
		ctx = m.ctx(ctx)
	}
	if m.now != nil {
		m.mu.Lock()
		at = m.now(m, at)
		m.mu.Unlock()
	}
	if m.all != nil {
		return m.all(m, ctx, takes)
	}
	if m.before != nil || m.after != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
	}
	asked := append([]limiter.Take(nil), takes...)
	if m.before != nil {
		for k := range takes {
			m.before(m, at, &takes[k])
		}
	}
	_, err := m.Model.AllowAll(ctx, at, takes)
	if err != nil {
		if m.err != nil {
			err = m.err(err)
		}
		return false, err
	}
	ok := true
	for k := range takes {
		asked[k].Decision = takes[k].Decision
		if asked[k].Decision.Limit == takes[k].Limit {
			asked[k].Decision.Limit = asked[k].Limit
		}
		if m.after != nil {
			m.after(m, at, &asked[k])
		}
		ok = ok && (asked[k].Decision.Allowed || asked[k].Shadow)
	}
	copy(takes, asked)
	return ok, nil
}

func (m *mutant) Refund(ctx context.Context, at time.Time, t *limiter.Take) error {
	if m.refund != nil {
		return m.refund(m, ctx, at, t)
	}
	return m.Model.Refund(ctx, at, t)
}

func (m *mutant) Reset(ctx context.Context, key limiter.Key) error {
	if m.reset != nil {
		return m.reset(m, ctx, key)
	}
	return m.Model.Reset(ctx, key)
}

// again takes from the model beside the call that is being answered.
func (m *mutant) again(at time.Time, t *limiter.Take, n int) {
	_, _ = m.Model.AllowAll(context.Background(), at, []limiter.Take{{Key: t.Key, Limit: t.Limit, N: n, MaxDelay: math.MaxInt64}})
}

func grow(t *limiter.Take, by int) {
	switch {
	case t.Limit.Rate == 0: // Unlimited, DenyAll and what is invalid anyway
	case t.Limit.Algorithm == limiter.TokenBucket || t.Limit.Algorithm == limiter.LeakyBucket:
		if t.Limit.Burst = t.Limit.Quota() + by; t.Limit.Burst < 1 || t.Limit.Burst > limiter.MaxRate {
			t.Limit.Burst -= by
		}
	case t.Limit.Rate+by >= 1 && t.Limit.Rate+by <= limiter.MaxRate && (t.Limit.Algorithm != limiter.SlidingLog || t.Limit.Rate+by <= limiter.MaxLogRate):
		t.Limit.Rate += by
	}
}

// Each of these limiters has one fault, and each fault has stood in a published limiter or in a first attempt at one.
var mutants = []struct {
	name   string
	caught string // the rule that is there for it
	fault  mutant
}{
	{"one too many", "whole-quota", mutant{before: func(_ *mutant, _ time.Time, t *limiter.Take) { grow(t, 1) }}},
	{"one too few", "whole-quota", mutant{before: func(_ *mutant, _ time.Time, t *limiter.Take) { grow(t, -1) }}},
	{"charges refusals", "refusal-takes-nothing", mutant{after: func(m *mutant, at time.Time, t *limiter.Take) {
		if !t.Decision.Allowed {
			m.again(at, t, 1)
		}
	}}},
	{"a refusal empties the key", "refusal-takes-nothing", mutant{after: func(m *mutant, at time.Time, t *limiter.Take) {
		if !t.Decision.Allowed {
			m.again(at, t, t.Decision.Remaining)
		}
	}}},
	{"a peek takes one", "peek-writes-nothing", mutant{after: func(m *mutant, at time.Time, t *limiter.Take) {
		if t.N == 0 {
			m.again(at, t, 1)
		}
	}}},
	{"a peek of an empty key is refused", "peek-writes-nothing", mutant{after: func(_ *mutant, _ time.Time, t *limiter.Take) {
		if t.N == 0 && t.Decision.Remaining == 0 && t.Limit != limiter.DenyAll {
			t.Decision.Allowed, t.Decision.RetryAfter = false, t.Decision.NextAfter
		}
	}}},
	{"remaining 0 on a refusal", "refusal-takes-nothing", mutant{after: func(_ *mutant, _ time.Time, t *limiter.Take) {
		if !t.Decision.Allowed {
			t.Decision.Remaining = 0
		}
	}}},
	{"remaining before the take", "first-take", mutant{after: func(_ *mutant, _ time.Time, t *limiter.Take) {
		if t.Decision.Allowed && t.N > 0 {
			t.Decision.Remaining = min(t.Decision.Remaining+t.N, t.Limit.Quota())
		}
	}}},
	{"never with made-up numbers", "never", mutant{after: func(_ *mutant, _ time.Time, t *limiter.Take) {
		if t.Decision.RetryAfter == limiter.Never {
			t.Decision.Remaining, t.Decision.ResetAfter, t.Decision.NextAfter = t.Limit.Quota(), 0, 0
		}
	}}},
	{"the whole quota is never", "never", mutant{after: func(_ *mutant, _ time.Time, t *limiter.Take) {
		if !t.Decision.Allowed && t.N == t.Limit.Quota() {
			t.Decision.RetryAfter = limiter.Never
		}
	}}},
	{"over the quota waits", "never", mutant{after: func(_ *mutant, _ time.Time, t *limiter.Take) {
		if t.Decision.RetryAfter == limiter.Never {
			t.Decision.RetryAfter = time.Hour
		}
	}}},
	{"long waits wrap", "long-waits", mutant{after: func(_ *mutant, _ time.Time, t *limiter.Take) {
		if t.Decision.ResetAfter >= 9_000_000_000_000_000_000 {
			t.Decision.ResetAfter = t.Decision.NextAfter
		}
	}}},
	{"floating point waits", "retry-after", mutant{after: func(_ *mutant, _ time.Time, t *limiter.Take) {
		if !t.Decision.Allowed && t.Decision.RetryAfter != limiter.Never {
			t.Decision.RetryAfter = time.Duration(math.Round(t.Decision.RetryAfter.Seconds()*100)) * 10 * time.Millisecond
			t.Decision.RetryAfter = max(t.Decision.RetryAfter, 1)
		}
	}}},
	{"waits one nanosecond short", "retry-after", mutant{after: func(_ *mutant, _ time.Time, t *limiter.Take) {
		if t.Decision.RetryAfter > 1 && t.Decision.RetryAfter != limiter.Never {
			t.Decision.RetryAfter--
		}
	}}},
	{"waits one nanosecond long", "retry-after", mutant{after: func(_ *mutant, _ time.Time, t *limiter.Take) {
		if !t.Decision.Allowed && t.Decision.RetryAfter != limiter.Never {
			t.Decision.RetryAfter++
		}
	}}},
	{"always wait a second", "retry-after", mutant{after: func(_ *mutant, _ time.Time, t *limiter.Take) {
		if !t.Decision.Allowed && t.Decision.RetryAfter != limiter.Never {
			t.Decision.RetryAfter = time.Second
		}
	}}},
	{"reset is one period", "reset-after", mutant{after: func(_ *mutant, _ time.Time, t *limiter.Take) {
		if t.Decision.ResetAfter > 0 {
			t.Decision.ResetAfter = max(t.Limit.Period, t.Decision.NextAfter)
		}
	}}},
	{"next is reset", "next-after", mutant{after: func(_ *mutant, _ time.Time, t *limiter.Take) {
		t.Decision.NextAfter = t.Decision.ResetAfter
	}}},
	{"refuses now and then", "promise-token-bucket", mutant{before: func(m *mutant, _ time.Time, t *limiter.Take) {
		if m.used.Add(1)%50 == 0 && t.N > 0 && t.N < t.Limit.Quota() {
			t.N = t.Limit.Quota()
		}
	}}},
	{"idling refills", "idle", mutant{before: func(m *mutant, at time.Time, t *limiter.Take) {
		if m.newest.Add(10 * time.Minute).Before(at) {
			_ = m.Model.Reset(context.Background(), t.Key)
		}
		m.newest = at
	}}},
	{"no queue", "queue-spacing", mutant{after: func(_ *mutant, _ time.Time, t *limiter.Take) { t.Decision.Delay = 0 }}},
	{"any delay will do", "queue-max-delay", mutant{before: func(_ *mutant, _ time.Time, t *limiter.Take) { t.MaxDelay = math.MaxInt64 }}},
	{"a clock that goes back starts afresh", "late-reading", mutant{before: func(m *mutant, at time.Time, t *limiter.Take) {
		if at.Before(m.newest) {
			_ = m.Model.Reset(context.Background(), t.Key)
		}
		m.newest = at
	}}},
	{"a late reading is a step", "late-reading-waits", mutant{now: func(m *mutant, at time.Time) time.Time {
		if !at.IsZero() {
			m.SetClock(at)
		}
		return time.Time{}
	}}},
	{"late readings are moved up", "late-reading-waits", mutant{now: func(m *mutant, at time.Time) time.Time {
		if at.After(m.newest) {
			m.newest = at
		}
		if at.IsZero() {
			return at
		}
		return m.newest
	}}},
	{"a new limit is a new key", "relimit-acts-at-once", mutant{before: func(_ *mutant, _ time.Time, t *limiter.Take) {
		t.Key.ID += t.Limit.String()
	}}},
	{"a new limit is ignored", "relimit-acts-at-once", mutant{before: relimit(false)}},
	{"a new limit waits for a take that passes", "relimit-refused-take", mutant{before: relimit(true)}},
	{"a refund lifts over the quota", "refund-over-quota", mutant{
		refund: func(m *mutant, _ context.Context, _ time.Time, t *limiter.Take) error {
			m.credit.Add(int64(t.N))
			return nil
		},
		before: func(m *mutant, _ time.Time, t *limiter.Take) {
			if t.N > 0 && m.credit.Load() >= int64(t.N) {
				m.credit.Add(-int64(t.N))
				t.Key.ID += " credit " + time.Now().String()
			}
		},
	}},
	{"a refund is a reset", "refund", mutant{refund: func(m *mutant, ctx context.Context, _ time.Time, t *limiter.Take) error {
		return m.Model.Reset(ctx, t.Key)
	}}},
	{"a refund goes to whatever is charged", "refund-window-over", mutant{refund: func(m *mutant, ctx context.Context, at time.Time, t *limiter.Take) error {
		u := *t
		u.Decision.Mark = at.UnixNano()
		return m.Model.Refund(ctx, at, &u)
	}}},
	{"a refund of nothing", "refund-nothing", mutant{refund: func(m *mutant, ctx context.Context, at time.Time, t *limiter.Take) error {
		u := *t
		if u.Decision.Mark == 0 {
			u.Decision.Mark = 1
		}
		return m.Model.Refund(ctx, at, &u)
	}}},
	{"no refund", "refund", mutant{refund: func(*mutant, context.Context, time.Time, *limiter.Take) error { return nil }}},
	{"no reset", "reset", mutant{reset: func(*mutant, context.Context, limiter.Key) error { return nil }}},
	{"reset of the space", "reset", mutant{
		before: func(_ *mutant, _ time.Time, t *limiter.Take) { t.Key.ID = t.Key.ID[:min(1, len(t.Key.ID))] },
		reset: func(m *mutant, ctx context.Context, k limiter.Key) error {
			k.ID = k.ID[:min(1, len(k.ID))]
			return m.Model.Reset(ctx, k)
		},
	}},
	{"spaces are one", "keys-independent", mutant{before: func(_ *mutant, _ time.Time, t *limiter.Take) { t.Key.Space = "" }}},
	{"identities are folded", "keys-independent", mutant{before: func(_ *mutant, _ time.Time, t *limiter.Take) { t.Key.ID = strings.ToLower(t.Key.ID) }}},
	{"identities are trimmed", "keys-independent", mutant{before: func(_ *mutant, _ time.Time, t *limiter.Take) { t.Key.ID = strings.TrimSpace(t.Key.ID) }}},
	{"identities end at NUL", "keys-independent", mutant{before: func(_ *mutant, _ time.Time, t *limiter.Take) {
		t.Key.ID, _, _ = strings.Cut(t.Key.ID, "\x00")
	}}},
	{"identities are cut", "keys-independent", mutant{before: func(_ *mutant, _ time.Time, t *limiter.Take) { t.Key.ID = t.Key.ID[:min(1024, len(t.Key.ID))] }}},
	{"braces are dropped", "keys-independent", mutant{before: func(_ *mutant, _ time.Time, t *limiter.Take) { t.Key.ID = strings.Trim(t.Key.ID, "{}") }}},
	{"one take after the other", "batch-all-or-nothing", mutant{all: func(m *mutant, ctx context.Context, takes []limiter.Take) (bool, error) {
		ok := true
		for k := range takes {
			one, err := m.Model.AllowAll(ctx, time.Time{}, takes[k:k+1])
			if err != nil {
				return false, err
			}
			ok = ok && one
		}
		return ok, nil
	}}},
	{"stops at the first refusal", "batch-all-or-nothing", mutant{all: func(m *mutant, ctx context.Context, takes []limiter.Take) (bool, error) {
		for k := range takes {
			if ok, err := m.Model.AllowAll(ctx, time.Time{}, takes[k:k+1]); !ok || err != nil {
				return false, err
			}
		}
		return true, nil
	}}},
	{"shadows count", "batch-shadow", mutant{before: func(_ *mutant, _ time.Time, t *limiter.Take) { t.Shadow = false }}},
	{"shadows are not booked", "batch-shadow", mutant{before: func(_ *mutant, _ time.Time, t *limiter.Take) {
		if t.Shadow && t.N < 6 && t.Limit != limiter.DenyAll {
			t.N = 0
		}
	}}},
	{"equal keys count apart", "batch-equal-keys", mutant{all: func(m *mutant, ctx context.Context, takes []limiter.Take) (bool, error) {
		ok, err := m.Model.AllowAll(ctx, time.Time{}, nil)
		for k := range takes {
			d, err := m.Model.Allow(ctx, takes[k].Key, takes[k].Limit, 0)
			if err != nil {
				return false, err
			}
			ok = ok && d.Remaining >= takes[k].N
		}
		for k := range takes {
			if !ok {
				takes[k].Decision = limiter.Decision{Limit: takes[k].Limit, RetryAfter: 1, ResetAfter: 1}
				continue
			}
			if _, err = m.Model.AllowAll(ctx, time.Time{}, takes[k:k+1]); err != nil {
				return false, err
			}
		}
		return ok, err
	}}},
	{"a zero limit passes", "invalid-limit", mutant{before: func(_ *mutant, _ time.Time, t *limiter.Take) {
		if t.Limit == (limiter.Limit{}) {
			t.Limit = limiter.Unlimited
		}
	}}},
	{"rate 0 is unlimited", "invalid-limit", mutant{before: func(_ *mutant, _ time.Time, t *limiter.Take) {
		if t.Limit.Rate == 0 && t.Limit.Period > 0 {
			t.Limit = limiter.Unlimited
		}
	}}},
	{"a negative n gives", "invalid-n", mutant{before: func(m *mutant, at time.Time, t *limiter.Take) {
		if t.N < 0 {
			_ = m.Model.Reset(context.Background(), t.Key)
			t.N = 0
		}
	}}},
	{"a cancelled take is made", "cancelled", mutant{ctx: func(context.Context) context.Context { return context.Background() }}},
	{"a client that left is an outage", "cancelled", mutant{err: func(err error) error {
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			return errors.Join(limiter.ErrUnavailable, err)
		}
		return err
	}}},
	{"invalid is unavailable", "invalid-limit", mutant{err: func(err error) error { return errors.Join(limiter.ErrUnavailable) }}},
	{"read, decide, write", "contention", mutant{all: func(m *mutant, ctx context.Context, takes []limiter.Take) (bool, error) {
		if len(takes) != 1 || takes[0].N != 1 {
			return m.Model.AllowAll(ctx, time.Time{}, takes)
		}
		used := m.used.Load()
		runtime.Gosched()
		if used >= int64(takes[0].Limit.Quota()) {
			takes[0].Decision = limiter.Decision{Limit: takes[0].Limit, RetryAfter: 1, ResetAfter: 1, NextAfter: 1}
			return false, nil
		}
		m.used.Store(used + 1)
		takes[0].Decision = limiter.Decision{Allowed: true, Limit: takes[0].Limit, ResetAfter: 1, NextAfter: 1, Mark: 1}
		return true, nil
	}}},
	{"another limit is reported", "first-take", mutant{after: func(_ *mutant, _ time.Time, t *limiter.Take) { t.Decision.Limit.Rate++ }}},
	{"the delay of a refusal", "queue-max-delay", mutant{after: func(_ *mutant, _ time.Time, t *limiter.Take) {
		if !t.Decision.Allowed && t.Limit.Algorithm == limiter.LeakyBucket {
			t.Decision.Delay = t.Decision.RetryAfter
		}
	}}},
	{"Allow lets wait", "queue-allow", mutant{before: func(_ *mutant, at time.Time, t *limiter.Take) {
		if at.IsZero() {
			t.MaxDelay = math.MaxInt64
		}
	}}},
}

// relimit holds the first limit of a key: for good, or until a take passes.
func relimit(untilPassed bool) func(*mutant, time.Time, *limiter.Take) {
	first := map[limiter.Key]limiter.Limit{}
	return func(m *mutant, at time.Time, t *limiter.Take) {
		key := limiter.Key{Space: t.Key.Space + t.Limit.Algorithm.String(), ID: t.Key.ID}
		held, ok := first[key]
		switch {
		case !ok:
			first[key] = t.Limit
		case !untilPassed:
			t.Limit = held
		case held != t.Limit && t.N > 0:
			probe := []limiter.Take{{Key: t.Key, Limit: held, N: 0}}
			if _, err := m.Model.AllowAll(context.Background(), at, probe); err == nil && probe[0].Decision.Remaining < t.N {
				t.Limit = held
			} else {
				first[key] = t.Limit
			}
		}
	}
}

// A suite that cannot fail proves nothing: every mutant fails the rule that is there for its fault.
func TestMutantsAreCaught(t *testing.T) {
	for k := range mutants {
		x := &mutants[k]
		t.Run(x.name, func(t *testing.T) {
			failed := limitertest.Failures(t, func(*testing.T) limiter.Limiter {
				return &mutant{
					Model: limitertest.NewModel(), ctx: x.fault.ctx, before: x.fault.before, after: x.fault.after,
					all: x.fault.all, refund: x.fault.refund, reset: x.fault.reset, err: x.fault.err, now: x.fault.now,
				}
			}, limitertest.Exact, x.caught)
			require.Contains(t, failed, x.caught)
		})
	}
}
