package redislimit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/rediscall"
	"github.com/spillway-go/spillway/limiter"
)

var errFake = fmt.Errorf("%w: no reply", limiter.ErrUnavailable)

// caller is one who asks, and what became of him.
type caller struct {
	g         *group
	sent      int // how often
	sentAt    time.Time
	follows   bool // somebody else led the trip
	took      time.Duration
	answered  bool
	err       error
	givenBack int
}

// station is a line with a fake Redis behind it.
type station struct {
	t       testing.TB
	timeout time.Duration
	line    *line
	reply   func() time.Duration // how long the next trip takes, unless its time is over

	mu      sync.Mutex
	batches [][]*caller
	byGroup map[*group]*caller
	callers []*caller
}

func newStation(t testing.TB, timeout time.Duration, reply func() time.Duration) *station {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // never called
	client, err := rediscall.Bound(rdb, timeout)
	require.NoError(t, err)
	require.NoError(t, rdb.Close())
	s := &station{t: t, timeout: timeout, reply: reply, byGroup: map[*group]*caller{}}
	s.line = newLine(timeout, func(ctx context.Context, groups []*group) { s.send(ctx, client, groups) }, func(gone []*group) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, g := range gone {
			s.byGroup[g].givenBack++
		}
	})
	return s
}

func (s *station) send(ctx context.Context, client *rediscall.Client, groups []*group) {
	var batch []*caller
	s.mu.Lock()
	for _, g := range groups {
		c := s.byGroup[g]
		c.sent++
		c.sentAt = time.Now()
		batch = append(batch, c)
	}
	s.batches = append(s.batches, batch)
	took := s.reply()
	s.mu.Unlock()
	left := client.Left(ctx)
	if d, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(d))
	}
	time.Sleep(min(took, left))
	for _, g := range groups {
		if g.verdict, g.err = booked, nil; took > left {
			g.verdict, g.err = refused, errFake
		}
	}
}

// ask is one caller.
func (s *station) ask(ctx context.Context, parts int) *caller {
	c := &caller{g: &group{parts: make([]part, parts)}}
	start := time.Now()
	s.mu.Lock()
	s.byGroup[c.g] = c
	s.callers = append(s.callers, c)
	s.mu.Unlock()
	err := s.line.do(ctx, start, c.g)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.took, c.err = time.Since(start), err; err == nil {
		c.answered, c.err = true, c.g.err
	}
	return c
}

// check is called when all have gone. inTurn says that they came in the order that is known.
func (s *station) check(inTurn bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Empty(s.t, s.line.queue)
	require.Zero(s.t, s.line.trips)
	for _, batch := range s.batches {
		parts := 0
		for i, c := range batch {
			parts += len(c.g.parts)
			c.follows = i > 0
		}
		require.LessOrEqual(s.t, parts, maxTripParts)
	}
	var last time.Time
	for _, c := range s.callers {
		if c.follows && inTurn { // who leads may have come just now
			require.False(s.t, c.sentAt.Before(last), "first come, first served")
			last = c.sentAt
		}
		require.LessOrEqual(s.t, c.sent, 1)
		require.LessOrEqual(s.t, c.took, s.timeout, "counted from his own arrival")
		booked := c.sent == 1 && c.g.verdict == booked
		switch {
		case c.answered && c.err == nil:
			require.True(s.t, booked)
			require.Zero(s.t, c.givenBack)
		case c.answered:
			require.ErrorIs(s.t, c.err, limiter.ErrUnavailable)
			require.False(s.t, booked)
		default:
			require.True(s.t, errors.Is(c.err, context.Canceled) || errors.Is(c.err, context.DeadlineExceeded), "%v", c.err)
			require.Equal(s.t, c.sent, c.givenBack, "what was under way for one who has left is given up, once")
		}
	}
}

