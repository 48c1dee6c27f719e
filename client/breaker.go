package client

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/spillway-go/spillway/limiter"
)

// breaker is the circuit breaker of one destination.
type breaker struct {
	cb   *gobreaker.TwoStepCircuitBreaker[struct{}]
	shut atomic.Pointer[time.Time] // until when it is open; nil: it is not
	cool time.Duration
	bad  atomic.Bool // the last that counted was a failure
}

// What a request meant for the breaker.
var (
	errFailed = errors.New("failed")
	errNoSign = errors.New("says nothing about the destination")
)

func newBreaker(t *Transport, key limiter.Key) *breaker {
	c := t.config.Breaker
	b := &breaker{cool: c.Cooldown}
	failures := uint32(c.Failures)
	b.cb = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: 1,
		Timeout:     c.Cooldown,
		ReadyToTrip: func(n gobreaker.Counts) bool { return n.ConsecutiveFailures >= failures },
		IsExcluded:  func(err error) bool { return errors.Is(err, errNoSign) },
		OnStateChange: func(_ string, _, to gobreaker.State) {
			var until *time.Time
			state := limiter.BreakerClosed
			switch to {
			case gobreaker.StateOpen:
				end := time.Now().Add(c.Cooldown)
				until = &end
				state = limiter.BreakerOpen
			case gobreaker.StateHalfOpen:
				state = limiter.BreakerHalfOpen
			case gobreaker.StateClosed:
			}
			b.shut.Store(until)
			t.changes.add(limiter.Event{Kind: limiter.EventBreaker, Name: t.config.Name, Key: key, Time: time.Now(), State: state})
		},
	})
	return b
}

// opened reports whether the breaker lets nobody try yet, and how long that lasts.
func (b *breaker) opened(now time.Time) (time.Duration, bool) {
	until := b.shut.Load()
	if until == nil {
		return 0, false
	}
	// The time-out has to be over and not just reached.
	wait := until.Sub(now) + 1
	return wait, wait > 0
}

// allow returns what to tell the outcome to, or nil and how long to wait.
func (b *breaker) allow(now time.Time) (func(error), time.Duration) {
	done, err := b.cb.Allow()
	if err == nil {
		return func(err error) {
			if !errors.Is(err, errNoSign) {
				b.bad.Store(err != nil)
			}
			done(err)
		}, 0
	}
	if wait, open := b.opened(now); open {
		return nil, wait
	}
	return nil, b.cool // somebody is trying; if it fails, that long
}

// clean reports whether forgetting the breaker changes nothing.
func (b *breaker) clean() bool { return !b.bad.Load() && b.shut.Load() == nil }
