package fallback

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/internal/rediscall"
	"github.com/spillway-go/spillway/limiter"
)

// CensusConfig is what [NewCensus] takes. Only Client is required.
type CensusConfig struct {
	// Client leads to the Redis that all replicas share. It stays the caller's.
	Client redis.UniversalClient
	// Prefix begins the key, which is Prefix:replicas, or with no prefix spillway:replicas. Who shares limits shares it, and
	// nobody else.
	Prefix string
	// Interval is how often a replica reports, a quarter more or less at random; zero: 2 s. One that has not reported for
	// three of them does not count any more. Replicas may differ in it, as while it is rolled out: each is counted by its
	// own. Only a Redis that comes back empty is then believed too early by those who report more often than others.
	Interval time.Duration
	// Timeout bounds one report; zero: 250 ms. No request waits for it.
	Timeout time.Duration
	// Observer sees an EventStore after each report; nil: nobody.
	Observer limiter.Observer
	// Name tells this census from others in events.
	Name string
}

// Census counts the replicas that live, by their reports to Redis, and remembers the number while Redis is away. All
// methods are safe for concurrent use. Make one with [NewCensus].
//
// A number that rises counts at once. One that falls counts when every report of three intervals in a row says so: a
// Redis that comes back empty hears from the first replica before it hears from the others, and whoever believed it
// would take the share of all.
type Census struct {
	report   func(ctx context.Context, leave bool) (int, error)
	release  func() error
	interval time.Duration
	observer limiter.Observer
	name     string

	count atomic.Int64

	// Of the reporting goroutine.
	lowSince time.Time // since when reports say less than count; zero: the last one did not
	low      int       // the most they said

	mu      sync.Mutex
	cancel  context.CancelFunc // nil: not started
	done    chan struct{}
	isEnded bool
}

const (
	defaultInterval = 2 * time.Second
	defaultReport   = 250 * time.Millisecond
	missed          = 3 // intervals without a report after which a replica does not count
)

// census reports one replica and returns how many there are, in one step. Times are the server's, in ms. The score of a
// replica is when its report runs out: each knows its own interval and nobody else's, and those differ while the setting is
// rolled out. A replica that leaves gives no time to live.
var census = rediscall.NewScript(`
local ttl = tonumber(ARGV[2])
if ttl == 0 then
  redis.call('ZREM', KEYS[1], ARGV[1])
  return tostring(redis.call('ZCARD', KEYS[1]))
end
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
redis.call('ZADD', KEYS[1], string.format('%.0f', now + ttl), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', string.format('(%.0f', now))
if redis.call('PTTL', KEYS[1]) < ttl then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return tostring(redis.call('ZCARD', KEYS[1]))
`)

// NewCensus returns a census that has not begun, or an error wrapping [limiter.ErrInvalid] that names everything wrong
// with c. It does no I/O.
func NewCensus(c CensusConfig) (*Census, error) {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("fallback: %w: "+format, append([]any{limiter.ErrInvalid}, args...)...))
	}
	if c.Client == nil {
		bad("no Client")
	}
	if c.Interval != 0 && (c.Interval < 10*time.Millisecond || c.Interval > time.Hour) {
		bad("Interval %v is outside 10ms…1h", c.Interval)
	}
	if c.Timeout < 0 {
		bad("Timeout %v is negative", c.Timeout)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	call, err := rediscall.Bound(c.Client, or(c.Timeout, defaultReport))
	if err != nil {
		return nil, fmt.Errorf("fallback: %w", err)
	}
	interval := or(c.Interval, defaultInterval)
	keys := []string{or(c.Prefix, "spillway") + ":replicas"}
	id := rand.Text()
	report := func(ctx context.Context, leave bool) (int, error) {
		ttl := missed * interval.Milliseconds()
		if leave {
			ttl = 0
		}
		reply, err := call.Run(ctx, census, keys, id, ttl)
		if err != nil {
			return 0, err
		}
		n, err := strconv.Atoi(reply)
		if err != nil {
			return 0, fmt.Errorf("fallback: %w: census replies %q", limiter.ErrUnavailable, reply)
		}
		return n, nil
	}
	return newCensus(report, call.Close, interval, c.Observer, c.Name), nil
}

func newCensus(report func(context.Context, bool) (int, error), release func() error, interval time.Duration, o limiter.Observer, name string) *Census {
	return &Census{report: report, release: release, interval: interval, observer: o, name: name}
}

// Count returns the last number that was learned; 0: none so far. It costs no trip.
func (c *Census) Count() int { return int(c.count.Load()) }

// Start begins to report, at once and then every interval, until Close. Starting again, or after Close, does nothing.
func (c *Census) Start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cancel != nil || c.isEnded {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel, c.done = cancel, make(chan struct{})
	go c.run(ctx, c.done)
}

// Close stops reporting and takes this replica out of the count, so that the others need not find out; if Redis cannot be
// asked, they do. It takes no longer than two reports. Count goes on returning the last number. Closing again does nothing.
func (c *Census) Close() error {
	c.mu.Lock()
	if c.isEnded {
		c.mu.Unlock()
		return nil
	}
	c.isEnded = true
	cancel, done := c.cancel, c.done
	c.mu.Unlock()
	if cancel != nil {
		cancel()
		<-done
		_, _ = c.report(context.Background(), true)
	}
	return c.release()
}

func (c *Census) run(ctx context.Context, done chan<- struct{}) {
	defer close(done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		began := time.Now()
		n, err := c.report(ctx, false)
		if ctx.Err() != nil {
			return
		}
		c.tell(began, err)
		c.learn(time.Now(), n, err)
		// A quarter either way, or replicas that started together would report together.
		timer.Reset(c.interval*3/4 + mathrand.N(c.interval/2+1))
	}
}

// learn takes the result of a report.
func (c *Census) learn(now time.Time, n int, err error) {
	switch {
	case err != nil:
		c.lowSince = time.Time{}
	case n >= c.Count():
		c.count.Store(int64(n))
		c.lowSince = time.Time{}
	case c.lowSince.IsZero():
		c.lowSince, c.low = now, n
	default:
		c.low = max(c.low, n)
		if now.Sub(c.lowSince) >= missed*c.interval {
			c.count.Store(int64(c.low))
			c.lowSince = time.Time{}
		}
	}
}

// tell drops the panic of an observer: the count must go on.
func (c *Census) tell(began time.Time, err error) {
	if c.observer == nil {
		return
	}
	defer func() { _ = recover() }()
	now := time.Now()
	c.observer.Observe(limiter.Event{
		Kind: limiter.EventStore, Time: now, Name: c.name, Op: "census", Duration: now.Sub(began), Err: err,
		Reason: rediscall.Cause(err),
	})
}
