package fallback_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/fallback"
	"github.com/spillway-go/spillway/limiter/memory"
)

// booking is units that something has admitted.
type booking struct {
	at time.Time
	n  int
}

// excess returns by how many units the bookings exceed, at worst, what times limiters of limit promise together: for the
// buckets in any closed interval, for the log in any of length Period, for the windows in any that begins with a cell.
func excess(limit limiter.Limit, times int, bookings []booking) float64 {
	worst := math.Inf(-1)
	cells := time.Duration(max(1, limit.Cells))
	cell := limit.Period / cells
	for i, first := range bookings {
		sum := 0
		from := first.at
		if limit.Algorithm == limiter.FixedWindow || limit.Algorithm == limiter.SlidingWindow {
			from = time.Unix(0, first.at.UnixNano()/int64(cell)*int64(cell))
		}
		for j := i; j > 0 && !bookings[j-1].at.Before(from); j-- {
			sum += bookings[j-1].n
		}
		for _, b := range bookings[i:] {
			length := b.at.Sub(from)
			most := float64(times * limit.Quota())
			if limit.Algorithm == limiter.TokenBucket || limit.Algorithm == limiter.LeakyBucket {
				most += float64(times) * float64(limit.Rate) * float64(length) / float64(limit.Period)
			} else if length >= limit.Period {
				break
			}
			sum += b.n
			worst = max(worst, float64(sum)-most)
		}
	}
	return worst
}

func TestExcess(t *testing.T) {
	at := func(ms ...int) (all []booking) {
		for _, m := range ms {
			all = append(all, booking{time.Unix(100, 0).Add(time.Duration(m) * time.Millisecond), 1})
		}
		return all
	}
	require.InDelta(t, 1, excess(limiter.PerSecond(2), 1, at(0, 0, 0)), 1e-9)
	require.InDelta(t, 0, excess(limiter.PerSecond(2), 1, at(0, 0, 500)), 1e-9)
	require.InDelta(t, 1, excess(limiter.PerSecond(2).With(limiter.FixedWindow), 1, at(100, 900, 950, 1000)), 1e-9)
	require.InDelta(t, 1, excess(limiter.PerSecond(2).With(limiter.SlidingLog), 1, at(100, 900, 1000, 1100)), 1e-9)
	require.InDelta(t, -1, excess(limiter.PerSecond(2).With(limiter.SlidingLog), 2, at(100, 900, 1000, 1100)), 1e-9)
}

// meter is a secondary that says what was booked on it.
type meter struct {
	*memory.Limiter
	booked []booking
}

func (m *meter) Allow(ctx context.Context, k limiter.Key, l limiter.Limit, n int) (limiter.Decision, error) {
	d, err := m.Limiter.Allow(ctx, k, l, n)
	if err == nil && d.Allowed && n > 0 {
		m.booked = append(m.booked, booking{time.Now(), n})
	}
	return d, err
}

func (m *meter) AllowAll(ctx context.Context, at time.Time, takes []limiter.Take) (bool, error) {
	passed, err := m.Limiter.AllowAll(ctx, at, takes)
	for _, t := range takes {
		if passed && t.Decision.Allowed && t.N > 0 {
			m.booked = append(m.booked, booking{time.Now(), t.N})
		}
	}
	return passed, err
}

// fleet is replicas that share a primary, each over a link of its own.
type fleet struct {
	t        *testing.T
	limit    limiter.Limit
	links    []*store
	meters   []*meter
	replicas []*fallback.Limiter

	viaPrimary, viaShares, all []booking
}

func newFleet(t *testing.T, limit limiter.Limit, n int) *fleet {
	f := &fleet{t: t, limit: limit}
	shared := newMemory(t)
	for range n {
		link, m := &store{Limiter: shared}, &meter{Limiter: newMemory(t)}
		f.links, f.meters = append(f.links, link), append(f.meters, m)
		f.replicas = append(f.replicas, newLimiter(t, fallback.Config{Primary: link, Secondary: m, Replicas: n, Cooldown: 100 * time.Millisecond}))
	}
	return f
}

func (f *fleet) ask(replica, n int) {
	takes := []limiter.Take{{Key: key, Limit: f.limit, N: n, MaxDelay: math.MaxInt64}}
	passed := false
	var err error
	if f.limit.Algorithm == limiter.LeakyBucket || n > 2 {
		passed, err = f.replicas[replica].AllowAll(ctx, time.Time{}, takes)
	} else {
		takes[0].Decision, err = f.replicas[replica].Allow(ctx, key, f.limit, n)
		passed = takes[0].Decision.Allowed
	}
	require.NoError(f.t, err)
	if !passed {
		return
	}
	b := booking{time.Now(), n}
	f.all = append(f.all, b)
	if takes[0].Decision.Via == limiter.ViaFallback {
		f.viaShares = append(f.viaShares, b)
	} else {
		f.viaPrimary = append(f.viaPrimary, b)
	}
}

// onShares is everything that was booked on secondaries, in order of time.
func (f *fleet) onShares() (all []booking) {
	next := make([]int, len(f.meters))
	for {
		first := -1
		for i, m := range f.meters {
			if next[i] < len(m.booked) && (first < 0 || m.booked[next[i]].at.Before(f.meters[first].booked[next[first]].at)) {
				first = i
			}
		}
		if first < 0 {
			return all
		}
		all = append(all, f.meters[first].booked[next[first]])
		next[first]++
	}
}

func (f *fleet) left() (units int) {
	for i, m := range f.meters {
		d, err := m.Limiter.Allow(ctx, key, fallback.Share(f.limit, len(f.meters)), 0)
		require.NoError(f.t, err, "replica %d", i)
		units += d.Remaining
	}
	return units
}

