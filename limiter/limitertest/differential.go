package limitertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// Differential makes the same random trace with two limiters and fails t where the second does not answer as the first,
// within what p, the profile of the second, allows. Equal seeds make equal traces; keys are new each time, so limiters can
// be used again. Both must be Batchers that obey the instants they are given.
func Differential(t *testing.T, want, got limiter.Limiter, p Profile, seed uint64, steps int) {
	t.Helper()
	if err := Compare(want, got, p, seed, steps); err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
}

// Compare is [Differential] returning its finding as an error.
func Compare(want, got limiter.Limiter, p Profile, seed uint64, steps int) error {
	w, ok := want.(limiter.Batcher)
	g, ok2 := got.(limiter.Batcher)
	if !ok || !ok2 || !p.instants() {
		return fmt.Errorf("limitertest: %T and %T must both be Batchers that take instants", want, got)
	}
	c := &check{ctx: context.Background(), l: got, p: p, at: start}
	x := &contest{
		check: c, want: w, got: g, wantL: want, gotL: got, unit: max(p.tick(), time.Microsecond),
		rng: rand.New(rand.NewPCG(seed, 0xf10d)), coarse: map[modelKey]bool{},
	}
	for range 8 {
		x.counters = append(x.counters, x.counter())
	}
	return c.do(func(*check) {
		for k := range steps {
			x.step(k)
		}
	})
}

// latest is how far a trace may go: doubles, in which some stores count, hold microseconds exactly until the year 2255.
var latest = time.Date(2250, 1, 1, 0, 0, 0, 0, time.UTC)

// contest is one random trace through two limiters.
type contest struct {
	*check
	want, got   limiter.Batcher
	wantL, gotL limiter.Limiter
	unit        time.Duration
	rng         *rand.Rand
	counters    []*contestant
	coarse      map[modelKey]bool // a change of period has cut off a fraction that is coarser on the second clock
	history     []string
}

// contestant is one key under one algorithm, and what was booked on it.
type contestant struct {
	key    limiter.Key
	limit  limiter.Limit
	booked []limiter.Take // as the first limiter decided; the second's Mark beside it
	marks  []int64
	last   limiter.Decision
}

func (x *contest) counter() *contestant {
	for {
		a := limiter.Algorithms()[x.rng.IntN(5)]
		if x.p.supports(a) {
			return &contestant{key: x.key(), limit: x.limit(a)}
		}
	}
}

// limit returns a limit from the whole range. Periods are whole ticks of the coarser clock.
func (x *contest) limit(a limiter.Algorithm) limiter.Limit {
	if x.rng.IntN(3) > 0 {
		return randomLimit(x.rng, a, x.unit)
	}
	digits := func(most int64) int64 { // as many of one size as of another
		n := int64(1)
		for n < most && x.rng.IntN(10) > 0 {
			n = n*10 + x.rng.Int64N(10)
		}
		return min(n, most)
	}
	most := int64(limiter.MaxRate)
	if a == limiter.SlidingLog {
		most = 500
	}
	l := limiter.Per(int(digits(most)), time.Duration(digits(int64(limiter.MaxPeriod/x.unit)))*x.unit).With(a)
	switch a {
	case limiter.TokenBucket, limiter.LeakyBucket:
		l.Burst = int(digits(limiter.MaxRate))
	case limiter.SlidingWindow:
		if cells := 1 + x.rng.IntN(limiter.MaxCells); l.Period%(time.Duration(cells)*x.unit) == 0 {
			l.Cells = cells
		}
	}
	return l
}

func (x *contest) units(k *contestant) int {
	quota := k.limit.Quota()
	switch x.rng.IntN(12) {
	case 0:
		return 0
	case 1:
		return quota
	case 2:
		return quota + 1
	case 3:
		return k.last.Remaining
	case 4:
		return k.last.Remaining + 1
	case 5:
		return 1 + x.rng.IntN(quota)
	case 6:
		return max(1, k.last.Remaining/2)
	}
	return 1
}

func (x *contest) step(n int) {
	k := x.counters[x.rng.IntN(len(x.counters))]
	switch x.rng.IntN(10) {
	case 0, 1, 2, 3, 4, 5:
		if pause := randomPause(x.rng, k.limit, k.last, x.unit); x.at.Add(pause).Before(latest) {
			x.advance(pause)
		}
	case 6:
		x.advance(-time.Duration(x.rng.Int64N(int64(2*time.Second/x.unit))) * x.unit) // a late reading
	}
	switch x.rng.IntN(20) {
	case 0:
		if !x.p.NoRelimit {
			x.relimit(k)
			return
		}
	case 1, 2:
		if !x.p.NoRefund && len(k.booked) > 0 {
			x.giveBack(k)
			return
		}
	case 3:
		if !x.p.NoReset && x.rng.IntN(4) == 0 {
			x.forget(k)
			return
		}
	case 4, 5, 6:
		x.group(n)
		return
	}
	x.decide(n, []*contestant{k}, []limiter.Take{take(k.key, k.limit, x.units(k))})
}

// group decides takes of several keys, some in the shadow, at most one of a real queue.
func (x *contest) group(n int) {
	var members []*contestant
	var takes []limiter.Take
	queue := false
	for _, i := range x.rng.Perm(len(x.counters))[:2+x.rng.IntN(3)] {
		k := x.counters[i]
		t := take(k.key, k.limit, x.units(k))
		t.Shadow = x.rng.IntN(5) == 0
		if k.limit.Algorithm == limiter.LeakyBucket && !t.Shadow {
			if queue {
				continue
			}
			queue = true
			if x.rng.IntN(2) == 0 {
				t.MaxDelay = k.limit.Period * time.Duration(x.rng.IntN(4)) / time.Duration(k.limit.Rate)
				t.MaxDelay -= t.MaxDelay % x.unit
			}
		}
		members, takes = append(members, k), append(takes, t)
	}
	x.decide(n, members, takes)
}

