package degrade_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/limiter"
)

func TestQueueValidate(t *testing.T) {
	for name, c := range map[string]struct {
		set  degrade.QueueConfig
		want []string
	}{
		"zero":            {degrade.QueueConfig{}, nil},
		"small total":     {degrade.QueueConfig{Total: 3}, nil},
		"all set":         {degrade.QueueConfig{PerKey: 10_000, Total: 1_000_000, MaxWait: time.Minute, ServiceTime: -1, NewestFirst: true}, nil},
		"per key":         {degrade.QueueConfig{PerKey: 4, Total: 3}, []string{"PerKey 4 is outside 1…3, of a Total of 3"}},
		"per key default": {degrade.QueueConfig{PerKey: 1025}, []string{"PerKey 1025 is outside 1…1024, of a Total of 1024"}},
		"per key most":    {degrade.QueueConfig{PerKey: 10_001, Total: 20_000}, []string{"PerKey 10001 is outside 1…10000, of a Total of 20000"}},
		"all wrong": {
			degrade.QueueConfig{PerKey: -1, Total: -1, MaxWait: -1, ServiceTime: -2},
			[]string{"PerKey -1", "Total -1", "MaxWait -1ns", "ServiceTime -2ns"},
		},
		"too much": {
			degrade.QueueConfig{Total: 1_000_001, MaxWait: time.Minute + 1, ServiceTime: time.Hour},
			[]string{"Total 1000001 is outside 1…1000000", "MaxWait 1m0.000000001s is outside 1ms…1m0s", "ServiceTime 1h0m0s is outside 0…1m0s"},
		},
		"too short": {degrade.QueueConfig{MaxWait: time.Microsecond}, []string{"MaxWait 1µs"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := degrade.Validate(degrade.Queue(c.set))
			if c.want == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, limiter.ErrInvalid)
			for _, want := range c.want {
				require.ErrorContains(t, err, "degrade: Queue: ")
				require.ErrorContains(t, err, want)
			}
		})
	}
	require.Equal(t, degrade.ModeQueue, degrade.ModeOf(degrade.Queue(degrade.QueueConfig{})))
}

// A request waits up to its bound, and is refused at once if that is not enough, with the wait that would be.
func TestQueueMostWait(t *testing.T) {
	server := func(s *http.Server) func(context.Context) (context.Context, context.CancelFunc) {
		return func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithValue(ctx, http.ServerContextKey, s), func() {}
		}
	}
	deadline := func(d time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
		return func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, d) }
	}
	for name, c := range map[string]struct {
		set  degrade.QueueConfig
		ctx  func(context.Context) (context.Context, context.CancelFunc)
		body io.Reader
		want time.Duration
	}{
		"default":                  {want: 5 * time.Second},
		"MaxWait":                  {set: degrade.QueueConfig{MaxWait: time.Minute}, want: time.Minute},
		"deadline":                 {ctx: deadline(time.Second), want: 900 * ms},
		"deadline, service time":   {set: degrade.QueueConfig{ServiceTime: 300 * ms}, ctx: deadline(time.Second), want: 700 * ms},
		"far deadline":             {ctx: deadline(time.Minute), want: 5 * time.Second},
		"WriteTimeout":             {ctx: server(&http.Server{WriteTimeout: 2 * time.Second}), want: 1900 * ms},
		"WriteTimeout, all of it":  {set: degrade.QueueConfig{ServiceTime: -1}, ctx: server(&http.Server{WriteTimeout: 2 * time.Second}), want: 2 * time.Second},
		"ReadTimeout without body": {ctx: server(&http.Server{ReadTimeout: 2 * time.Second}), want: 5 * time.Second},
		"ReadTimeout":              {ctx: server(&http.Server{ReadTimeout: 2 * time.Second}), body: strings.NewReader("x"), want: 1900 * ms},
		"no time-outs":             {ctx: server(&http.Server{}), body: strings.NewReader("x"), want: 5 * time.Second},
		"no server":                {ctx: server(nil), want: 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for _, over := range []time.Duration{0, 1} {
					h := degrade.Queue(c.set)
					ctx, cancel := t.Context(), context.CancelFunc(func() {})
					if c.ctx != nil {
						ctx, cancel = c.ctx(ctx)
					}
					r, err := http.NewRequestWithContext(ctx, http.MethodPost, "/", c.body)
					require.NoError(t, err)
					wait := c.want + over
					d := &degrade.Denial{Key: keyOf("a"), Cost: 1, Decision: limiter.Decision{Limit: oneIn100ms, RetryAfter: wait}, RetryAfter: wait}
					begin := time.Now()
					out := h.Degrade(nil, r, d)
					if over == 0 {
						require.Equal(t, degrade.Again, out)
						require.Equal(t, wait, time.Since(begin))
					} else {
						require.Equal(t, degrade.Skip, out)
						require.Zero(t, time.Since(begin))
						require.Equal(t, wait, d.Wait)
					}
					cancel()
				}
			})
		})
	}
}

// Nothing is left of the time: nobody waits, not even for no time.
func TestQueueNoTimeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*ms)
		defer cancel()
		h := degrade.Queue(degrade.QueueConfig{})
		out, _ := deny(ctx, h, degrade.Denial{}, 1)
		require.Equal(t, degrade.Skip, out)
	})
}

func TestQueueBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newDesk(t, degrade.QueueConfig{PerKey: 3, Total: 5}, oneIn100ms)
		id := 0
		come := func(key string, n int) {
			for range n {
				id++
				g.start(t.Context(), visit{id: id, key: keyOf(key), cost: 1})
			}
		}
		come("a", 5) // one passes, three wait
		require.Equal(t, []degrade.Outcome{degrade.Skip}, g.of(t, 5).outs)
		require.Equal(t, 400*ms, g.of(t, 5).told, "it would have been the fourth")
		g.waiting(t, 1, 3)
		come("b", 3)
		g.waiting(t, 2, 5)
		come("b", 1)
		require.Equal(t, []degrade.Outcome{degrade.Skip}, g.of(t, 9).outs)
		require.Equal(t, 300*ms, g.of(t, 9).told)
		come("c", 2)
		require.Equal(t, []degrade.Outcome{degrade.Skip}, g.of(t, 11).outs)
		require.Equal(t, 100*ms, g.of(t, 11).told)
		g.waiting(t, 2, 5)
		time.Sleep(time.Second)
		g.waiting(t, 0, 0)
		require.Len(t, g.ids(), 8)
		come("b", 2)
		g.waiting(t, 1, 1)
		time.Sleep(time.Second)
	})
}

// However many keys come, memory is bounded by those that wait, and given back.
func TestQueueManyKeys(t *testing.T) {
	const keys = 100_000
	synctest.Test(t, func(t *testing.T) {
		h := degrade.Queue(degrade.QueueConfig{})
		outs := make(chan degrade.Outcome, keys)
		for k := range keys {
			d := &degrade.Denial{
				Key: keyOf(fmt.Sprint(k)), Cost: 1, Decision: limiter.Decision{Limit: oneIn100ms, RetryAfter: time.Second}, RetryAfter: time.Second,
			}
			ask := func() { outs <- h.Degrade(nil, request(t.Context()), d) }
			if k < 1024 {
				go ask()
				synctest.Wait()
			} else {
				ask()
			}
		}
		lines, waiting := degrade.QueueSize(h)
		require.Equal(t, []int{1024, 1024}, []int{lines, waiting})
		time.Sleep(time.Second)
		synctest.Wait()
		counts := make(map[degrade.Outcome]int)
		for range keys {
			counts[<-outs]++
		}
		require.Equal(t, map[degrade.Outcome]int{degrade.Again: 1024, degrade.Skip: keys - 1024}, counts)
		lines, _ = degrade.QueueSize(h)
		require.Equal(t, 1024, lines, "all are being decided")
		time.Sleep(degrade.HandTime)
		synctest.Wait()
		lines, _ = degrade.QueueSize(h)
		require.Zero(t, lines, "nobody has told what became of them")
	})
}

// Those that turn out to wait too long, as somebody else has taken the units, are told so as soon as it is known.
func TestQueueTrims(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newDesk(t, degrade.QueueConfig{MaxWait: time.Second}, limiter.PerSecond(10))
		g.spend(t, "a", 10)
		for id := 1; id <= 10; id++ {
			g.start(t.Context(), visit{id: id, key: keyOf("a"), cost: 1})
		}
		g.waiting(t, 1, 10)
		time.Sleep(450 * ms) // four have gone
		synctest.Wait()
		require.Equal(t, []int{1, 2, 3, 4}, g.ids())
		g.change(limiter.PerSecond(5)) // the rest would take until 1.65 s
		time.Sleep(50 * ms)
		synctest.Wait()
		g.waiting(t, 1, 2)
		for id := 8; id <= 10; id++ {
			v := g.of(t, id)
			require.Equal(t, []degrade.Outcome{degrade.Skip}, v.outs)
			require.Equal(t, 500*ms, v.waited())
			require.Equal(t, 600*ms, v.told, "behind the two that are left")
		}
		time.Sleep(time.Second)
		require.Equal(t, []int{1, 2, 3, 4, 5, 6, 7}, g.ids())
	})
}

// Under a lasting overload the newest go first once the oldest have waited for half the time.
func TestQueueNewestFirst(t *testing.T) {
	for _, newest := range []bool{false, true} {
		t.Run(fmt.Sprint(newest), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newDesk(t, degrade.QueueConfig{PerKey: 100, MaxWait: time.Second, NewestFirst: newest}, oneIn100ms)
				g.spend(t, "a", 1)
				for id := range 100 {
					g.start(t.Context(), visit{id: id, key: keyOf("a"), cost: 1})
					time.Sleep(50 * ms)
				}
				time.Sleep(2 * time.Second)
				g.waiting(t, 0, 0)
				soon := 0
				for _, id := range g.ids() {
					v := g.of(t, id)
					require.LessOrEqual(t, v.waited(), time.Second)
					if v.waited() <= 100*ms && id > 20 {
						soon++
					}
				}
				require.GreaterOrEqual(t, len(g.ids()), 50, "no unit is lost")
				if newest {
					require.Greater(t, soon, 25)
				} else {
					require.IsIncreasing(t, g.ids())
					require.Zero(t, soon)
				}
			})
		})
	}
}
