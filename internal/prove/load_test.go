package prove_test

import (
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// demand is what is asked of each guard for one count.
type demand struct {
	name    string
	workers int
	every   time.Duration // for each worker
}

var demands = []demand{
	{busy, 4, 20 * time.Millisecond},
	{calm, 1, 25 * time.Millisecond},
	{open, 1, 50 * time.Millisecond},
	{early, 1, 25 * time.Millisecond},
	{late, 1, 25 * time.Millisecond},
	{both, 1, 10 * time.Millisecond},
	{refund, 1, 25 * time.Millisecond},
}

// answer is what a client got.
type answer struct {
	pass   // the instants at the client
	guard  int
	status int // 0: none, the guard was killed
	via    string
}

// load is clients of all guards.
type load struct {
	client  *http.Client
	urls    []atomic.Pointer[string] // of each guard
	stop    chan struct{}
	running sync.WaitGroup

	mu      sync.Mutex
	answers map[string][]answer
}

func newLoad(t *testing.T, guards []*process) *load {
	l := &load{
		client: &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 100}},
		urls:   make([]atomic.Pointer[string], len(guards)), stop: make(chan struct{}), answers: map[string][]answer{},
	}
	for k, g := range guards {
		l.urls[k].Store(&g.url)
	}
	t.Cleanup(l.client.CloseIdleConnections)
	return l
}

// begin starts what is asked for one count, until end.
func (l *load) begin(d demand) {
	for k := range l.urls {
		for range d.workers {
			l.running.Go(func() {
				tick := time.NewTicker(d.every)
				defer tick.Stop()
				for {
					select {
					case <-l.stop:
						return
					case <-tick.C:
						l.ask(k, d.name, "")
					}
				}
			})
		}
	}
}

func (l *load) end() {
	close(l.stop)
	l.running.Wait()
}

// ask asks one guard once. A query is a count of its own.
func (l *load) ask(guard int, name, query string) answer {
	a := answer{guard: guard, via: "none"}
	url := *l.urls[guard].Load() + "/" + name
	if query != "" {
		url, name = url+"?"+query, query
	}
	request, _ := http.NewRequest(http.MethodGet, url, nil)
	request.Header.Set("X-Client", "one")
	a.began = time.Now().UnixNano()
	if response, err := l.client.Do(request); err == nil {
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		a.status, a.via = response.StatusCode, response.Header.Get(viaField)
	}
	a.at = time.Now().UnixNano()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers[name] = append(l.answers[name], a)
	return a
}

// of returns the answers for a count.
func (l *load) of(name string) []answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.answers[name][:len(l.answers[name]):len(l.answers[name])]
}

// decidedSince returns when each guard had again decided by its store, for requests that began after from: those that are
// asked for all the time. It is false while one has not.
func (l *load) decidedSince(from time.Time) (last time.Time, isBack bool) {
	for _, name := range []string{busy, calm, both} {
		back := make([]time.Time, len(l.urls))
		for _, a := range l.of(name) {
			if a.began >= from.UnixNano() && back[a.guard].IsZero() && slices.Contains([]string{"store", "lease", alone}, a.via) {
				back[a.guard] = time.Unix(0, a.at)
			}
		}
		for _, at := range back {
			if at.IsZero() {
				return time.Time{}, false
			}
			if at.After(last) {
				last = at
			}
		}
	}
	return last, true
}

// pause lets real processes go on for a while: they live by the clock on the wall.
func pause(d time.Duration) { <-time.NewTimer(d).C }
