package leased

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/limiter"
)

// A reply of a Redis that is slow, but not too slow, decides for all who wait, also for those who came while another call was under
// way and for takes of different costs.
func TestSlowRedisDecides(t *testing.T) {
	for _, way := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 24 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			s := &modelStore{delay: way}
			l := onModel(t, s, Config{})
			limit := limiter.PerSecond(1_000_000)
			var wg sync.WaitGroup
			var passed atomic.Int64
			for i := range 200 {
				wg.Go(func() {
					time.Sleep(time.Duration(i%4) * way / 3)
					if allow(t, l, limit, 500+i).Allowed {
						passed.Add(1)
					}
				})
			}
			wg.Wait()
			require.EqualValues(t, 200, passed.Load(), "there is enough for all")
			require.LessOrEqual(t, s.count(), 3)
			require.Zero(t, l.Stats().Failed)
		})
	}
}

// What is too little for all who wait is given to them in order, as far as it fits, and none of it is lost.
func TestOneCallServesWhatFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &modelStore{delay: 10 * time.Millisecond}
		l := onModel(t, s, Config{})
		limit := limiter.Per(100, time.Hour)
		costs := []int{1, 60, 50, 30, 20, 9, 8, 1}
		passed := make([]bool, len(costs))
		var wg sync.WaitGroup
		for i, n := range costs {
			wg.Go(func() {
				d := allow(t, l, limit, n)
				passed[i] = d.Allowed
				require.Equal(t, d.Allowed, d.RetryAfter == 0)
			})
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
		require.Equal(t, []bool{true, true, false, true, false, true, false, false}, passed)
		require.Equal(t, 2, s.count())
		require.Zero(t, s.buckets[alice.Render("", suffix)].whole)
		require.Zero(t, s.out())
	})
}

// A reply that is later than the time-out is none: what was waited for was counted too long ago.
func TestLateReplyIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &modelStore{delay: 30 * time.Millisecond} // one way, of a time-out of 50 ms
		l := onModel(t, s, Config{})
		limit := limiter.PerSecond(1000)
		var wg sync.WaitGroup
		for i := range 10 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * 5 * time.Millisecond)
				_, err := l.Allow(t.Context(), alice, limit, 1)
				require.ErrorIs(t, err, limiter.ErrUnavailable)
			})
		}
		wg.Wait()
		require.Zero(t, l.Stats().Held)
		require.Zero(t, l.Stats().Late)
		require.EqualValues(t, 1, l.Stats().Failed)
	})
}

// A process that is stopped between the reply and the decision does not pass what it was given then.
func TestStoppedBeforeItPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &modelStore{delay: time.Millisecond}
		l := onModel(t, s, Config{})
		limit := limiter.PerSecond(1000)
		allow(t, l, limit, 1)
		e := l.table.get(&alice, l.table.hash(&alice))
		w := &waiter{cost: 3, done: make(chan struct{})}
		e.mu.Lock()
		l.join(e, l.now(), w)
		e.mu.Unlock()
		<-w.done
		require.Equal(t, taken, w.verdict)
		time.Sleep(50 * time.Millisecond)
		_, err := l.wait(t.Context(), e, w, time.Now())
		require.ErrorIs(t, err, limiter.ErrUnavailable)
	})
}

// Nobody waits longer than for two calls, or than its own context.
func TestWaitsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &modelStore{delay: time.Hour}
		l := onModel(t, s, Config{})
		begin := time.Now()
		_, err := l.Allow(t.Context(), alice, limiter.PerSecond(10), 1)
		require.ErrorIs(t, err, limiter.ErrUnavailable)
		require.LessOrEqual(t, time.Since(begin), 2*s.timeout())
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Millisecond)
		defer cancel()
		begin = time.Now()
		_, err = l.Allow(ctx, alice, limiter.PerSecond(10), 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 7*time.Millisecond, time.Since(begin))
		begin = time.Now()
		takes := []limiter.Take{
			{Key: alice, Limit: limiter.PerSecond(10), N: 1},
			{Key: bob, Limit: limiter.PerSecond(10), N: 1},
			{Key: limiter.Key{Space: "shadow"}, Limit: limiter.PerSecond(10), N: 1, Shadow: true},
		}
		_, err = l.AllowAll(t.Context(), time.Time{}, takes)
		require.ErrorIs(t, err, limiter.ErrUnavailable)
		require.LessOrEqual(t, time.Since(begin), 2*s.timeout())
		s.set(func() { s.delay = 0 })
		time.Sleep(3 * time.Hour)
	})
}

