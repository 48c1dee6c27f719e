package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter/adaptive"
)

// processor is one in the time of a bubble: whoever wants it waits for his turn.
type processor struct {
	turn chan struct{}
	mu   sync.Mutex
	busy time.Duration
}

func newProcessor() *processor { return &processor{turn: make(chan struct{}, 1)} }

func (p *processor) burn(d time.Duration) {
	p.turn <- struct{}{}
	time.Sleep(d)
	<-p.turn
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy += d
}

// meter returns the load since it was asked before.
func (p *processor) meter() func() (float64, bool) {
	var busy time.Duration
	at := time.Now()
	return func() (float64, bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		now := time.Now()
		v, ok := float64(p.busy-busy)/float64(now.Sub(at)), now.After(at)
		busy, at = p.busy, now
		return v, ok
	}
}

// direct calls the handler without a network, so that time is that of the bubble. A client that leaves is not waited for.
type direct struct {
	http.Handler
	serving *sync.WaitGroup
}

func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	served := r.Clone(r.Context())
	served.RequestURI, served.RemoteAddr = r.URL.RequestURI(), "127.0.0.1:1"
	w := httptest.NewRecorder()
	done := make(chan struct{})
	d.serving.Go(func() {
		defer close(done)
		d.ServeHTTP(w, served)
	})
	select {
	case <-done:
		return w.Result(), nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// virtually puts a service behind a guard to all phases, in the time of a bubble. change is made to the service before.
func virtually(t *testing.T, guardName, law string, length time.Duration, load func(*processor) func() (float64, bool)) *result {
	t.Helper()
	p := newProcessor()
	s := newService(p.burn, p.meter())
	guard, err := guardFor(s, guardName, law, load(p))
	require.NoError(t, err)
	if s.held != nil {
		defer func() { require.NoError(t, s.held.Close()) }()
	}
	done := make(chan struct{})
	var sampling, serving sync.WaitGroup
	sampling.Go(func() { s.sample(done) })
	defer sampling.Wait()
	defer close(done)
	to := &target{"http://service.example", clientOf(direct{s.handler(guard), &serving})}
	r := &result{guard: guardName, length: length}
	r.seen, err = to.play(t.Context(), length)
	require.NoError(t, err)
	r.stood, err = to.settle(t.Context())
	require.NoError(t, err)
	serving.Wait()
	return r
}

func asItIs(p *processor) func() (float64, bool) { return p.meter() }

// The whole run in the time of a bubble, with every law.
func TestOverload(t *testing.T) {
	const length = 6 * time.Second
	synctest.Test(t, func(t *testing.T) {
		none := virtually(t, guardNone, "", length, asItIs)
		bound := virtually(t, guardFixed, "", length, asItIs)
		require.NoError(t, none.audit())
		require.NoError(t, bound.audit())
		capacity := int(length / work)
		require.Less(t, none.seen[overload].good, capacity/2, "nobody is served in time by a service without a guard")
		require.Greater(t, none.stood.Phases[overload].Most, 10*fixed)
		require.Positive(t, bound.seen[overload].refused)
		for _, law := range []string{"hybrid", "aimd", "bbr"} {
			moves := virtually(t, guardAdaptive, law, length, asItIs)
			require.NoError(t, moves.audit(), law)
			require.NoError(t, compare(none, moves), law)
			require.Greater(t, moves.seen[overload].good, capacity*7/10, law)
			require.Zero(t, moves.seen[overload].late+moves.seen[overload].gaveUp, law)
			require.Greater(t, moves.seen[slow].good, bound.seen[slow].good, law)
			var out bytes.Buffer
			table(&out, []*result{none, bound, moves})
			require.Equal(t, 3*len(phases), bytes.Count(out.Bytes(), []byte(" % | ")), law)
		}
	})
}

// A controller that cannot see the processor goes by its fixed bound, and that is told.
func TestBlind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := virtually(t, guardAdaptive, "hybrid", 5*time.Second, func(*processor) func() (float64, bool) {
			return func() (float64, bool) { return 0, false }
		})
		require.Equal(t, []string{string(adaptive.FallbackCPU)}, r.stood.Phases[overload].Reasons)
		require.Equal(t, fixed, r.stood.Phases[overload].Highest)
		require.Error(t, r.audit(), "it never grows")
	})
}

