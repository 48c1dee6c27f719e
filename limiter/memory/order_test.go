package memory

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
)

// A cell that was freed and used for another key between two look-ups of one call is named by both. The call must find
// out before it locks, or it waits for itself.
func TestACellThatChangedHandsBetweenTwoLookups(t *testing.T) {
	l, err := New(Config{})
	require.NoError(t, err)
	a, b := limiter.Key{Space: "s", ID: "a"}, limiter.Key{Space: "s", ID: "b"}
	limit := limiter.PerHour(5)
	_, err = l.Allow(context.Background(), b, limit, 1)
	require.NoError(t, err)

	takes := []limiter.Take{{Key: a, Limit: limit, N: 1}, {Key: b, Limit: limit, N: 1}}
	g := group{l: l, takes: len(takes)}
	require.NoError(t, g.gather(takes))
	require.True(t, g.resolve(takes))
	slots := g.slots()
	slots[0].ref = ref{slots[1].ref.seg, slots[1].ref.i, slots[0].hash} // as it was before
	require.False(t, g.arrange())

	require.True(t, g.resolve(takes))
	require.True(t, g.arrange())
	require.True(t, g.lock(takes))
	g.unlock()
	ok, err := l.AllowAll(context.Background(), time.Time{}, takes)
	require.NoError(t, err)
	require.True(t, ok)
}

// Calls lock several cells by place: an order by whose cells they are would not be one, as that changes.
func TestCellsAreLockedByPlace(t *testing.T) {
	l, err := New(Config{})
	require.NoError(t, err)
	limit := limiter.PerHour(5)
	var takes []limiter.Take
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		takes = append(takes, limiter.Take{Key: limiter.Key{Space: "s", ID: id}, Limit: limit, N: 1})
	}
	g := group{l: l, takes: len(takes)}
	require.NoError(t, g.gather(takes))
	require.True(t, g.resolve(takes))
	require.True(t, g.arrange())
	slots := g.slots()
	for k := 1; k < g.cells; k++ {
		require.True(t, slots[slots[k-1].order].ref.before(slots[slots[k].order].ref))
	}
	own, shared := slots[0].ref, slots[0].ref
	shared.seg = newSegment(0, 0, 32)
	shared.seg.shared = true
	require.True(t, own.before(shared))
	require.False(t, shared.before(own))
}

// Keys of different limits that share an overflow cell do not refill it for each other.
func TestAFastLimitDoesNotRefillASlowOneOnOverflow(t *testing.T) {
	for _, a := range limiter.Algorithms() {
		l, err := New(Config{MaxKeys: 1})
		require.NoError(t, err)
		at := time.Now()
		allow := func(id string, limit limiter.Limit) bool {
			takes := []limiter.Take{{Key: limiter.Key{Space: "plan", ID: id}, Limit: limit, N: 1, MaxDelay: limiter.Never}}
			ok, err := l.AllowAll(context.Background(), at, takes)
			require.NoError(t, err)
			return ok
		}
		slow, fast := limiter.PerHour(5).With(a), limiter.Per(10, time.Millisecond).With(a)
		if a == limiter.LeakyBucket {
			slow, fast = slow.WithBurst(5), fast.WithBurst(10)
		}
		require.True(t, allow("the only one with a cell", slow))
		victim := limiter.Key{Space: "plan", ID: "victim"}
		shared, _ := l.hasher.overflow(&victim, a)
		other := limiter.Key{Space: "plan"}
		for id := 'a'; ; id++ {
			other.ID = string(id)
			if h, _ := l.hasher.overflow(&other, a); h == shared {
				break
			}
		}
		admitted := 0
		for range 10 {
			for range 20 {
				if allow("victim", slow) {
					admitted++
				}
			}
			allow(other.ID, fast)
			at = at.Add(2 * time.Millisecond)
		}
		require.LessOrEqual(t, admitted, 5, a.String())
	}
}