// When Close is over nothing is held any more, whatever was under way: single takes, groups, groups with shadows.
func TestCloseGivesBackWhatIsUnderWay(t *testing.T) {
	for name, shadow := range map[string]bool{"groups": false, "groups with shadows": true} {
		t.Run(name, func(t *testing.T) {
			for run := range 25 {
				synctest.Test(t, func(t *testing.T) {
					s := &modelStore{delay: 300 * time.Microsecond}
					l := onModel(t, s, Config{})
					limit := limiter.PerSecond(20_000)
					var wg sync.WaitGroup
					for g := range 12 {
						wg.Go(func() {
							for {
								takes := []limiter.Take{{Key: alice, Limit: limit, N: 1 + g%3}, {Key: bob, Limit: limit, N: 2, Shadow: shadow}}
								if g%4 == 3 {
									takes = takes[:1]
								}
								if _, err := l.AllowAll(context.Background(), time.Time{}, takes); err != nil {
									require.ErrorIs(t, err, limiter.ErrClosed)
									return
								}
								time.Sleep(time.Duration(1+g) * 50 * time.Microsecond)
							}
						})
					}
					time.Sleep(20*time.Millisecond + time.Duration(run)*37*time.Microsecond)
					require.NoError(t, l.Close())
					require.Zero(t, s.out())
					wg.Wait()
					synctest.Wait()
					require.Zero(t, s.out())
				})
			}
		})
	}
}

// Close waits for a group that has set something aside and looks at another key: else that would stay leased.
func TestCloseWaitsForGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &modelStore{delay: time.Microsecond}
		l := onModel(t, s, Config{})
		limit := limiter.PerSecond(1000)
		warm(t, l, alice, limit, 60)
		s.set(func() { s.delay = 10 * time.Millisecond })
		var wg sync.WaitGroup
		wg.Go(func() {
			_, _ = l.AllowAll(t.Context(), time.Time{}, []limiter.Take{{Key: alice, Limit: limit, N: 1}, {Key: bob, Limit: limit, N: 0}})
		})
		time.Sleep(5 * time.Millisecond)
		require.NoError(t, l.Close())
		require.Zero(t, s.out())
		wg.Wait()
	})
}

// Where only the end of a dead process's lease can make room the wait says so: who waits as told is not refused again and again.
func TestRetryAfterKnowsOfTheDead(t *testing.T) {
	for name, c := range map[string]struct {
		limit limiter.Limit
		dead  int64
		n     int
	}{
		"one, and all is held":   {limiter.PerSecond(100).WithBurst(3), 3, 1},
		"more than what is left": {limiter.PerSecond(1000), 400, 800},
		"the whole burst":        {limiter.PerSecond(10), 2, 10},
		"less than what is left": {limiter.PerSecond(10), 2, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &modelStore{delay: time.Microsecond}
				l := onModel(t, s, Config{})
				q := request{terms: newTerms(c.limit, sync100), id: "dead", seq: 1, want: c.dead, step: 1, demand: 1e15}
				r, err := s.lease(t.Context(), alice.Render("", suffix), &q)
				require.NoError(t, err)
				require.Equal(t, c.dead, r.grant)
				refused := 0
				for {
					d := allow(t, l, c.limit, c.n)
					if d.Allowed {
						break
					}
					refused++
					require.LessOrEqual(t, d.RetryAfter, 3*time.Second)
					time.Sleep(d.RetryAfter)
				}
				require.LessOrEqual(t, refused, 2, "once, and once more while the bucket fills up")
				require.Equal(t, int64(c.n) > int64(c.limit.Quota())-c.dead, refused > 0)
			})
		})
	}
}

// Whoever leaves in whatever order is gone, and all others keep their places.
func TestLeaversKeepTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := newTestNode()
		var all, want []*waiter
		for range rapid.IntRange(0, 20).Draw(t, "n") {
			w := &waiter{cost: 1}
			all = append(all, w)
			n.join(w)
			if rapid.IntRange(0, 5).Draw(t, "close") == 0 {
				n.close()
			}
			if i := rapid.IntRange(-2, len(all)-1).Draw(t, "leave"); i >= 0 {
				n.forsake(all[i])
				all[i].verdict = failed
			}
		}
		for _, w := range all {
			if w.verdict == 0 {
				want = append(want, w)
			}
		}
		if n.waiting != len(want) {
			t.Fatalf("%d wait of %d", n.waiting, len(want))
		}
		got := n.dismiss()
		if fmt.Sprint(got) != fmt.Sprint(want) || n.waiting != 0 {
			t.Fatalf("%v, and not %v", got, want)
		}
	})
}
