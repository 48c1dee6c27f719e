package leased

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
)

// leaseEvents adds up what an observer is told of leases.
type leaseEvents struct {
	mu   sync.Mutex
	last map[string]limiter.Event
	sum  limiter.Leases
	n    int
}

func (o *leaseEvents) Observe(e limiter.Event) {
	if e.Kind != limiter.EventLease {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last == nil {
		o.last = map[string]limiter.Event{}
	}
	o.last[e.Policy] = e
	o.n++
	o.sum.Local += e.Leases.Local
	o.sum.Calls += e.Leases.Calls
	o.sum.Granted += e.Leases.Granted
	o.sum.Returned += e.Leases.Returned
	o.sum.Stranded += e.Leases.Stranded
	o.sum.Late = max(o.sum.Late, e.Leases.Late)
	o.sum.LateBound = max(o.sum.LateBound, e.Leases.LateBound)
}

func (o *leaseEvents) of(policy string) limiter.Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last[policy]
}

// All that is told adds up to the Stats, whatever becomes of keys: forgotten, reset, with leases that ended, and never leased.
func TestEventsAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &leaseEvents{}
		s := &modelStore{delay: time.Millisecond}
		l := onModel(t, s, Config{Observer: o, MaxKeys: 3, Name: "shared"})
		limit := limiter.PerSecond(1000)
		warm(t, l, alice, limit, 60)
		warm(t, l, bob, limit, 60)
		time.Sleep(l.sync)
		e := o.of("api")
		require.Equal(t, "shared", e.Name)
		require.EqualValues(t, l.Stats().Leases, e.Keys)
		require.Equal(t, l.Stats().Held, e.Leases.Units)
		require.Positive(t, e.Leases.Staleness)
		var many sync.WaitGroup
		for k := range 700 { // who come once, and make others go: there is no shard without one
			many.Go(func() { _, _ = l.Allow(t.Context(), limiter.Key{Space: "seldom", ID: fmt.Sprint(k)}, limit, 1) })
		}
		many.Wait()
		warm(t, l, alice, limit, 60)
		require.NoError(t, l.Reset(t.Context(), alice))
		warm(t, l, bob, limit, 60)
		s.set(func() { s.away = true })
		time.Sleep(2 * time.Second) // leases end
		s.set(func() { s.away = false })
		warm(t, l, alice, limit, 60)
		synctest.Wait()
		require.NoError(t, l.Close())
		is := l.Stats()
		back := int64(0)
		for _, q := range s.asked {
			back += q.back
		}
		require.EqualValues(t, back, is.Returned)
		require.Positive(t, is.Stranded)
		require.Positive(t, is.Returned)
		require.Positive(t, is.Late)
		require.LessOrEqual(t, is.Late, is.LateBound)
		require.InDelta(t, 2, is.LateBound, 1e-6, "what 1000 a second bring in 2 ms")
		require.Equal(t, limiter.Leases{
			Local: is.Local, Calls: is.Calls, Granted: is.Granted, Returned: is.Returned, Stranded: is.Stranded, Late: is.Late, LateBound: is.LateBound,
		}, o.sum)
		for _, policy := range []string{"api", "seldom"} {
			require.Zero(t, o.of(policy).Keys)
			require.Zero(t, o.of(policy).Leases.Units)
		}
	})
}

// Where nothing happens nothing is told.
func TestQuietLimitersTellNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &leaseEvents{}
		l := onModel(t, &modelStore{delay: time.Microsecond}, Config{Observer: o})
		warm(t, l, alice, limiter.PerSecond(1000), 60)
		time.Sleep(time.Second)
		require.Zero(t, o.of("api").Keys, "the last one says that there are none any more")
		n := o.n
		require.Less(t, n, 20, "about one in each sync")
		time.Sleep(time.Minute)
		require.NoError(t, l.Close())
		require.Equal(t, n, o.n)
	})
}
