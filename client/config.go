package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// Config is what [New] takes. Only Base is required, and Limiter where there is a limit.
type Config struct {
	// Base sends the requests; required. http.DefaultTransport will do. That of net/http sends some again by itself, out of turn:
	// on HTTP/1 those that are idempotent where a connection that was used before breaks, once for each idle connection, and on
	// HTTP/2 what was refused by REFUSED_STREAM or left behind by GOAWAY. Where Retry makes up for it, or with Strict, it is kept
	// from that; nothing of it is on the wire. A request that Retry may not repeat fails then, with Strict. What is left is seen
	// by [net/http/httptrace], counted as [Stats].Resent, and takes its turns afterwards: on HTTP/1 requests given to Base before
	// the destination (scheme, host and port) has first answered, and POST, PUT and PATCH with an Idempotency-Key and no body; HTTP/2 without TLS; and
	// everything where Retry.Attempts is 1 and Strict is off.
	Base http.RoundTripper
	// Name is the space of the keys, so two Transports with one Name and one Limiter share their limits; 1 to 64 of
	// A-Z a-z 0-9 _ . -. Empty: "client".
	Name string
	// Key says whose limit a request counts against: [Host], [Routes], an account, or several joined. Each key is a
	// destination with a line, a breaker and a memory of what was told. Nil: Host(). A request without a key is not sent,
	// one for which the function returns [keyfunc.ErrSkip] is passed on as it is.
	Key keyfunc.Func

	// Limiter counts; a limit on Redis holds for all processes that share it. It needs a Limit or a Plan. It stays yours.
	Limiter limiter.Limiter
	// Limit is the number the partner has told, see the package comment for how it is kept; nil: none, answers alone are
	// obeyed. It may change at any time; with another algorithm it counts apart from then on.
	Limit limiter.Source
	// Plan returns another limit for some requests, such as that of an account; nil or false: Limit.
	Plan func(*keyfunc.Request) (limiter.Limit, bool)
	// Headroom is how much of the limit is used, above 0 to 1; zero: 0.9. What is left is for the time that requests are
	// under way: those that left evenly do not arrive evenly. A store's answer must take less than (1 − Headroom)·Period, see the
	// package comment; 1 keeps nothing back.
	Headroom float64
	// Strict never sends without the Limiter's word. While the store is away, requests wait for it as long as they may,
	// and fail. Decisions of a fallback (ViaFallback) do not count. What Base may still send again by itself is told there.
	// Without Strict, each process goes on with its even share of the limit, 1/Replicas, from a random instant if it had none.
	Strict bool
	// Replicas is how many processes share the limit, for what each decides alone: its share while the store is away, and
	// its part of what an answer says is left. Zero: 1.
	Replicas int

	// InFlight is how many requests may be under way at once for a key and process, from their start to the end of the
	// response's body, so bodies must be closed. Zero: 100. −1: no bound. A place may come free at any time, so as a rule a
	// request waits for one until its time is over; it fails at once if so many are in the line that it could not be in time were
	// each as quick as the quickest of late.
	InFlight int
	// MaxWaiting is how many requests may wait for a key; zero: 1000. More fail at once.
	MaxWaiting int
	// MaxWait is the longest wait for a turn; zero: 1 min. −1: as long as the request's deadline allows. A deadline that
	// is sooner counts.
	MaxWait time.Duration

	// MaxPause caps the waits that answers ask for; zero: 24 h, at most 366 days. After that one request tries.
	MaxPause time.Duration
	// PaceBelow is the share of a told quota below which what is left is spread over the time it has to last, 0 to 1;
	// above it only the number is kept. Zero: 0.5. −1: never. A quota of unknown size is always spread.
	PaceBelow float64
	// Pauses shares with other processes which destinations have asked for a pause; nil: each finds out by itself.
	Pauses Pauses

	Retry   Retry
	Breaker Breaker

	// MaxDestinations is how many keys have a line, a breaker and a memory of their own; zero: 1024. Idle ones make room.
	// While none is idle, newcomers share one line, without a breaker, and what one of them is told counts for all, for a
	// minute at most. Their limits are their own all the same.
	MaxDestinations int
	// Observer sees an EventDecision for each request sent or refused, with how long it waited as its Duration, and an
	// EventBreaker for each change; nil: nobody. It is told when the request has left and been answered, so one that is slow holds
	// up answers and no departure.
	Observer limiter.Observer
}

