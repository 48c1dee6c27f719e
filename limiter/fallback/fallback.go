package fallback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
)

// Config is what [New] takes. Only Primary is required.
type Config struct {
	// Primary decides while it works. It has to bound its calls itself, as the limiters on Redis here do, and to say
	// [limiter.ErrUnavailable] when it cannot decide: nothing else leads to the secondary. It cannot be a *Limiter.
	Primary limiter.Limiter
	// Secondary decides while the primary does not; nil: a memory limiter of its own, which Close closes. Every take that
	// the primary admits is charged to it as well, so it should cost no trip. It cannot be a *Limiter.
	Secondary limiter.Limiter

	// Replicas is how many processes share the limits, 1…[MaxReplicas]; zero: 1. It is the floor of the Census. Too low
	// a number lets an outage admit more than the limits, too high a number less.
	Replicas int
	// Census counts the replicas that live; nil: Replicas is the number. It is started and closed by whoever made it.
	Census *Census

	// Failures is how many failures in a row open the breaker; zero: 5. Calls that were under way together fail together, as
	// those of one round trip do, and count once: so a store that is slow for a moment opens nothing, and one that is away
	// is asked for five time-outs in turn.
	Failures int
	// SlowCall makes a call that takes longer a failure for the breaker; its decision counts all the same. Zero: 250 ms,
	// five times the time-out of the limiters on Redis here, so that it acts only where somebody chose or forgot a longer
	// one. −1: off.
	SlowCall time.Duration
	// Cooldown is how long the breaker stays open at least, before one call may try the primary again; zero: 1 s. Each
	// opening adds up to half of it at random, so that replicas do not try in step. One call a second is no load for a
	// store that recovers, and costs one caller in that second a time-out at most.
	Cooldown time.Duration

	// Observer sees an EventBreaker when New makes the breaker, whenever it changes and at Close, and the events of the memory limiter made here; nil:
	// nobody. It is called with no lock held.
	Observer limiter.Observer
	// Logger is told when the breaker opens for an outage, with the cause, and when it closes again; nil: [slog.Default].
	Logger *slog.Logger
	// Name tells this limiter from others in events and logs.
	Name string
}

const (
	defaultFailures = 5
	defaultSlowCall = 250 * time.Millisecond
	defaultCooldown = time.Second
)

// Limiter is a [limiter.Limiter] that turns to a second one while the first is failing. It also is a [limiter.Batcher], a
// [limiter.Refunder] and a [limiter.Resetter] as far as both are. All methods are safe for concurrent use. Make one with
// [New].
type Limiter struct {
	primary, secondary sides
	owned              *memory.Limiter // the secondary, if it was made here
	breaker            *breaker
	floor              int
	census             *Census
	slow               time.Duration
	isClosed           atomic.Bool
	scratch            sync.Pool // of *scratch
}

// sides is a limiter and what else it can do; nil: it cannot.
type sides struct {
	limiter.Limiter
	batch  limiter.Batcher
	refund limiter.Refunder
	reset  limiter.Resetter
}

func sidesOf(l limiter.Limiter) sides {
	s := sides{Limiter: l}
	s.batch, _ = l.(limiter.Batcher)
	s.refund, _ = l.(limiter.Refunder)
	s.reset, _ = l.(limiter.Resetter)
	return s
}

var (
	_ limiter.Limiter  = (*Limiter)(nil)
	_ limiter.Batcher  = (*Limiter)(nil)
	_ limiter.Refunder = (*Limiter)(nil)
	_ limiter.Resetter = (*Limiter)(nil)
)

