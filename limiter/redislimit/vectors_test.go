package redislimit_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/limitertest"
	"github.com/spillway-go/spillway/limiter/redislimit"
)

const forever = time.Duration(math.MaxInt64)

// The suite makes the traces of callers' clocks. Here are all, those that step the server's clock too, by that clock; and keys
// end by it, so that no trace shows what a key that ended too early would.
func TestTraces(t *testing.T) {
	ran := 0
	for _, trace := range limitertest.Traces() {
		t.Run(trace.ID, func(t *testing.T) {
			ran++
			f := &follower{t: t, v: newVirtual(t), caller: trace.CallerClock}
			f.l = f.v.open(t, redislimit.Config{CallerClock: trace.CallerClock})
			for k, s := range trace.Steps {
				if !f.step(s, fmt.Sprintf("%s: step %d %s", trace.Note, k, s.Op)) {
					return
				}
			}
		})
	}
	require.GreaterOrEqual(t, ran, 227)
}

// follower is one trace on its way.
type follower struct {
	t      *testing.T
	v      *virtual
	l      *redislimit.Limiter
	caller bool
	newest int64
}

// step reports whether the rest of the trace says something still.
func (f *follower) step(s limitertest.Step, when string) bool {
	ctx, at := f.t.Context(), time.Unix(0, s.At)
	if f.newest = max(f.newest, s.At); f.caller {
		f.v.set(f.newest) // the server's clock only ends keys: as fast as the fastest
	} else {
		f.v.set(s.At)
	}
	key := func(name string) limiter.Key { return limiter.Key{Space: "trace", ID: name} }
	n := s.N
	switch s.Op {
	case limitertest.OpAllowAll:
		return f.group(s, at, key, when)
	case limitertest.OpRefund:
		taken := limiter.Take{Key: key(s.Key), Limit: s.Limit, N: s.N, Decision: limiter.Decision{Allowed: true, Mark: s.Mark}}
		require.NoError(f.t, f.l.Refund(ctx, at, &taken), when)
		n = 0
	case limitertest.OpReset:
		require.NoError(f.t, f.l.Reset(ctx, key(s.Key)), when)
		n = 0
	case limitertest.OpPeek:
		n = 0
	}
	takes := []limiter.Take{{Key: key(s.Key), Limit: s.Limit, N: n, MaxDelay: forever}}
	ok, err := f.l.AllowAll(ctx, at, takes)
	require.NoError(f.t, err, when)
	require.Equal(f.t, ok, takes[0].Decision.Allowed, when)
	return f.same(s.Want, takes[0].Decision, s.Edge, when)
}

func (f *follower) group(s limitertest.Step, at time.Time, key func(string) limiter.Key, when string) bool {
	var takes []limiter.Take
	for _, take := range s.Takes {
		takes = append(takes, limiter.Take{Key: key(take.Key), Limit: take.Limit, N: take.N, MaxDelay: forever})
	}
	ok, err := f.l.AllowAll(f.t.Context(), at, takes)
	require.NoError(f.t, err, when)
	require.Equal(f.t, s.Want.Allowed, ok, when)
	var wait time.Duration
	for k, take := range s.Takes {
		if wait = max(wait, takes[k].Decision.RetryAfter); !f.same(take.Want, takes[k].Decision, s.Edge, fmt.Sprint(when, " take ", k)) {
			return false
		}
	}
	require.Equal(f.t, micros(s.Want.RetryAfter), wait, when)
	return true
}

// micros is a wait as a clock of microseconds counts it.
func micros(d time.Duration) time.Duration {
	if d >= saturated {
		return d
	}
	return (d + time.Microsecond - 1) / time.Microsecond * time.Microsecond
}

const saturated = time.Duration(9_000_000_000_000_000_000)

func (f *follower) same(want limitertest.Answer, d limiter.Decision, edge bool, when string) bool {
	if edge && want.Allowed && !d.Allowed {
		return false // right, and the key is another one from now on
	}
	got := limitertest.Answer{
		Allowed: d.Allowed, Remaining: d.Remaining, RetryAfter: d.RetryAfter, ResetAfter: d.ResetAfter, Delay: d.Delay,
	}
	want.RetryAfter, want.ResetAfter, want.Delay = micros(want.RetryAfter), micros(want.ResetAfter), micros(want.Delay)
	if edge { // may be one unit less and one microsecond more
		if got.Remaining == want.Remaining-1 {
			got.Remaining++
		}
		for _, w := range []struct{ got, want *time.Duration }{
			{&got.RetryAfter, &want.RetryAfter}, {&got.ResetAfter, &want.ResetAfter}, {&got.Delay, &want.Delay},
		} {
			if *w.got == *w.want+time.Microsecond {
				*w.got = *w.want
			}
		}
	}
	require.Equal(f.t, want, got, when)
	return true
}

// The same random traces by the server's clock, which is never set back here. The model never forgets; on Redis keys end. So
// no key ends before it is full.
func TestSameAsTheModelByTheServersClock(t *testing.T) {
	seeds, steps := uint64(12), 400
	if testing.Short() {
		seeds, steps = 4, 150
	}
	for seed := range seeds {
		m, v := limitertest.NewModel(), newVirtual(t)
		forward := func(set func(ns int64)) func(ns int64) {
			newest := int64(0)
			return func(ns int64) {
				newest = max(newest, ns)
				set(newest)
			}
		}
		limitertest.Differential(t,
			clocked{m, forward(func(ns int64) { m.SetClock(time.Unix(0, ns)) })},
			clocked{v.open(t, redislimit.Config{}), forward(v.set)},
			limitertest.Profile{Tick: time.Microsecond, ForeignClock: true}, seed, steps)
	}
}
