package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"sync"
	"time"
)

const (
	inTime   = time.Second     // an answer after that is of no use
	patience = 3 * time.Second // of a client
)

// phase is how a service is used for a while.
type phase struct {
	name            string
	compute, depend float64 // requests a second
	wait            time.Duration
}

// phases are what every guard is put to. The processor does 500 of compute a second at best.
var phases = [...]phase{
	{"usual", 200, 40, usualWait},
	{"overload", 1000, 40, usualWait},
	{"after it", 200, 40, usualWait},
	{"slow dependency", 100, 100, 10 * usualWait},
	{"usual again", 200, 40, usualWait},
}

// Places in phases.
const (
	overload = 1
	after    = 2
	slow     = 3
	again    = 4
)

// tally is what clients saw of the requests that began in a phase.
type tally struct {
	offered, good, late, refused, gaveUp, failed int
	offeredLately, refusedLately                 int // in the second half
}

// answer is what became of a request.
type answer struct {
	status int // 0: none
	took   time.Duration
	gaveUp bool
}

func (t *tally) add(a answer, lately bool) {
	t.offered++
	if lately {
		t.offeredLately++
	}
	switch {
	case a.gaveUp:
		t.gaveUp++
	case a.status == http.StatusServiceUnavailable:
		t.refused++
		if lately {
			t.refusedLately++
		}
	case a.status != http.StatusOK:
		t.failed++
	case a.took > inTime:
		t.late++
	default:
		t.good++
	}
}

// target is where requests go.
type target struct {
	url    string
	client *http.Client
}

// ask asks once. A wait for a connection is a wait.
func (t *target) ask(ctx context.Context, patience time.Duration) answer {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url, http.NoBody)
	if err != nil {
		return answer{}
	}
	res, err := t.client.Do(r)
	if err == nil {
		_, err = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
	}
	a := answer{took: time.Since(begin), gaveUp: errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)}
	if err == nil {
		a.status = res.StatusCode
	}
	return a
}

// play offers all phases, each for a while, as many clients do who know nothing of each other: at random, and whether those
// before have been answered or not. It returns when the last client has been answered or has left.
func (t *target) play(ctx context.Context, length time.Duration) ([]tally, error) {
	random := rand.New(rand.NewPCG(1, 2)) // the same requests for every guard
	seen := make([]tally, len(phases))
	var mu sync.Mutex
	var wg sync.WaitGroup
	defer wg.Wait()
	begin := time.Now()
	for n, p := range phases {
		for at := time.Duration(0); ; {
			at += time.Duration(random.ExpFloat64() / (p.compute + p.depend) * float64(time.Second))
			if at >= length {
				break
			}
			one := target{fmt.Sprintf("%s/compute?phase=%d", t.url, n), t.client}
			if random.Float64()*(p.compute+p.depend) < p.depend {
				one.url = fmt.Sprintf("%s/depend?phase=%d&takes=%v", t.url, n, p.wait)
			}
			if !pause(ctx, time.Until(begin.Add(at))) {
				return nil, context.Cause(ctx)
			}
			wg.Go(func() {
				a := one.ask(ctx, patience)
				mu.Lock()
				defer mu.Unlock()
				seen[n].add(a, at >= length/2)
			})
		}
		begin = begin.Add(length)
	}
	wg.Wait()
	return seen, context.Cause(ctx)
}

// settle waits until nothing is in flight any more, and returns how the service stands then.
func (t *target) settle(ctx context.Context) (s standing, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		if s, err = t.stands(ctx); err != nil {
			return s, err
		}
		if s.InFlight == 0 && s.Held == 0 {
			return s, nil
		}
		if !pause(ctx, 100*time.Millisecond) {
			return s, fmt.Errorf("%d requests are in flight, and %d places taken, a minute after the last one", s.InFlight, s.Held)
		}
	}
}

func (t *target) stands(ctx context.Context) (s standing, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, t.url+"/standing", http.NoBody)
	if err != nil {
		return s, err
	}
	res, err := t.client.Do(r)
	if err != nil {
		return s, err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return s, errors.New(res.Status)
	}
	return s, json.NewDecoder(res.Body).Decode(&s)
}

// pause waits, and reports whether it did so to the end.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