// limits for fleets of five: with much and with little to divide.
func limits() (all []limiter.Limit) {
	for _, a := range limiter.Algorithms() {
		for _, quota := range []int{3, 23, 60} {
			l := limiter.Limit{Algorithm: a, Rate: quota, Period: 6 * time.Second}
			if a == limiter.TokenBucket || a == limiter.LeakyBucket {
				l.Burst = quota/2 + 1
			}
			all = append(all, l)
		}
	}
	return append(all, limiter.Limit{Rate: 60, Period: 6 * time.Second}.WithCells(6))
}

func forEachLimit(t *testing.T, f func(t *testing.T, l limiter.Limit, r *rand.Rand)) {
	for _, l := range limits() {
		for seed := range uint64(8) {
			t.Run(fmt.Sprintf("%v/%d", l, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := rand.New(rand.NewPCG(seed, 1))
					time.Sleep(rand.N(10 * time.Second)) // bubbles begin on an edge of every window
					f(t, l, r)
				})
			})
		}
	}
}

const replicas = 5

// Whatever fails, wherever and how often: what the primary admits keeps the limit, what is booked on all shares keeps
// what they promise together, and so all that is admitted keeps the sum of the two, twice the limit.
func TestOutagesAreBounded(t *testing.T) {
	forEachLimit(t, func(t *testing.T, l limiter.Limit, r *rand.Rand) {
		f := newFleet(t, l, replicas)
		for range 700 {
			time.Sleep(rand.N(80 * time.Millisecond))
			switch i := r.IntN(replicas); r.IntN(40) {
			case 0: // one link, either way
				f.links[i].fail(map[bool]error{true: errGone}[r.IntN(2) == 0])
			case 1: // all links
				err := map[bool]error{true: errGone}[r.IntN(2) == 0]
				for _, link := range f.links {
					link.fail(err)
				}
			default: // some replicas are busier than others
				f.ask(min(i, r.IntN(replicas)), 1+r.IntN(3))
			}
		}
		require.NotEmpty(t, f.viaPrimary)
		require.NotEmpty(t, f.viaShares)
		share := fallback.Share(l, replicas)
		require.LessOrEqual(t, excess(l, 1, f.viaPrimary), 0.0, "via the primary")
		require.LessOrEqual(t, excess(share, replicas, f.onShares()), 1e-6, "booked on shares")
		if l.Quota() >= replicas {
			require.LessOrEqual(t, excess(l, 1, f.viaShares), 1e-6, "via the shares, against the limit itself")
			require.LessOrEqual(t, excess(l, 2, f.all), 1e-6, "altogether")
		}
	})
}

// Where an outage begins, what the shares have left is all that can be admitted beyond the limit.
func TestAnOutageAddsWhatTheSharesHaveLeft(t *testing.T) {
	forEachLimit(t, func(t *testing.T, l limiter.Limit, r *rand.Rand) {
		if l.Quota() < replicas {
			return // such shares refill by other windows than the limit
		}
		f := newFleet(t, l, replicas)
		for range 200 {
			time.Sleep(rand.N(60 * time.Millisecond))
			f.ask(min(r.IntN(replicas), r.IntN(replicas)), 1+r.IntN(3))
		}
		left := f.left()
		for _, link := range f.links {
			link.fail(errGone)
		}
		for range 600 {
			time.Sleep(rand.N(20 * time.Millisecond))
			f.ask(r.IntN(replicas), 1)
		}
		// Remaining is whole units of each replica: less than one more may be there.
		require.LessOrEqual(t, excess(l, 1, f.all), float64(left+replicas), "%d were left", left)
	})
}

// Replicas that are evenly loaded, and not more than the limit admits, admit in an outage and around its beginning no more
// than the limit: each share has seen its part of everything.
func TestAnEvenlyLoadedFleetKeepsTheLimit(t *testing.T) {
	forEachLimit(t, func(t *testing.T, l limiter.Limit, r *rand.Rand) {
		if l.Quota() < 4*replicas {
			return
		}
		f := newFleet(t, l, replicas)
		every := 2 * l.Period / time.Duration(l.Rate)
		for k := range 100 {
			time.Sleep(every)
			f.ask(k%replicas, 1)
		}
		for _, link := range f.links {
			link.fail(errGone)
		}
		for range 500 {
			time.Sleep(rand.N(20 * time.Millisecond))
			f.ask(r.IntN(replicas), 1)
		}
		require.LessOrEqual(t, excess(l, 1, f.all), 1e-6)
	})
}

// However often the primary comes and goes, going back to a share finds what it has left, and no fresh one.
func TestFlappingMintsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := limiter.PerDay(100)
		f := newFleet(t, l, 2)
		for range 50 {
			for _, link := range f.links {
				link.fail(errGone)
			}
			for range 20 {
				f.ask(0, 1)
				f.ask(1, 1)
			}
			for _, link := range f.links {
				link.fail(nil)
			}
			time.Sleep(time.Second)
			for range 20 {
				f.ask(0, 1)
				f.ask(1, 1)
			}
		}
		sum := func(all []booking) (n int) {
			for _, b := range all {
				n += b.n
			}
			return n
		}
		require.Equal(t, 100, sum(f.viaPrimary), "the limit")
		require.Equal(t, 60, sum(f.viaShares), "40 in the first outage; 40 that the primary admitted leave 20 for the second")
		require.Equal(t, 100, sum(f.onShares()), "nothing for those that follow")
	})
}