// Retry says what is sent again: requests that are idempotent (GET, HEAD, OPTIONS, TRACE, PUT, DELETE, or an
// Idempotency-Key) and replayable (no body, or GetBody), after 429, 502, 503, 504 and broken connections.
type Retry struct {
	// Attempts is how often a request is sent at most; zero: 3. 1: no retries but those of [Config].Base.
	Attempts int
	// Ratio is how many retries a request earns its destination; zero: 0.1. A destination begins with 10 and never has
	// more, so of n requests at most 10 + n·Ratio are retries. −1: no such bound.
	Ratio float64
	// Base is the longest wait before the first retry; zero: 100 ms. It doubles each time up to Cap; zero: 10 s. The wait
	// is drawn from 0 to that (full jitter), and at least what Retry-After says.
	Base, Cap time.Duration
}

// Breaker leaves alone for a while what fails all the time.
type Breaker struct {
	// Failures is how many failures in a row open it: broken connections, deadlines that passed, and the statuses 500, 502,
	// 503 and 504. A 503 with Retry-After, and 429, count as nothing: they are pauses. So does a connection of HTTP/1 that was used
	// before and breaks without an answer, as one that the destination has just closed. Zero: 5. −1: no breaker.
	Failures int
	// Cooldown is how long it stays open before one request tries; zero: 5 s.
	Cooldown time.Duration
}

// Pauses is what processes tell each other. Implementations are safe for concurrent use; on Redis they are two commands,
// see examples/partner. Without Strict its errors count for nothing.
type Pauses interface {
	// Pause tells that nothing may be sent to key for d from now. It makes a pause longer, never shorter.
	Pause(ctx context.Context, key limiter.Key, d time.Duration) error
	// Paused returns for how long nothing may be sent; 0: go on. It is asked once for each request that is sent.
	Paused(ctx context.Context, key limiter.Key) (time.Duration, error)
}

// The defaults.
const (
	defaultName         = "client"
	defaultHeadroom     = 0.9
	defaultInFlight     = 100
	defaultWaiting      = 1000
	defaultWait         = time.Minute
	defaultPause        = 24 * time.Hour
	defaultPaceBelow    = 0.5
	defaultAttempts     = 3
	defaultRatio        = 0.1
	defaultBase         = 100 * time.Millisecond
	defaultCap          = 10 * time.Second
	defaultFailures     = 5
	defaultCooldown     = 5 * time.Second
	defaultDestinations = 1024
	maxReplicas         = 1_000_000
)

func or[T comparable](v, byDefault T) T {
	var zero T
	if v == zero {
		return byDefault
	}
	return v
}

// complete sets the defaults.
func (c Config) complete() Config {
	c.Name = or(c.Name, defaultName)
	if c.Key == nil {
		c.Key = Host()
	}
	c.Headroom = or(c.Headroom, defaultHeadroom)
	c.Replicas = or(c.Replicas, 1)
	c.InFlight = or(c.InFlight, defaultInFlight)
	c.MaxWaiting = or(c.MaxWaiting, defaultWaiting)
	c.MaxWait = or(c.MaxWait, defaultWait)
	c.MaxPause = or(c.MaxPause, defaultPause)
	c.PaceBelow = or(c.PaceBelow, defaultPaceBelow)
	c.Retry.Attempts = or(c.Retry.Attempts, defaultAttempts)
	c.Retry.Ratio = or(c.Retry.Ratio, defaultRatio)
	c.Retry.Base = or(c.Retry.Base, defaultBase)
	c.Retry.Cap = or(c.Retry.Cap, defaultCap)
	c.Breaker.Failures = or(c.Breaker.Failures, defaultFailures)
	c.Breaker.Cooldown = or(c.Breaker.Cooldown, defaultCooldown)
	c.MaxDestinations = or(c.MaxDestinations, defaultDestinations)
	return c
}