// Whoever stands in the line is answered exactly once, in time and in his turn, however long trips take and whoever leaves.
func TestLine(t *testing.T) {
	const timeout = 64 * time.Millisecond
	rounds := 150
	if testing.Short() {
		rounds = 30
	}
	for seed := range uint64(rounds) {
		synctest.Test(t, func(t *testing.T) {
			rng, trips := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
			slow := []time.Duration{time.Millisecond, timeout / 6, timeout, 3 * timeout}[rng.IntN(4)]
			s := newStation(t, timeout, func() time.Duration { return time.Duration(trips.Int64N(int64(slow))) })
			var wg sync.WaitGroup
			for range 20 + rng.IntN(200) {
				time.Sleep(time.Duration(rng.Int64N(int64(time.Millisecond))) * time.Duration(rng.IntN(2)*rng.IntN(4)))
				parts, leave, how := 1, time.Duration(rng.Int64N(int64(2*timeout))), rng.IntN(6)
				if rng.IntN(8) == 0 {
					parts = 1 + rng.IntN(maxParts)
				}
				wg.Go(func() {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					switch how {
					case 0:
						defer time.AfterFunc(leave, cancel).Stop()
					case 1:
						ctx, cancel = context.WithTimeout(ctx, leave)
						defer cancel()
					}
					c := s.ask(ctx, parts)
					if how == 1 {
						require.LessOrEqual(t, c.took, leave, "a deadline is kept to")
					}
				})
				synctest.Wait()
			}
			wg.Wait()
			synctest.Wait() // trips whose leader has left
			time.Sleep(timeout)
			s.check(true)
		})
	}
}

// A caller who is not first costs nobody a trip: those who wait share the next one.
func TestLineShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 64 * time.Millisecond
		s := newStation(t, timeout, func() time.Duration { return timeout / 16 })
		var wg sync.WaitGroup
		for range 600 {
			wg.Go(func() { s.ask(t.Context(), 1) })
		}
		wg.Wait()
		s.check(false)
		var sizes []int
		for _, b := range s.batches {
			sizes = append(sizes, len(b))
		}
		require.Equal(t, []int{1, 255, 255, 89}, sizes)
	})
}

// A trip that takes long does not hold up those who come later, and a silent server costs nobody more than the time-out.
func TestLineDoesNotWaitForASlowTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 64 * time.Millisecond
		s := newStation(t, timeout, func() time.Duration { return time.Hour })
		var wg sync.WaitGroup
		for range 200 {
			time.Sleep(time.Millisecond)
			wg.Go(func() {
				c := s.ask(t.Context(), 1)
				require.ErrorIs(t, c.err, limiter.ErrUnavailable)
			})
			s.line.mu.Lock()
			require.LessOrEqual(t, s.line.trips, 9)
			s.line.mu.Unlock()
		}
		wg.Wait()
		s.check(false)
	})
}

// A leader with little time neither holds up nor cancels the others: the trip goes on without him.
func TestLeaderLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 64 * time.Millisecond
		s := newStation(t, timeout, func() time.Duration { return timeout / 8 })
		var wg sync.WaitGroup
		var leader *caller
		others := make([]*caller, 5)
		wg.Go(func() { s.ask(t.Context(), 1) })
		synctest.Wait()
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), timeout/8+timeout/16)
			defer cancel()
			leader = s.ask(ctx, 1)
		})
		synctest.Wait()
		for i := range others {
			wg.Go(func() { others[i] = s.ask(t.Context(), 1) })
		}
		wg.Wait()
		time.Sleep(timeout)
		s.check(false)
		require.ErrorIs(t, leader.err, context.DeadlineExceeded)
		require.Equal(t, timeout/8+timeout/16, leader.took)
		require.Equal(t, 1, leader.givenBack)
		for _, o := range others {
			require.NoError(t, o.err)
			require.Equal(t, timeout/4, o.took)
		}
		require.Len(t, s.batches, 2)
	})
}

// The same with real threads, for the race detector.
func TestLineUnderStress(t *testing.T) {
	var n atomic.Int64
	s := newStation(t, 20*time.Second, func() time.Duration { return time.Duration(n.Add(1) % 3 * 20_000) })
	var wg sync.WaitGroup
	for w := range 64 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 2))
			for range 100 {
				ctx, cancel := context.WithCancel(t.Context())
				switch rng.IntN(4) {
				case 0:
					time.AfterFunc(time.Duration(rng.IntN(300))*time.Microsecond, cancel)
				case 1:
					ctx, cancel = context.WithTimeout(ctx, time.Duration(rng.IntN(300))*time.Microsecond)
				}
				s.ask(ctx, 1+rng.IntN(2)*rng.IntN(30))
				cancel()
			}
		})
	}
	wg.Wait()
	require.Eventually(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, c := range s.callers {
			if !c.answered && c.sent != c.givenBack {
				return false
			}
		}
		// A trip may be under way whose callers have all left.
		s.line.mu.Lock()
		defer s.line.mu.Unlock()
		return s.line.trips == 0
	}, 10*time.Second, time.Millisecond)
	s.check(false)
}
