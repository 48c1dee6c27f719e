package redislimit_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/redislimit"
)

// A key without a space is what it is called, whatever the algorithm: one call cannot have two on it, and those who share
// its round trip do not notice.
func TestTwoAlgorithmsOnOneKey(t *testing.T) {
	l := open(t, redislimit.Config{})
	key := limiter.Key{ID: "two:" + redistest.Prefix(t)}
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			if i%4 > 0 {
				d, err := l.Allow(context.Background(), limiter.Key{Space: "bystander", ID: fmt.Sprintf("user=%d", i)}, limiter.PerHour(5), 1)
				require.NoError(t, err)
				require.True(t, d.Allowed)
				return
			}
			_, err := l.AllowAll(context.Background(), time.Time{}, []limiter.Take{
				{Key: key, Limit: limiter.PerHour(5), N: 1},
				{Key: key, Limit: limiter.PerHour(5).With(limiter.SlidingWindow), N: 1},
			})
			require.ErrorIs(t, err, limiter.ErrInvalid)
		})
	}
	wg.Wait()
}

// Keys are one counter if they are called the same on the server.
func TestKeysThatRenderAlike(t *testing.T) {
	l := open(t, redislimit.Config{Prefix: "alike"})
	limit := limiter.PerHour(5)
	takes := []limiter.Take{
		{Key: limiter.Key{Space: "p", ID: "x"}, Limit: limit, N: 3},
		{Key: limiter.Key{ID: "alike:p:{x}:tb"}, Limit: limit, N: 3},
	}
	ok, err := l.AllowAll(context.Background(), time.Time{}, takes)
	require.NoError(t, err)
	require.False(t, ok, "six of five")
	require.False(t, takes[0].Decision.Allowed)
	require.Equal(t, 5, takes[1].Decision.Remaining)
}

// What cannot be a state is left alone, whichever way the script goes.
func TestImpossibleStatesAreLeftAlone(t *testing.T) {
	rdb := redistest.Shared(t).Client()
	ctx := context.Background()
	double := func(f float64) string { return string(binary.LittleEndian.AppendUint64(nil, math.Float64bits(f))) }
	four := func(n uint32) string { return string(binary.LittleEndian.AppendUint32(nil, n)) }
	six := func(n uint64) string { return string(binary.LittleEndian.AppendUint64(nil, n)[:6]) }
	hour := uint64(time.Hour / time.Microsecond)
	bucket := func(shift float64, units uint32, frac uint64) string {
		return "\xa1" + four(5) + six(hour) + four(5) + double(1e15) + double(shift) + four(units) + six(frac)
	}
	window := "\xa4" + four(5) + six(hour) + "\x01" + double(1e15) + double(0)
	calendar := "\xa3" + four(5) + six(0) + double(1e15) + double(0) + four(1) + double(0) + double(4e15)
	sliding := limiter.PerHour(5).With(limiter.SlidingWindow)
	daily := limiter.PerHour(5).Aligned(limiter.Day, "")
	for name, c := range map[string]struct {
		limit limiter.Limit
		state string
	}{
		"fraction beyond the period":   {limiter.PerHour(5), bucket(0, 1, hour)},
		"more units than there can be": {limiter.PerHour(5), bucket(0, 6, 0)},
		"more than full":               {limiter.PerHour(5), bucket(0, 5, 1)},
		"a shift beyond all clocks":    {limiter.PerHour(5), bucket(1<<54, 1, 0)},
		"a count no window has":        {sliding, window + four(1) + four(math.MaxUint32)},
		"a count that is over":         {sliding, window + four(math.MaxUint32) + four(1)},
		"a calendar without end":       {daily, calendar + "day " + strings.Repeat("x", 70_000)},
	} {
		t.Run(name, func(t *testing.T) {
			l := open(t, redislimit.Config{Client: rdb, DenyCache: -1})
			key := "impossible:" + redistest.Prefix(t)
			require.NoError(t, rdb.Set(ctx, key, c.state, time.Hour).Err())
			for _, n := range []int{0, 1, 5, 6} {
				_, err := l.Allow(ctx, limiter.Key{ID: key}, c.limit, n)
				require.ErrorIs(t, err, limiter.ErrInvalid)
				_, err = l.AllowAll(ctx, time.Time{}, []limiter.Take{
					{Key: limiter.Key{ID: key}, Limit: c.limit, N: n},
					{Key: limiter.Key{ID: key + "x"}, Limit: limiter.PerHour(5), N: 1},
				})
				require.ErrorIs(t, err, limiter.ErrInvalid)
			}
			require.Equal(t, c.state, rdb.Get(ctx, key).Val())
			require.ErrorIs(t, rdb.Get(ctx, key+"x").Err(), redis.Nil, "nothing was booked")
		})
	}
}

// Refunds in a long log do not read all of it, and what is too deep in it stays charged.
func TestRefundsInALongLog(t *testing.T) {
	ctx := context.Background()
	l := open(t, redislimit.Config{CallerClock: true, DenyCache: -1})
	key := limiter.Key{Space: "long", ID: "all=-"}
	limit := limiter.PerHour(100_000).With(limiter.SlidingLog)
	at := time.Unix(1_772_600_000, 0)
	var takes []limiter.Take
	for range 6000 { // more than a refund looks at
		at = at.Add(time.Millisecond)
		take := []limiter.Take{{Key: key, Limit: limit, N: 1}}
		ok, err := l.AllowAll(ctx, at, take)
		require.NoError(t, err)
		require.True(t, ok)
		takes = append(takes, take[0])
	}
	left := func() int {
		take := []limiter.Take{{Key: key, Limit: limit}}
		_, err := l.AllowAll(ctx, at, take)
		require.NoError(t, err)
		return take[0].Decision.Remaining
	}
	require.Equal(t, 94_000, left())
	require.NoError(t, l.Refund(ctx, at, &takes[0]))
	require.Equal(t, 94_000, left(), "too deep")
	for _, k := range []int{5999, 3000, 5998, 5997, 2500} {
		require.NoError(t, l.Refund(ctx, at, &takes[k]))
		require.NoError(t, l.Refund(ctx, at, &takes[k]), "given back once")
	}
	require.Equal(t, 94_005, left())
	// The newest unit is that of 5996: so old is the log.
	take := []limiter.Take{{Key: key, Limit: limit}}
	_, err := l.AllowAll(ctx, at, take)
	require.NoError(t, err)
	require.Equal(t, time.Hour-3*time.Millisecond, take[0].Decision.ResetAfter)
}

// A key without a name is a counter like any other, not an open gate.
func TestTheEmptyKeyCounts(t *testing.T) {
	l := open(t, redislimit.Config{Client: redistest.Start(t).Client()})
	for k := range 7 {
		d, err := l.Allow(context.Background(), limiter.Key{}, limiter.PerDay(5), 1)
		require.NoError(t, err)
		require.Equal(t, k < 5, d.Allowed)
		require.NotEqual(t, limiter.ViaMemory, d.Via)
	}
}