// New returns a limiter with a closed breaker, or an error wrapping [limiter.ErrInvalid] that names everything wrong with
// c. It does no I/O and starts nothing.
func New(c Config) (*Limiter, error) {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("fallback: %w: "+format, append([]any{limiter.ErrInvalid}, args...)...))
	}
	if c.Primary == nil {
		bad("no Primary")
	}
	if _, is := c.Primary.(*Limiter); is {
		bad("Primary is a *fallback.Limiter: refunds could not tell whose ViaFallback is meant")
	}
	if _, is := c.Secondary.(*Limiter); is {
		bad("Secondary is a *fallback.Limiter: refunds could not tell whose ViaFallback is meant")
	}
	if c.Replicas < 0 || c.Replicas > MaxReplicas {
		bad("Replicas %d are outside 1…%d", c.Replicas, MaxReplicas)
	}
	if c.Failures < 0 || c.Failures > math.MaxInt32 {
		bad("Failures %d are outside 1…%d", c.Failures, math.MaxInt32)
	}
	if c.SlowCall < -1 {
		bad("SlowCall %v is negative; −1 is off", c.SlowCall)
	}
	if c.Cooldown < 0 || c.Cooldown > limiter.MaxPeriod {
		bad("Cooldown %v is outside 1ns…366 days", c.Cooldown)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	c.Failures = or(c.Failures, defaultFailures)
	c.SlowCall = or(c.SlowCall, defaultSlowCall)
	c.Cooldown = or(c.Cooldown, defaultCooldown)
	if c.SlowCall < 0 {
		c.SlowCall = math.MaxInt64
	}
	l := &Limiter{
		primary: sidesOf(c.Primary),
		breaker: newBreaker(c),
		floor:   max(1, c.Replicas),
		census:  c.Census,
		slow:    c.SlowCall,
	}
	if c.Secondary == nil {
		own, err := memory.New(memory.Config{Observer: c.Observer, Name: c.Name})
		if err != nil {
			return nil, fmt.Errorf("fallback: %w", err)
		}
		l.owned, c.Secondary = own, own
	}
	l.secondary = sidesOf(c.Secondary)
	l.breaker.stands(limiter.ReasonNew) // so that it can be seen before its first change
	return l, nil
}

func or[T comparable](v, byDefault T) T {
	var zero T
	if v == zero {
		return byDefault
	}
	return v
}

// Replicas returns how many replicas the limits are divided by at the moment.
func (l *Limiter) Replicas() int {
	if l.census == nil {
		return l.floor
	}
	return max(l.floor, l.census.Count())
}

// Close ends the limiter: later calls return [limiter.ErrClosed]. It closes the memory limiter that New made, and neither
// the primary, nor a secondary it was given, nor the census. Closing again does nothing.
func (l *Limiter) Close() {
	if !l.isClosed.Swap(true) {
		l.breaker.stands(limiter.ReasonEnd)
	}
	if l.owned != nil {
		l.owned.Close()
	}
}

var (
	errClosed  = fmt.Errorf("fallback: %w", limiter.ErrClosed)
	errOpen    = fmt.Errorf("fallback: %w: the breaker of the primary is open", limiter.ErrUnavailable)
	errNoBatch = fmt.Errorf("fallback: groups need a limiter.Batcher as primary and as secondary: %w", errors.ErrUnsupported)
)

// silence is how long a caller with a deadline has to have waited in vain to say something about the primary. Where every
// caller's deadline is shorter than the primary's time-out, nobody else notices an outage. It is many round trips, so that
// a deadline that was as good as over when the primary was asked is not held against it, and less than the time-out of the
// limiters on Redis here.
const silence = 20 * time.Millisecond

// judge says what the end of a call to the primary means for the breaker. began is when it was made.
func (l *Limiter) judge(ctx context.Context, err error, began time.Duration) error {
	took := l.breaker.now() - began
	switch {
	case took > l.slow:
		// However it ended: the primary had not answered by then.
		return l.breaker.failed(began, cmp.Or(err, fmt.Errorf("slow: %v", took)))
	case err == nil:
		return nil
	case errors.Is(err, limiter.ErrUnavailable) && ctx.Err() == nil:
		return l.breaker.failed(began, err)
	case took >= silence && (errors.Is(err, context.DeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded)):
		return l.breaker.failed(began, err)
	}
	// Bad input, a closed limiter, something not supported, or a caller who has left.
	return errNoSign
}

// reject is the error when neither side decided. What the secondary says about the input counts alone: joined with an
// outage, it could open a gate that fails open.
func reject(first, second error) error {
	switch {
	case !errors.Is(second, limiter.ErrUnavailable):
		return second
	case first == nil:
		first = errOpen
	}
	return fmt.Errorf("fallback: secondary: %w; primary: %w", second, first)
}

// patience is what a take is told that fits into the limit but not into a share of it: when the primary is asked again,
// at the latest.
func (l *Limiter) patience() time.Duration {
	if w := l.breaker.wait(); w > 0 {
		return w
	}
	return l.breaker.cooldown
}
