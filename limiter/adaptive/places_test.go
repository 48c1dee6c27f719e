package adaptive_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/limiter/adaptive"
)

// What is detached leaves the bound to others, whatever there is of it, up to Max.
func TestStreamsLeaveTheBound(t *testing.T) {
	for name, law := range laws {
		for _, streams := range []int{45, 60, 450} {
			s := newStage(t, adaptive.Config{Law: law, Min: 5, Max: 500, Fixed: 50})
			for range streams {
				_, _, ok := s.c.Acquire(s.now, 0)
				require.True(t, ok)
				s.c.Detach(s.now)
			}
			require.Equal(t, []int{0, streams}, []int{s.c.State().InFlight, s.c.State().Detached})
			require.Zero(t, s.c.InFlight())
			for range 60 {
				s.traffic(100, adaptive.Succeeded)
				require.Zero(t, s.c.State().Window.Rejected, "%s: %d streams", name, streams)
			}
			require.Equal(t, 50, s.c.Bound(), "%s: nobody needs more", name)
			refused := 0
			for range 60 { // who need more make it grow
				refused = s.bunch(70, 10*ms, adaptive.Succeeded)
				s.pass(990 * ms)
			}
			if streams < 430 {
				require.Zero(t, refused, name)
				require.Greater(t, s.c.Bound(), 69, name)
			} else {
				require.Equal(t, 20, refused, "%s: fifty are left of Max", name)
				require.Less(t, s.c.Bound(), 70, "%s: a higher bound would let in nobody", name)
			}
		}
	}
}

// All together never are more than Max; near it a reserve stays free as well.
func TestMaxHoldsForAll(t *testing.T) {
	c, err := adaptive.NewManual(adaptive.Config{Min: 1, Max: 20, Fixed: 10}, nil)
	require.NoError(t, err)
	stream := func(reserve float64) (used int, ok bool) {
		n, bound, ok := c.Acquire(epoch, reserve)
		require.Equal(t, 10, bound)
		if ok {
			c.Detach(epoch)
		}
		return n, ok
	}
	for range 10 {
		n, ok := stream(0)
		require.True(t, ok)
		require.Equal(t, 1, n, "each but itself has left the bound")
	}
	require.Zero(t, c.InFlight(), "there is room for ten more")
	for k := range 5 {
		n, ok := stream(0.5)
		require.True(t, ok)
		require.Equal(t, k+1, n)
	}
	n, ok := stream(0.5)
	require.False(t, ok, "five are left of Max, and half of ten have to be")
	require.Equal(t, 5, n)
	for range 5 {
		_, _, ok = c.Acquire(epoch, 0)
		require.True(t, ok)
	}
	_, _, ok = c.Acquire(epoch, 0)
	require.False(t, ok, "five of a bound of ten, and fifteen detached: that is Max")
	require.Equal(t, []int{5, 15, 10}, []int{c.State().InFlight, c.State().Detached, c.InFlight()})
	n, _, ok = c.Admit(epoch)
	require.False(t, ok)
	require.Equal(t, 11, n, "in shadow")
	c.Release(epoch, epoch, adaptive.Succeeded)
	c.Release(epoch, epoch, adaptive.Detached)
	_, _, ok = c.Acquire(epoch, 0)
	require.True(t, ok)
}

// Detach and Release may come in any order, and from different goroutines: in between and at the end the sums are right.
func TestDetachAndReleaseInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, err := adaptive.NewManual(adaptive.Config{Min: 1, Max: 20, Fixed: 10}, nil)
		require.NoError(t, err)
		var all, detached, early int // in flight, those of them that are detached, and those that have left before their Detach
		for range rapid.IntRange(1, 200).Draw(t, "calls") {
			switch rapid.IntRange(0, 5).Draw(t, "call") {
			case 0, 1:
				_, _, ok := c.Acquire(epoch, 0)
				if early == 0 { // else some that are detached are not known as such until then
					require.Equal(t, all-detached < 10 && all < 20, ok)
				}
				if ok {
					all++
				}
			case 2:
				if all > detached {
					c.Detach(epoch)
					detached++
				}
			case 3:
				if detached > 0 {
					c.Release(epoch, epoch, adaptive.Detached)
					all, detached = all-1, detached-1
				}
			case 4:
				if all > detached {
					c.Release(epoch, epoch, adaptive.Succeeded)
					all--
				}
			case 5:
				if early > 0 {
					c.Detach(epoch)
					early--
				} else if all > detached {
					c.Release(epoch, epoch, adaptive.Detached)
					all, early = all-1, early+1
				}
			}
			st := c.State()
			require.Equal(t, all, st.InFlight+st.Detached)
			require.LessOrEqual(t, all, 20)
			if early == 0 {
				require.Equal(t, detached, st.Detached)
			}
		}
		for ; early > 0; early-- {
			c.Detach(epoch)
		}
		require.Equal(t, []int{all - detached, detached}, []int{c.State().InFlight, c.State().Detached})
	})
}

// Calls that do not belong to a request open nothing for longer than until nobody is there.
func TestDetachTooOften(t *testing.T) {
	c, err := adaptive.NewManual(adaptive.Config{Min: 1, Max: 20, Fixed: 2}, nil)
	require.NoError(t, err)
	for range 3 {
		c.Detach(epoch)
	}
	require.Equal(t, []int{0, 0}, []int{c.State().InFlight, c.State().Detached})
	c.Acquire(epoch, 0)
	c.Release(epoch, epoch, adaptive.Succeeded)
	for range 5 {
		c.Release(epoch, epoch, adaptive.Detached)
	}
	for k := range 3 {
		_, _, ok := c.Acquire(epoch, 0)
		require.Equal(t, k < 2, ok)
	}
	require.Equal(t, []int{2, 0}, []int{c.State().InFlight, c.State().Detached})
}

// Many at once: never more than the bound beside the detached ones, never more than Max, and nobody is left.
func TestConcurrentStreams(t *testing.T) {
	c, err := adaptive.NewManual(adaptive.Config{Min: 1, Max: 30, Fixed: 10, CPUSource: func() (float64, bool) { return 0.5, true }}, nil)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for k := range 64 {
		wg.Go(func() {
			for range 200 {
				began := epoch.Add(time.Duration(k) * ms)
				n, bound, ok := c.Acquire(began, 0)
				if !ok {
					continue
				}
				if st := c.State(); n > bound || st.InFlight+st.Detached > 30 {
					t.Errorf("%d of %d, %d and %d", n, bound, st.InFlight, st.Detached)
				}
				if k%2 == 0 {
					c.Release(began.Add(ms), began, adaptive.Succeeded)
					continue
				}
				left := make(chan struct{})
				go func() { c.Detach(began); close(left) }()
				c.Release(began.Add(ms), began, adaptive.Detached)
				<-left
			}
		})
	}
	wg.Wait()
	require.Equal(t, []int{0, 0}, []int{c.State().InFlight, c.State().Detached})
	require.Zero(t, c.InFlight())
	c.Advance(epoch.Add(time.Hour))
	require.Zero(t, c.State().Window.Oldest)
}
