package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/adapters/stdhttp"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/adaptive"
	"github.com/spillway-go/spillway/middleware"
)

const (
	work        = 2 * time.Millisecond  // of the processor, for /compute
	lookup      = 5 * time.Millisecond  // before that, in which /compute waits for what it computes with
	littleWork  = time.Millisecond / 5  // likewise, for /depend
	usualWait   = 50 * time.Millisecond // for the dependency
	longestWait = 10 * time.Second
)

// service has a route that needs the processor and one that waits for somebody else. It does not notice clients that leave.
type service struct {
	burn func(time.Duration)     // keeps the processor busy for as long
	load func() (float64, bool)  // of the processor, 0…1
	held *adaptive.Controller    // nil: nothing moves
	in   atomic.Int64            // in flight, behind the guard
	mu   sync.Mutex              // guards what follows
	now  int                     // the phase of the request that came last
	told [len(phases) + 1]report // by phase
}

// report is what a service knows of a phase.
type report struct {
	Most           int      // in flight at once
	Least, Highest int      // bound; 0: there is none
	Reasons        []string // why, each once
	Loads          []float64
}

// standing is how a service stands.
type standing struct {
	InFlight, Held int // behind the guard, and as the controller thinks
	Bound          int // 0: there is none that moves
	Phases         []report
}

func newService(burn func(time.Duration), load func() (float64, bool)) *service {
	return &service{burn: burn, load: load}
}

// handler is the service behind a guard, if it has one. What asks about it is outside.
func (s *service) handler(guard *middleware.Guard) http.Handler {
	routes := http.NewServeMux()
	routes.HandleFunc("GET /compute", func(w http.ResponseWriter, r *http.Request) {
		defer s.enter(r)()
		<-time.After(lookup)
		s.burn(work)
		fmt.Fprintln(w, "computed")
	})
	routes.HandleFunc("GET /depend", func(w http.ResponseWriter, r *http.Request) {
		defer s.enter(r)()
		takes, err := time.ParseDuration(r.FormValue("takes"))
		if err != nil {
			takes = usualWait
		}
		<-time.After(min(max(takes, 0), longestWait))
		s.burn(littleWork)
		fmt.Fprintln(w, "answered")
	})
	outside := http.NewServeMux()
	outside.HandleFunc("GET /standing", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(s.stands())
	})
	var guarded http.Handler = routes
	if guard != nil {
		guarded = stdhttp.Middleware(guard)(routes)
	}
	outside.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.arrive(phaseOf(r))
		guarded.ServeHTTP(w, r)
	})
	return outside
}

// phaseOf is the phase that a request says it belongs to; that of everybody else is behind the last one.
func phaseOf(r *http.Request) int {
	if n, err := strconv.Atoi(r.FormValue("phase")); err == nil && n >= 0 && n < len(phases) {
		return n
	}
	return len(phases)
}

func (s *service) arrive(phase int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = phase
	s.note(nil)
}

// note remembers where the bound is, and why.
func (s *service) note(e *limiter.Event) {
	if s.held == nil {
		return
	}
	t := &s.told[s.now]
	bound, why := s.held.Bound(), string(s.held.State().Reason)
	if e != nil {
		bound, why = e.Decision.Limit.Burst, e.Reason
	}
	if t.Least == 0 || bound < t.Least {
		t.Least = bound
	}
	t.Highest = max(t.Highest, bound)
	if !slices.Contains(t.Reasons, why) {
		t.Reasons = append(t.Reasons, why)
	}
}

// Observe sees a bound that moves.
func (s *service) Observe(e limiter.Event) {
	if e.Kind != limiter.EventAdapt {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(&e)
}

func (s *service) enter(r *http.Request) (leave func()) {
	n := int(s.in.Add(1))
	s.mu.Lock()
	defer s.mu.Unlock()
	t := &s.told[phaseOf(r)]
	t.Most = max(t.Most, n)
	return func() { s.in.Add(-1) }
}

// sample looks at the load of the processor until done is closed.
func (s *service) sample(done <-chan struct{}) {
	ticker := time.NewTicker(250 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ticker.C:
		}
		if v, ok := s.load(); ok {
			s.mu.Lock()
			t := &s.told[s.now]
			t.Loads = append(t.Loads, v)
			s.mu.Unlock()
		}
	}
}

func (s *service) stands() standing {
	s.mu.Lock()
	defer s.mu.Unlock()
	x := standing{InFlight: int(s.in.Load()), Phases: slices.Clone(s.told[:])}
	if s.held != nil {
		x.Held, x.Bound = s.held.InFlight(), s.held.Bound()
	}
	return x
}

// cpu is the mean of the load.
func (r *report) cpu() (sum float64) {
	for _, v := range r.Loads {
		sum += v / float64(len(r.Loads))
	}
	return sum
}
