package client_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/client"
	"github.com/spillway-go/spillway/limiter"
)

func fields(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

// script answers the first arrivals as listed, and 200 afterwards.
func script(answers ...func() (int, http.Header)) func(arrival) (int, http.Header, error) {
	return func(a arrival) (int, http.Header, error) {
		if a.seq > len(answers) {
			return http.StatusOK, nil, nil
		}
		status, h := answers[a.seq-1]()
		return status, h, nil
	}
}

func says(status int, pairs ...string) func() (int, http.Header) {
	return func() (int, http.Header) { return status, fields(pairs...) }
}

var once = client.Retry{Attempts: 1}

// offsets returns when requests arrived, from start.
func offsets(p *partner, start time.Time) (out []time.Duration) {
	for _, a := range p.arrivals("") {
		out = append(out, a.at.Sub(start))
	}
	return out
}

// A refusal closes the destination for all who come, then one tries.
func TestPauses(t *testing.T) {
	long := func(n int) []time.Duration {
		out := make([]time.Duration, n)
		for i := range out {
			out[i] = time.Hour
		}
		return out
	}
	for name, c := range map[string]struct {
		answer func() (int, http.Header)
		pause  time.Duration
	}{
		"429":               {says(429, "Retry-After", "7"), 7 * time.Second},
		"503":               {says(503, "Retry-After", "7"), 7 * time.Second},
		"403":               {says(403, "Retry-After", "7"), 7 * time.Second},
		"GitHub":            {says(403, "X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9"), 9 * time.Second},
		"429 by its fields": {says(429, "RateLimit", `"a";r=0;t=4, "b";r=50;t=60`, "RateLimit-Policy", `"b";q=60;w=60`), 4 * time.Second},
		"Retry-After first": {says(429, "Retry-After", "2", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "30"), 2 * time.Second},
		"403 for good":      {says(403), 0},
		"503 alone":         {says(503), 0},
		"202 polls":         {says(202, "Retry-After", "7"), 0},
		"capped":            {says(429, "Retry-After", "99999999999"), time.Hour},
		"told for ever":     {says(200, "RateLimit", `"a";r=0;t=999999999`), time.Hour},
		"nothing left":      {says(200, "RateLimit", `"a";r=0;t=4`), 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &partner{latency: 10 * ms, answer: script(c.answer)}
				tr := newTransport(t, client.Config{Base: p, Retry: once, MaxPause: long(1)[0], MaxWait: -1})
				_, err := get(tr, "first")
				require.NoError(t, err)
				start := time.Now()
				if c.pause > 0 {
					ctx, cancel := context.WithTimeout(t.Context(), c.pause/2)
					defer cancel()
					_, _, err := call(ctx, tr, http.MethodGet, "https://a.example/", "early", nil)
					e := limited(t, err)
					require.Equal(t, client.ReasonTold, e.Reason)
					require.Equal(t, c.pause, e.RetryAfter)
					require.Equal(t, start, time.Now())
				}
				_, _, err = call(t.Context(), tr, http.MethodGet, "https://b.example/", "elsewhere", nil)
				require.NoError(t, err)
				var wg sync.WaitGroup
				for i := range 5 {
					wg.Go(func() {
						_, err := get(tr, fmt.Sprint(i))
						require.NoError(t, err)
					})
				}
				wg.Wait()
				all := p.arrivals("a.example")[1:]
				require.Len(t, all, 5)
				first := max(c.pause, 10*ms) // the clock stands at the answer of elsewhere
				require.Equal(t, first, all[0].at.Sub(start))
				if c.pause > 0 {
					require.Equal(t, first+10*ms, all[1].at.Sub(start), "the others wait for the answer of who tries")
				}
			})
		})
	}
}

// Requests that are on their way out when the pause begins wait too, and keep their order; the limit holds afterwards.
func TestPauseStopsTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{latency: 10 * ms, answer: script(says(200), says(429, "Retry-After", "3"))}
		tr := newTransport(t, client.Config{Base: p, Limit: limiter.PerSecond(100), Headroom: 1, Retry: once})
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 30 {
			wg.Go(func() {
				_, err := get(tr, fmt.Sprintf("%02d", i))
				require.NoError(t, err)
			})
			synctest.Wait()
		}
		wg.Wait()
		got := offsets(p, start)
		// The second is refused at 20 ms, as the third leaves.
		paused := 0
		for i, at := range got {
			require.Equal(t, fmt.Sprintf("%02d", i), p.arrivals("")[i].name)
			if at > 20*ms {
				require.GreaterOrEqual(t, at, 3*time.Second+20*ms)
				paused++
			}
		}
		require.GreaterOrEqual(t, paused, 27)
		require.Less(t, got[len(got)-1], 4*time.Second, "what was booked in vain is little")
	})
}

// Who has a place in flight and is sent back by a pause does not keep it from who has the turn.
func TestPauseWithFewPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{latency: 5 * ms, answer: script(says(429, "Retry-After", "1"))}
		tr := newTransport(t, client.Config{Base: p, Limit: limiter.PerSecond(100), InFlight: 2, Retry: once})
		start := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://a.example/", http.NoBody)
			require.NoError(t, err)
			res, err := tr.RoundTrip(r)
			require.NoError(t, err)
			time.Sleep(30 * time.Second) // its body stays open
			require.NoError(t, res.Body.Close())
		})
		for i := range 3 {
			synctest.Wait()
			wg.Go(func() {
				_, err := get(tr, fmt.Sprint(i))
				require.NoError(t, err)
				require.Less(t, time.Since(start), 2*time.Second)
			})
		}
		wg.Wait()
		require.Equal(t, []string{"", "0", "1", "2"}, p.names(""))
	})
}

