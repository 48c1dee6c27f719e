package prove_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/redistest"
)

const (
	soakClients  = 12
	sampleEvery  = 10 * time.Second
	reloadEvery  = 500 * time.Millisecond
	restartEvery = 20 * time.Second // of Redis, by turns: killed for two seconds, paused for two, or at once

	// By how much the last quarter may be above the first.
	heapGrows, heapSlack = 1.2, 4 << 20
	countSlack           = 20 // goroutines, and files: pools of connections breathe
)

// One process with all modes behind it serves as much as it can for long, while policies are reloaded, Redis comes and goes,
// and there are ever new keys. It does not grow.
func TestSoak(t *testing.T) {
	if *minutes == 0 {
		t.Skip("make soak runs it")
	}
	long := time.Duration(*minutes * float64(time.Minute))
	server := redistest.Start(t)
	p := begin(t, setup{Mode: soaking, Kind: "single", Addrs: []string{server.Addr()}, Guards: 2})
	client := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	defer client.CloseIdleConnections()
	ctx, stop := context.WithTimeout(t.Context(), long)
	defer stop()
	s := &soak{url: p.url, client: client, statuses: map[string]map[int]int{}}
	var running sync.WaitGroup
	for range soakClients {
		running.Go(func() { s.ask(ctx) })
	}
	running.Go(func() {
		s.each(ctx, reloadEvery, func() {
			response, err := client.Post(p.url+"/reload", "", nil)
			if err == nil {
				_ = response.Body.Close()
				if response.StatusCode == http.StatusOK {
					s.reloads.Add(1)
				}
			}
		})
	})
	restarts := 0
	samples := []state{}
	s.each(ctx, sampleEvery, func() {
		if len(samples)%int(restartEvery/sampleEvery) == 0 {
			switch restarts % 3 {
			case 0:
				server.Kill()
				pause(2 * time.Second)
			case 1:
				server.Pause()
				pause(2 * time.Second)
				server.Resume()
			}
			server.Restart()
			restarts++
		}
		samples = append(samples, p.state(t, client))
		last := samples[len(samples)-1]
		t.Logf("%3d s: heap %5.1f MB, %d goroutines, %d files", len(samples)*int(sampleEvery.Seconds()), megabytes(last.Heap), last.Goroutines, last.Files)
	})
	running.Wait()
	client.CloseIdleConnections()
	require.Empty(t, p.end(), "left behind")

	s.check(t)
	require.Positive(t, restarts)
	require.GreaterOrEqual(t, len(samples), 8, "too short to compare quarters")
	t.Logf("first quarter %+v, last quarter %+v", quarter(samples, 0), quarter(samples, 3))
	require.Empty(t, grown(samples))
	if *minutes >= 10 {
		require.NoError(t, os.WriteFile("../../docs/soak.md", []byte(s.report(t, server, long, restarts, samples)), 0o644))
	}
}

// soak is what clients of one process see.
type soak struct {
	url      string
	client   *http.Client
	keys     atomic.Int64
	reloads  atomic.Int64
	mu       sync.Mutex
	statuses map[string]map[int]int // by mode
}

// ask asks without a pause until ctx ends: half of the time for one of a few hot keys, else for a key nobody had before.
func (s *soak) ask(ctx context.Context) {
	for ctx.Err() == nil {
		mode, key := modes[rand.IntN(len(modes))], fmt.Sprintf("hot%d", rand.IntN(20))
		if rand.IntN(2) == 0 {
			key = fmt.Sprintf("new%d", s.keys.Add(1))
		}
		url := s.url + "/" + mode
		if rand.IntN(10) == 0 {
			url += "?" + giveBack
		}
		request, _ := http.NewRequest(http.MethodGet, url, nil)
		request.Header.Set("X-Client", key)
		status := 0
		if response, err := s.client.Do(request); err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			status = response.StatusCode
		}
		s.mu.Lock()
		if s.statuses[mode] == nil {
			s.statuses[mode] = map[int]int{}
		}
		s.statuses[mode][status]++
		s.mu.Unlock()
	}
}

// each calls f again and again until ctx ends.
func (s *soak) each(ctx context.Context, every time.Duration, f func()) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f()
		}
	}
}

// check: the policies fail open, so an outage is no answer.
func (s *soak) check(t *testing.T) {
	t.Helper()
	require.Positive(t, s.reloads.Load())
	for _, mode := range modes {
		for status, n := range s.statuses[mode] {
			require.Contains(t, []int{http.StatusOK, http.StatusTooManyRequests, http.StatusTeapot}, status, "%s, %d times", mode, n)
		}
		require.Positive(t, s.statuses[mode][http.StatusTooManyRequests], "%s has limited nothing", mode)
		t.Logf("%s: %s", mode, told(s.statuses[mode]))
	}
}