// Every promise that is broken is named.
func TestBrokenPromises(t *testing.T) {
	kept := func(guard string) *result {
		r := &result{guard: guard, length: time.Second, seen: make([]tally, len(phases)), stood: standing{Phases: make([]report, len(phases)+1)}}
		for n := range r.seen {
			r.seen[n] = tally{offered: 100, good: 100, offeredLately: 50}
			if guard == guardAdaptive {
				r.stood.Phases[n] = report{Most: 20, Least: 10 + n, Highest: 20 + n}
			}
		}
		return r
	}
	for _, guard := range guards {
		require.NoError(t, kept(guard).audit())
	}
	for want, c := range map[string]struct {
		guard string
		spoil func(*result)
	}{
		"1 requests and 0 places are left over":   {guardNone, func(r *result) { r.stood.InFlight = 1 }},
		"0 requests and 2 places are left over":   {guardAdaptive, func(r *result) { r.stood.Held = 2 }},
		"usual: 101 requests have another number": {guardNone, func(r *result) { r.seen[0].offered++ }},
		"after it: 1 requests failed":             {guardNone, func(r *result) { r.seen[after].failed++; r.seen[after].good-- }},
		"usual: 11 were in flight":                {guardFixed, func(r *result) { r.stood.Phases[0].Most = fixed + 1 }},
		"overload: 201 were in flight":            {guardAdaptive, func(r *result) { r.stood.Phases[overload].Most = most + 1 }},
		"usual: 1 were refused":                   {guardNone, func(r *result) { r.seen[0].refused++; r.seen[0].good-- }},
		"usual again: the limit was 1 to 24":      {guardAdaptive, func(r *result) { r.stood.Phases[again].Least = 1 }},
		"after it: the limit has not come back": {guardAdaptive, func(r *result) {
			r.seen[after].refused, r.seen[after].refusedLately = 3, 3
			r.seen[after].good -= 3
		}},
		"the limit was 11 in the overload, and 11 at most": {guardAdaptive, func(r *result) { r.stood.Phases[slow].Highest = 11 }},
	} {
		r := kept(c.guard)
		c.spoil(r)
		require.ErrorContains(t, r.audit(), want)
	}
	worse := kept(guardAdaptive)
	worse.seen[overload].good = 99
	require.ErrorContains(t, compare(kept(guardNone), worse), "overload: 99 answers in time, and 100 without a guard")
	require.NoError(t, compare(worse, kept(guardNone)))
}

// What a client sees is one thing.
func TestTally(t *testing.T) {
	var sum tally
	for _, a := range []answer{
		{status: 200, took: inTime}, {status: 200, took: inTime + 1}, {status: 503}, {status: 503}, {gaveUp: true}, {status: 500}, {},
	} {
		sum.add(a, a.status == 503)
	}
	require.Equal(t, tally{offered: 7, good: 1, late: 1, refused: 2, gaveUp: 1, failed: 2, offeredLately: 2, refusedLately: 2}, sum)
}

// A route that waits for what it is told to wait, and for no longer than that.
func TestRoutes(t *testing.T) {
	for query, want := range map[string]time.Duration{
		"/compute": lookup + work, "/depend": usualWait + littleWork, "/depend?takes=1s": time.Second + littleWork,
		"/depend?takes=-1s": littleWork, "/depend?takes=1h": longestWait + littleWork, "/depend?takes=x&phase=99": usualWait + littleWork,
	} {
		synctest.Test(t, func(t *testing.T) {
			p := newProcessor()
			s := newService(p.burn, p.meter())
			begin := time.Now()
			w := httptest.NewRecorder()
			s.handler(nil).ServeHTTP(w, httptest.NewRequest(http.MethodGet, query, http.NoBody))
			require.Equal(t, 200, w.Code)
			require.Equal(t, want, time.Since(begin), query)
			x := s.stands()
			require.Equal(t, 1, x.Phases[len(phases)].Most, query)
			require.Zero(t, x.InFlight)
		})
	}
}