// While somebody tries, nobody is refused for want of his answer, which may come at any time.
func TestWaitingForWhoTriesIsNoRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{latency: 300 * ms, answer: script(says(429, "Retry-After", "1"))}
		tr := newTransport(t, client.Config{Base: p, Retry: once})
		_, err := get(tr, "refused")
		require.NoError(t, err)
		time.Sleep(time.Second)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := get(tr, "tries")
			require.NoError(t, err)
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 700*ms)
		defer cancel()
		_, _, err = call(ctx, tr, http.MethodGet, "https://a.example/", "waits", nil)
		require.NoError(t, err)
		wg.Wait()
	})
}

// A refusal that says nothing is waited out, longer each time in a row.
func TestPenalty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &partner{answer: script(says(429), says(429), says(429), says(200), says(429))}
		tr := newTransport(t, client.Config{Base: p, Retry: once})
		var at []time.Time
		for i := range 6 {
			_, err := get(tr, fmt.Sprint(i))
			require.NoError(t, err)
			at = append(at, p.arrivals("")[i].at)
		}
		for i, most := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 0, time.Second} {
			gap := at[i+1].Sub(at[i])
			require.GreaterOrEqual(t, gap, most/2, "%d", i)
			require.LessOrEqual(t, gap, most, "%d", i)
		}
	})
}

// What is left is not exceeded, and spread where it is little.
func TestPaceFromFields(t *testing.T) {
	for name, c := range map[string]struct {
		config client.Config
		answer func() (int, http.Header)
		want   []time.Duration // of the second and later, from the answer
	}{
		"plenty":       {client.Config{}, says(200, "X-RateLimit-Limit", "6", "X-RateLimit-Remaining", "5", "X-RateLimit-Reset", "10"), []time.Duration{0, 0, 0, 0, 0, 10000}},
		"little":       {client.Config{}, says(200, "X-RateLimit-Limit", "50", "X-RateLimit-Remaining", "5", "X-RateLimit-Reset", "10"), []time.Duration{2000, 4000, 6000, 8000, 10000, 10000}},
		"unknown":      {client.Config{}, says(200, "RateLimit", `"p";r=2;t=4`), []time.Duration{2000, 4000, 4000}},
		"never spread": {client.Config{PaceBelow: -1}, says(200, "RateLimit", `"p";r=2;t=4`), []time.Duration{0, 0, 4000}},
		"always":       {client.Config{PaceBelow: 1}, says(200, "X-RateLimit-Limit", "6", "X-RateLimit-Remaining", "5", "X-RateLimit-Reset", "10"), []time.Duration{2000, 4000}},
		"of three":     {client.Config{Replicas: 3, PaceBelow: -1}, says(200, "RateLimit", `"p";r=7;t=4`), []time.Duration{0, 0, 4000}},
		"less than us": {client.Config{Replicas: 3}, says(200, "RateLimit", `"p";r=2;t=4`), []time.Duration{4000}},
		"two policies": {client.Config{PaceBelow: -1}, says(200, "RateLimit", `"a";r=1;t=2, "b";r=3;t=60`), []time.Duration{0, 2000, 2000, 60000}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &partner{answer: script(c.answer)}
				// Later answers say nothing, so what was told holds until its time is over.
				p.latency = 0
				config := c.config
				config.Base, config.MaxWait = p, -1
				tr := newTransport(t, config)
				_, err := get(tr, "first")
				require.NoError(t, err)
				start := time.Now()
				var wg sync.WaitGroup
				for i := range len(c.want) {
					wg.Go(func() {
						_, err := get(tr, fmt.Sprint(i))
						require.NoError(t, err)
					})
				}
				wg.Wait()
				got := offsets(p, start)[1:]
				for i, want := range c.want {
					require.InDelta(t, want*ms, got[i], float64(ms), "%v", got)
				}
			})
		})
	}
}

// board is a Pauses in memory.
type board struct {
	mu    sync.Mutex
	until map[limiter.Key]time.Time
	err   error
	asked int
}

func (b *board) Pause(_ context.Context, key limiter.Key, d time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if until := time.Now().Add(d); b.err == nil && until.After(b.until[key]) {
		b.until[key] = until
	}
	return b.err
}

func (b *board) Paused(_ context.Context, key limiter.Key) (time.Duration, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked++
	return max(0, time.Until(b.until[key])), b.err
}

// What one process is told, the others keep.
func TestPausesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &board{until: map[limiter.Key]time.Time{}}
		p := &partner{answer: script(says(429, "Retry-After", "30"))}
		var fleet []*client.Transport
		for range 3 {
			fleet = append(fleet, newTransport(t, client.Config{Base: p, Pauses: b, Retry: once}))
		}
		_, err := get(fleet[0], "told")
		require.NoError(t, err)
		start := time.Now()
		for _, tr := range fleet {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			_, _, err := call(ctx, tr, http.MethodGet, "https://a.example/", "early", nil)
			cancel()
			require.Equal(t, 30*time.Second, limited(t, err).RetryAfter)
		}
		_, err = get(fleet[1], "later")
		require.NoError(t, err)
		require.Equal(t, 30*time.Second, time.Since(start))

		b.err = fmt.Errorf("%w: gone", limiter.ErrUnavailable)
		_, err = get(fleet[2], "a")
		require.NoError(t, err, "without Strict it is an offer")
		strict := newTransport(t, client.Config{Base: p, Pauses: b, Strict: true, MaxWait: 5 * time.Second})
		_, err = get(strict, "b")
		require.Equal(t, client.ReasonUnavailable, limited(t, err).Reason)
	})
}
