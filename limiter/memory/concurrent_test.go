package memory_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
)

// together runs f in n goroutines that start at once.
func together(n int, f func(g int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for g := range n {
		wg.Go(func() {
			<-start
			f(g)
		})
	}
	close(start)
	wg.Wait()
}

// No call is lost and none is admitted twice, whoever competes for one key.
func TestOneKeyExact(t *testing.T) {
	at := time.Now()
	for _, a := range limiter.Algorithms() {
		for _, goroutines := range []int{64, 1000} {
			limit := limiter.Per(3000, 24*time.Hour).With(a).WithBurst(3000)
			if a == limiter.SlidingWindow {
				limit = limit.WithCells(1 + 5*(goroutines/1000))
			}
			l := newLimiter(t, memory.Config{})
			var passed atomic.Int64
			together(goroutines, func(g int) {
				for range 6400 / min(goroutines, 640) {
					takes := []limiter.Take{{Key: id(1), Limit: limit, N: 1, MaxDelay: 1 << 62}}
					if ok, err := l.AllowAll(ctx, at, takes); err != nil {
						panic(err)
					} else if ok {
						passed.Add(1)
					}
				}
			})
			require.EqualValues(t, 3000, passed.Load(), "%v, %d goroutines", a, goroutines)
			verify(t, l)
		}
	}
}

// RACE-09: all of splitting, expiry, merging, overflow, refunds and groups at once, with time standing still for the keys that
// are counted: each of them admits its quota exactly.
func TestTableUnderFire(t *testing.T) {
	const counted = 300
	for _, maxKeys := range []int{1 << 20, 2000} {
		l := newLimiter(t, memory.Config{MaxKeys: maxKeys, MaxLogEntries: 1 << 20})
		limits := func(i int) limiter.Limit {
			switch i % 4 {
			case 0:
				return limiter.Per(40, 24*time.Hour)
			case 1:
				return limiter.Per(40, 24*time.Hour).With(limiter.FixedWindow)
			case 2:
				return limiter.Per(40, 24*time.Hour).With(limiter.SlidingLog)
			}
			return limiter.Per(40, 24*time.Hour).WithCells(4)
		}
		at := time.Now()
		passed := make([]atomic.Int64, counted)
		for i := range counted { // before the crowd, so that each has a cell
			ok, err := l.AllowAll(ctx, at, []limiter.Take{{Key: id(i), Limit: limits(i), N: 1}})
			require.NoError(t, err)
			require.True(t, ok)
			passed[i].Add(1)
		}
		rounds := 3000
		if testing.Short() {
			rounds = 500
		}
		together(16, func(g int) {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for n := range rounds {
				// Noise that expires at once, so that segments split, are reaped, shrink and merge.
				for range 4 {
					noise := limiter.Key{Space: "noise", ID: id(r.IntN(1 << 16)).ID}
					_, err := l.AllowAll(ctx, at.Add(time.Duration(n)*time.Millisecond), []limiter.Take{{Key: noise, Limit: limiter.Per(1e6, time.Second), N: 1}})
					if err != nil {
						panic(err)
					}
				}
				i, j := r.IntN(counted), r.IntN(counted)
				takes := []limiter.Take{{Key: id(i), Limit: limits(i), N: 1}, {Key: id(j), Limit: limits(j), N: 1}}
				if i == j || r.IntN(3) == 0 {
					takes = takes[:1]
				}
				ok, err := l.AllowAll(ctx, at, takes)
				if err != nil {
					panic(err)
				}
				if !ok {
					continue
				}
				if r.IntN(10) == 0 {
					for k := range takes {
						if err := l.Refund(ctx, at, &takes[k]); err != nil {
							panic(err)
						}
					}
					continue
				}
				passed[i].Add(1)
				if len(takes) > 1 {
					passed[j].Add(1)
				}
				if g == 0 && n%50 == 0 {
					l.Tend(at.Add(time.Duration(n)*time.Millisecond + 3*time.Second))
				}
			}
		})
		verify(t, l)
		for i := range counted {
			left := 0
			for {
				ok, err := l.AllowAll(ctx, at, []limiter.Take{{Key: id(i), Limit: limits(i), N: 1}})
				require.NoError(t, err)
				if !ok {
					break
				}
				left++
			}
			require.EqualValues(t, 40, passed[i].Load()+int64(left), "key %d", i)
		}
	}
}

// A key that moves between an overflow cell and one of its own never passes more than its quota.
func TestOverflowUnderFire(t *testing.T) {
	limit := limiter.Per(50, 24*time.Hour)
	for round := range 30 {
		l := newLimiter(t, memory.Config{MaxKeys: 64})
		at := time.Now()
		var passed [8]atomic.Int64
		together(8, func(g int) {
			r := rand.New(rand.NewPCG(uint64(g), uint64(round)))
			for n := range 300 {
				noise := limiter.Key{Space: "noise", ID: id(r.IntN(200)).ID}
				now := at.Add(time.Duration(n) * 10 * time.Millisecond)
				_, _ = l.AllowAll(ctx, now, []limiter.Take{{Key: noise, Limit: limiter.Per(1e6, time.Second), N: 1}})
				k := r.IntN(len(passed))
				ok, err := l.AllowAll(ctx, at, []limiter.Take{{Key: id(k), Limit: limit, N: 1}})
				if err != nil {
					panic(err)
				}
				if ok {
					passed[k].Add(1)
				}
				if n%20 == 0 {
					l.Tend(now.Add(2 * time.Second))
				}
			}
		})
		verify(t, l)
		for k := range passed {
			require.LessOrEqual(t, passed[k].Load(), int64(50), "key %d", k)
		}
	}
}

// Calls that close, reset and change limits meanwhile end, and say so.
func TestCloseUnderFire(t *testing.T) {
	for range 5 {
		l := newLimiter(t, memory.Config{MaxKeys: 500})
		var closed atomic.Int64
		together(8, func(g int) {
			for n := range 2000 {
				if g == 0 && n == 1000 {
					l.Close()
				}
				limit := limiter.Per(1+n%100, time.Second).With(limiter.Algorithms()[n%5])
				if n%7 == 0 {
					_ = l.Reset(ctx, id(n))
				}
				if _, err := l.Allow(ctx, id(n%1000), limit, 1); err != nil {
					require.ErrorIs(t, err, limiter.ErrClosed)
					closed.Add(1)
				}
			}
		})
		require.NotZero(t, closed.Load())
	}
}

// AllowAll locks the cells of a call in one order.
func TestGroupsDoNotDeadlock(t *testing.T) {
	l := newLimiter(t, memory.Config{MaxKeys: 40})
	limit := limiter.Per(1e9, time.Second)
	done := make(chan struct{})
	go func() {
		defer close(done)
		together(16, func(g int) {
			r := rand.New(rand.NewPCG(uint64(g), 3))
			for range 2000 {
				takes := make([]limiter.Take, 1+r.IntN(10))
				for k := range takes {
					takes[k] = limiter.Take{Key: id(r.IntN(60)), Limit: limit, N: 1, Shadow: r.IntN(4) == 0}
				}
				if _, err := l.AllowAll(ctx, time.Time{}, takes); err != nil {
					panic(err)
				}
			}
		})
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		require.Fail(t, "deadlock")
	}
	verify(t, l)
}