func (x *contest) decide(n int, members []*contestant, takes []limiter.Take) {
	wants, gots := append([]limiter.Take(nil), takes...), append([]limiter.Take(nil), takes...)
	ok, err := x.want.AllowAll(x.ctx, x.at, wants)
	x.require(err == nil, "step %d: the first limiter: %v", n, err)
	ok2, err := x.got.AllowAll(x.ctx, x.at, gots)
	x.require(err == nil, "step %d: the second limiter: %v", n, err)
	parted := ok != ok2
	for i, k := range members {
		t, w, g := takes[i], wants[i].Decision, gots[i].Decision
		x.log("step %d at %d: %v take %d (max delay %v, shadow %v): %v", n, x.at.UnixNano(), k.limit, t.N, t.MaxDelay, t.Shadow, show(w))
		coarse := x.coarse[modelKey{k.key, k.limit.Algorithm}]
		if w.Allowed && !g.Allowed && (x.p.Margin > 0 && g.RetryAfter <= x.p.Margin || coarse && g.RetryAfter <= x.p.tick()) {
			parted = true
		} else if err := x.differ(w, g, coarse); err != nil && ok == ok2 {
			x.fatalf("step %d, %+v: %v\nafter\n%s", n, k.limit, err, strings.Join(x.history, "\n"))
		}
		k.last = w
		if w.Mark != 0 && g.Mark != 0 {
			k.booked, k.marks = append(k.booked, wants[i]), append(k.marks, g.Mark)
		}
	}
	if !parted {
		return
	}
	x.require(!ok2 && ok && (x.p.Margin > 0 || len(x.coarse) > 0), "step %d: the group's answer is %v, want %v\nafter\n%s", n, ok2, ok, strings.Join(x.history, "\n"))
	for _, k := range members { // a refusal at the margin is right, and leaves the two apart
		x.replace(k)
	}
}

// differ compares two decisions.
func (x *contest) differ(w, g limiter.Decision, coarse bool) error {
	more, fewer := time.Duration(0), x.p.FewerLeft
	if coarse {
		more, fewer = x.p.tick(), fewer+1
	}
	same := func(w, g time.Duration) bool { return x.p.sameWait(w, g, more) }
	if w.Allowed == g.Allowed && w.Limit == g.Limit && (w.Mark == 0) == (g.Mark == 0) &&
		g.Remaining <= w.Remaining && g.Remaining >= w.Remaining-fewer && same(w.RetryAfter, g.RetryAfter) &&
		same(w.ResetAfter, g.ResetAfter) && same(w.Delay, g.Delay) && (same(w.NextAfter, g.NextAfter) || g.Remaining != w.Remaining) {
		return nil
	}
	return fmt.Errorf("decided %v mark %d, want %v mark %d", show(g), g.Mark, show(w), w.Mark)
}

func (x *contest) relimit(k *contestant) {
	old := k.limit
	switch l := x.limit(old.Algorithm); x.rng.IntN(3) {
	case 0:
		k.limit = l
	case 1:
		k.limit.Rate = l.Rate
	case 2:
		k.limit.Burst = l.Burst
	}
	if bucket := old.Algorithm == limiter.TokenBucket || old.Algorithm == limiter.LeakyBucket; bucket && k.limit.Period != old.Period && x.p.tick() > 1 {
		x.coarse[modelKey{k.key, old.Algorithm}] = true
	}
	x.log("new limit %+v for %+v", k.limit, old)
}

func (x *contest) giveBack(k *contestant) {
	i := x.rng.IntN(len(k.booked))
	w, g := k.booked[i], k.booked[i]
	g.Decision.Mark = k.marks[i]
	if x.rng.IntN(3) == 0 {
		w.N = 1 + x.rng.IntN(w.N)
		g.N = w.N
	}
	x.log("refund at %d of %d under %+v, booked at %d", x.at.UnixNano(), w.N, k.limit, w.Decision.Mark)
	err := x.wantL.(limiter.Refunder).Refund(x.ctx, x.at, &w)
	x.require(err == nil, "the first limiter: refund: %v", err)
	err = x.gotL.(limiter.Refunder).Refund(x.ctx, x.at, &g)
	x.require(err == nil, "the second limiter: refund: %v", err)
	x.decide(-1, []*contestant{k}, []limiter.Take{take(k.key, k.limit, 0)})
}

func (x *contest) forget(k *contestant) {
	for _, l := range []limiter.Limiter{x.wantL, x.gotL} {
		err := l.(limiter.Resetter).Reset(x.ctx, k.key)
		x.require(err == nil, "%T: reset: %v", l, err)
	}
	k.booked, k.marks = nil, nil
	x.log("reset of %+v", k.limit)
	x.decide(-1, []*contestant{k}, []limiter.Take{take(k.key, k.limit, 0)})
}

// replace goes on with a new key.
func (x *contest) replace(k *contestant) {
	*k = contestant{key: x.key(), limit: k.limit}
}

// log remembers the last steps for the message of a difference.
func (x *contest) log(format string, args ...any) {
	if x.history = append(x.history, fmt.Sprintf(format, args...)); len(x.history) > 40 {
		x.history = x.history[1:]
	}
}