// validate names everything wrong with a complete c.
func (c *Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("client: %w: "+format, append([]any{limiter.ErrInvalid}, args...)...))
	}
	if c.Base == nil {
		bad("no Base")
	}
	if !keyfunc.ValidName(c.Name) {
		bad("Name %q is not 1 to 64 letters, digits, '_', '.' and '-'", c.Name)
	}
	if err := keyfunc.Check(c.Key); err != nil {
		errs = append(errs, fmt.Errorf("client: Key: %w", err))
	}
	if c.Limiter == nil && (c.Limit != nil || c.Plan != nil) {
		bad("a limit and no Limiter")
	}
	if c.Limiter != nil && c.Limit == nil && c.Plan == nil {
		bad("a Limiter and neither Limit nor Plan, so it would limit nothing")
	}
	// Written so that NaN is refused too.
	headroomGood := c.Headroom > 0 && c.Headroom <= 1
	if !headroomGood {
		bad("Headroom %v is outside of 0 to 1", c.Headroom)
	}
	if c.Limit != nil && headroomGood {
		if err := c.check(c.Limit.Current()); err != nil {
			errs = append(errs, fmt.Errorf("client: Limit: %w", err))
		}
	}
	between := func(name string, v, least, most int, offToo bool) {
		if (v < least || v > most) && (!offToo || v != -1) {
			bad("%s %d is outside %d…%d", name, v, least, most)
		}
	}
	between("Replicas", c.Replicas, 1, maxReplicas, false)
	between("InFlight", c.InFlight, 1, math.MaxInt32, true)
	between("MaxWaiting", c.MaxWaiting, 1, math.MaxInt32, false)
	between("Retry.Attempts", c.Retry.Attempts, 1, 100, false)
	between("Breaker.Failures", c.Breaker.Failures, 1, math.MaxInt32, true)
	between("MaxDestinations", c.MaxDestinations, 1, math.MaxInt32, false)
	lasts := func(name string, d time.Duration, offToo bool) {
		if (d <= 0 || d > limiter.MaxPeriod) && (!offToo || d != -1) {
			bad("%s %v is outside 1ns…366 days", name, d)
		}
	}
	lasts("MaxWait", c.MaxWait, true)
	lasts("MaxPause", c.MaxPause, false)
	lasts("Retry.Base", c.Retry.Base, false)
	lasts("Retry.Cap", c.Retry.Cap, false)
	lasts("Breaker.Cooldown", c.Breaker.Cooldown, false)
	if !(c.PaceBelow >= 0 && c.PaceBelow <= 1 || c.PaceBelow == -1) {
		bad("PaceBelow %v is outside 0…1", c.PaceBelow)
	}
	if !(c.Retry.Ratio > 0 && c.Retry.Ratio <= 100 || c.Retry.Ratio == -1) {
		bad("Retry.Ratio %v is outside of 0 to 100", c.Retry.Ratio)
	}
	return errors.Join(errs...)
}

// check tells whether a limit can be kept.
func (c *Config) check(l limiter.Limit) error {
	if err := l.Validate(); err != nil {
		return err
	}
	s := shapeOf(l, c.Headroom)
	if err := s.limit.Validate(); err != nil {
		return fmt.Errorf("with headroom %v: %w", c.Headroom, err)
	}
	if selective, ok := c.Limiter.(limiter.Selective); ok {
		return selective.Serves(s.limit)
	}
	return nil
}