// quarter is the median of each number in a quarter of the samples.
func quarter(samples []state, k int) state {
	n := len(samples)
	part := samples[k*n/4 : (k+1)*n/4]
	return state{
		Heap: median(part, func(s state) uint64 { return s.Heap }), Goroutines: median(part, func(s state) int { return s.Goroutines }),
		Files: median(part, func(s state) int { return s.Files }),
	}
}

// grown tells what the last quarter has more of than the first, slack apart.
func grown(samples []state) (what []string) {
	first, last := quarter(samples, 0), quarter(samples, 3)
	if float64(last.Heap) > heapGrows*float64(first.Heap)+heapSlack {
		what = append(what, fmt.Sprintf("heap: %.1f MB, at first %.1f MB", megabytes(last.Heap), megabytes(first.Heap)))
	}
	if last.Goroutines > first.Goroutines+countSlack {
		what = append(what, fmt.Sprintf("goroutines: %d, at first %d", last.Goroutines, first.Goroutines))
	}
	if last.Files > first.Files+countSlack {
		what = append(what, fmt.Sprintf("files: %d, at first %d", last.Files, first.Files))
	}
	return what
}

func TestWhatGrowsIsFound(t *testing.T) {
	for name, c := range map[string]struct {
		of    func(k int) state
		grows int
	}{
		"nothing":               {func(int) state { return state{Heap: 10 << 20, Goroutines: 30, Files: 30} }, 0},
		"a leak of each":        {func(k int) state { return state{Heap: uint64(10+k) << 20, Goroutines: 30 + k, Files: 30 + k} }, 3},
		"what is full at first": {func(k int) state { return state{Heap: uint64(10+min(k, 4)) << 20} }, 0},
		"outages":               {func(k int) state { return state{Heap: 10 << 20, Goroutines: 30 + k%3/2*100, Files: 30 + k%4/3*100} }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var samples []state
			for k := range 40 {
				samples = append(samples, c.of(k))
			}
			require.Len(t, grown(samples), c.grows)
		})
	}
}

func median[T int | uint64](samples []state, of func(state) T) T {
	var all []T
	for _, s := range samples {
		all = append(all, of(s))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func megabytes(n uint64) float64 { return float64(n) / (1 << 20) }

func (s *soak) report(t *testing.T, server *redistest.Server, long time.Duration, restarts int, samples []state) string {
	var b strings.Builder
	total := 0
	for _, mode := range modes {
		for _, n := range s.statuses[mode] {
			total += n
		}
	}
	fmt.Fprintf(&b, `# Soak

One process with all three modes behind it, central in net/http, leased in Gin and fallback in Echo, served %d clients without
a pause for %v: %d requests, half of them with a key that nobody had used before, %d different ones in all, where no table
holds more than %d. A tenth were answered so that their units are given back. Policies were reloaded %d times, with a new
one and one less each time. Redis was killed, paused or restarted %d times. All policies fail open, and every answer was 200,
418 of the handler, or 429. Afterwards the process had no goroutine and no socket left.

%s, %d processors, %s, Redis %s. Samples every %v, after a garbage collection; medians of each quarter, and
the highest of all. %s writes this file, and fails where the last quarter is above the first: by more than a fifth and
%d MB of heap, or by more than %d goroutines or files.

| | heap | goroutines | files and sockets |
|---|---|---|---|
`, soakClients, long, total, s.keys.Load(), maxKeys, s.reloads.Load(), restarts, runtime.Version(), runtime.NumCPU(), runtime.GOOS+"/"+runtime.GOARCH,
		versionOf(t, server), sampleEvery, "`make soak`", heapSlack>>20, countSlack)
	for k, name := range []string{"first quarter", "second", "third", "last"} {
		q := quarter(samples, k)
		fmt.Fprintf(&b, "| %s | %.1f MB | %d | %d |\n", name, megabytes(q.Heap), q.Goroutines, q.Files)
	}
	highest := func(x, y state) state {
		return state{Heap: max(x.Heap, y.Heap), Goroutines: max(x.Goroutines, y.Goroutines), Files: max(x.Files, y.Files)}
	}
	var top state
	for _, one := range samples {
		top = highest(top, one)
	}
	fmt.Fprintf(&b, "| highest | %.1f MB | %d | %d |\n\n| mode | answers |\n|---|---|\n", megabytes(top.Heap), top.Goroutines, top.Files)
	for _, mode := range modes {
		fmt.Fprintf(&b, "| %s | %s |\n", mode, told(s.statuses[mode]))
	}
	return b.String()
}

// versionOf is the version of a server.
func versionOf(t *testing.T, server *redistest.Server) string {
	t.Helper()
	info, err := server.Client().InfoMap(context.Background(), "server").Result()
	require.NoError(t, err)
	for _, section := range slices.Collect(maps.Values(info)) {
		if v := section["redis_version"]; v != "" {
			return v
		}
	}
	return "unknown"
}
