package fallback

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/spillway-go/spillway/internal/errtext"
	"github.com/spillway-go/spillway/limiter"
)

// breaker is a circuit breaker that is open for a different time at each opening, and whose changes are told outside of
// its lock.
type breaker struct {
	cb       *gobreaker.CircuitBreaker[struct{}]
	base     time.Time
	cooldown time.Duration
	observer limiter.Observer
	log      *slog.Logger
	name     string

	logsStates bool // the observer does

	// shut is when the next call may be a probe, in ns since base; 0: closed or half open. gobreaker's own time-out is the
	// same for every opening, and replicas that lost one store at one moment would probe it in step for ever. It goes half
	// open only when asked, so asking it later is all that jitter needs. And while shut, a call costs a load and a reading
	// of the clock, and no lock.
	shut atomic.Int64

	// counted is when the last failure that counted ended, in ns since base: calls made before it failed with it.
	counted atomic.Int64
	cause   atomic.Pointer[error] // of the last failure

	changed atomic.Bool // changes is not empty
	mu      sync.Mutex
	changes []limiter.Event
	telling bool // somebody is on his way through changes
	outage  bool // told; of whoever is telling
}

// What a call meant for the breaker.
var (
	errFailed = errors.New("failed or slow")
	errNoSign = errors.New("says nothing about the primary")
)

func newBreaker(c Config) *breaker {
	b := &breaker{base: time.Now(), cooldown: c.Cooldown, observer: c.Observer, log: c.Logger, name: c.Name}
	if b.log == nil {
		b.log = slog.Default()
	}
	if l, ok := b.observer.(limiter.StateLogger); ok {
		b.logsStates = l.LogsStates()
	}
	b.counted.Store(-1)
	failures := uint32(c.Failures)
	b.cb = gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		Name:        c.Name,
		MaxRequests: 1,          // one probe at a time
		Timeout:     c.Cooldown, // the least; see shut
		ReadyToTrip: func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= failures },
		IsExcluded:  func(err error) bool { return errors.Is(err, errNoSign) },
		// Called with the breaker's lock held: observers are told later.
		OnStateChange: func(_ string, _, to gobreaker.State) { b.change(to) },
	})
	return b
}

// do calls f unless the breaker is open or another call is the probe. f returns nil, errFailed or errNoSign; its panic
// counts as a failure and goes on. false: f was not called.
func (b *breaker) do(f func() error) (asked bool) {
	if b.wait() > 0 {
		return false
	}
	defer b.tell()
	_, _ = b.cb.Execute(func() (struct{}, error) {
		asked = true
		return struct{}{}, f()
	})
	return asked
}

// failed says what a failure of a call made at began counts for. What fails together is one failure.
func (b *breaker) failed(began time.Duration, cause error) error {
	for {
		last := b.counted.Load()
		if int64(began) < last {
			return errNoSign
		}
		if b.counted.CompareAndSwap(last, int64(b.now())) {
			b.cause.Store(&cause)
			return errFailed
		}
	}
}

// wait returns how long the primary is not going to be asked; 0: it is, or somebody is asking it.
func (b *breaker) wait() time.Duration {
	until := b.shut.Load()
	if until == 0 {
		return 0
	}
	return max(0, time.Duration(until)-b.now())
}

// now is the monotonic clock of waits and durations.
func (b *breaker) now() time.Duration { return time.Since(b.base) }

// closed reports whether calls are passed on as they come.
func (b *breaker) closed() bool { return b.shut.Load() == 0 && b.cb.State() == gobreaker.StateClosed }

func (b *breaker) change(to gobreaker.State) {
	var until time.Duration
	if to == gobreaker.StateOpen {
		// One nanosecond more than the time-out, which has to be over and not just reached.
		until = b.now() + b.cooldown + 1 + rand.N(b.cooldown/2+1)
	}
	b.shut.Store(int64(until))
	e := limiter.Event{Kind: limiter.EventBreaker, Name: b.name, Time: time.Now(), State: limiter.BreakerClosed}
	switch to {
	case gobreaker.StateOpen:
		e.State = limiter.BreakerOpen
		if cause := b.cause.Load(); cause != nil {
			e.Err = *cause
		}
	case gobreaker.StateHalfOpen:
		e.State = limiter.BreakerHalfOpen
	case gobreaker.StateClosed:
	}
	b.mu.Lock()
	b.changes = append(b.changes, e)
	b.changed.Store(true)
	b.mu.Unlock()
}

// tell hands the changes to the observer, in their order and with no lock held. Who finds somebody else telling leaves
// his to him.
func (b *breaker) tell() {
	if !b.changed.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.telling {
		return
	}
	b.telling = true
	for len(b.changes) > 0 {
		events := b.changes
		b.changes = nil
		b.changed.Store(false)
		b.mu.Unlock()
		for _, e := range events {
			b.observe(e)
		}
		b.mu.Lock()
	}
	b.telling = false
}

// stands tells observers of a breaker that is closed because it is new, or no more: that is the reason, and no recovery.
func (b *breaker) stands(reason string) {
	defer func() { _ = recover() }()
	if b.observer != nil {
		b.observer.Observe(limiter.Event{Kind: limiter.EventBreaker, Name: b.name, Time: time.Now(), State: limiter.BreakerClosed, Reason: reason})
	}
}

// observe drops the panic of an observer: it must not cost a decision. The log is told of outages, not of the probes in
// between.
func (b *breaker) observe(e limiter.Event) {
	defer func() { _ = recover() }()
	switch {
	case b.logsStates:
	case e.State == limiter.BreakerOpen && !b.outage:
		b.outage = true
		b.log.Warn("spillway: a limiter is away, its substitute decides", "limiter", b.name, "error", errtext.Of(e.Err))
	case e.State == limiter.BreakerClosed && b.outage:
		b.outage = false
		b.log.Info("spillway: a limiter is back and decides again", "limiter", b.name)
	}
	if b.observer != nil {
		b.observer.Observe(e)
	}
}
