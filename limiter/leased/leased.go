package leased

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"regexp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/internal/rediscall"
	"github.com/spillway-go/spillway/limiter"
)

// Config is what [New] takes. Client alone is required.
type Config struct {
	// Client is any client of go-redis: a *redis.Client (also for Sentinel), a *redis.ClusterClient or a *redis.Ring, built
	// as you like. Every call is bounded whatever its options say. It stays yours: Close does not close it.
	Client redis.UniversalClient
	// Prefix begins every key: prefix:policy:{identity}:lease. Two applications on one Redis need two prefixes; letters,
	// digits, '_', '.' and '-', at most 64. Empty: keys begin with the policy.
	Prefix string
	// Sync is how much demand a lease is to cover, and so how often a process asks for a busy key: 10 ms…10 s; zero: 100 ms.
	// Leases live five times as long, and at least a second: so long a process that dies keeps what it held. Processes that
	// share keys may differ in it.
	Sync time.Duration
	// Timeout bounds a call to Redis in all: an answer that is later is none. A decision waits for the call under way and for its
	// own, so twice as long at most. Zero: 50 ms; at most half a lease's life.
	Timeout time.Duration
	// MaxKeys bounds the keys this process knows of. Beyond it those that were not asked for give back what they hold and are
	// forgotten. It is soft: keys are looked for in 64 parts, so up to 64 more may be known, and all that are being decided just
	// now. Zero: 100,000.
	MaxKeys int
	// Observer sees an EventStore for each call to Redis, and for each policy that is in use an EventLease about every Sync and
	// a last one when there are no leases any more; nil: nobody.
	Observer limiter.Observer
	// Logger is told when Redis stops answering, with the cause, and when it answers again; nil: [slog.Default]. An Observer
	// that is a [limiter.StateLogger] is told instead.
	Logger *slog.Logger
	// Name tells this store from others in events and logs.
	Name string
}

const (
	defaultSync    = 100 * time.Millisecond
	shortestSync   = 10 * time.Millisecond
	longestSync    = 10 * time.Second
	defaultTimeout = 50 * time.Millisecond
	defaultMaxKeys = 100_000
)

// Limiter is a [limiter.Limiter] that spends quota leased from Redis. It also is a [limiter.Batcher], a [limiter.Refunder], a
// [limiter.Resetter] and a [limiter.Selective]. All methods are safe for concurrent use. Make one with [New], and Close it:
// that gives back what it holds.
type Limiter struct {
	store    store
	prefix   string
	sync     time.Duration
	observer limiter.Observer
	log      *slog.Logger // nil: the observer writes
	name     string
	base     time.Time // instants of nodes count from here
	wall     int64     // base in Unix nanoseconds
	table    table
	id       string
	entries  atomic.Uint64

	closed  atomic.Bool
	away    atomic.Bool // the last call failed
	slowest atomic.Int64
	retired retired

	mu      sync.Mutex
	stopped bool // no call may start
	running sync.WaitGroup
	holders map[*entry]struct{} // those that may have something to give back
	timer   *time.Timer

	telling sync.Mutex          // the events of leases are in order
	told    map[string]struct{} // policies that were last told to have leases
}

var validPrefix = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// New makes a limiter that leases from Redis. It does no I/O, so Redis may be away, and starts nothing. The error names
// everything wrong with c and wraps [limiter.ErrInvalid].
func New(c Config) (*Limiter, error) {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: leased: "+format, append([]any{limiter.ErrInvalid}, args...)...))
	}
	if c.Prefix != "" && !validPrefix.MatchString(c.Prefix) {
		bad("prefix %q is not letters, digits, '_', '.' and '-', at most 64", c.Prefix)
	}
	if c.Sync == 0 {
		c.Sync = defaultSync
	}
	if c.Sync < shortestSync || c.Sync > longestSync {
		bad("sync %v is outside %v…%v", c.Sync, shortestSync, longestSync)
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if life := leaseLife(c.Sync); c.Timeout < 0 || c.Timeout > life/2 {
		bad("time-out %v is outside 0…%v, half of a lease's life", c.Timeout, life/2)
	}
	if c.MaxKeys == 0 {
		c.MaxKeys = defaultMaxKeys
	}
	if c.MaxKeys < 0 {
		bad("%d keys are fewer than none", c.MaxKeys)
	}
	l := &Limiter{
		prefix: c.Prefix, sync: c.Sync, observer: c.Observer, name: c.Name, base: time.Now(),
		id: fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64()), holders: map[*entry]struct{}{}, told: map[string]struct{}{},
	}
	l.wall = l.base.UnixNano()
	l.table.init(c.MaxKeys)
	if s, ok := c.Observer.(limiter.StateLogger); !ok || !s.LogsStates() {
		if l.log = c.Logger; l.log == nil {
			l.log = slog.Default()
		}
	}
	if c.Client == nil {
		bad("Client is missing")
	} else if client, err := rediscall.Bound(c.Client, max(c.Timeout, 1)); err != nil {
		errs = append(errs, fmt.Errorf("leased: %w", err))
	} else {
		l.store = onRedis{client}
	}
	if len(errs) > 0 {
		if l.store != nil {
			_ = l.store.close()
		}
		return nil, errors.Join(errs...)
	}
	return l, nil
}

// Serves implements [limiter.Selective]: a token bucket can be leased, and Unlimited and DenyAll need no state. Everything else
// is counted by other limiters.
func (l *Limiter) Serves(limit limiter.Limit) error {
	if err := limit.Validate(); err != nil {
		return fmt.Errorf("leased: %w", err)
	}
	if limit.Algorithm != limiter.TokenBucket && limit != limiter.Unlimited && limit != limiter.DenyAll {
		return fmt.Errorf("%w: leased: %v cannot be leased, token_bucket alone can", limiter.ErrInvalid, limit.Algorithm)
	}
	return nil
}

// Close gives back what is held, within one time-out, and makes every later call fail with [limiter.ErrClosed]. It waits for
// calls and groups under way, and leaves no goroutine. What cannot be given back is burnt, and refills from when its lease ends. It
// may be called more than once, and does not close the client that New was given.
func (l *Limiter) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	l.mu.Lock()
	l.stopped = true
	if l.timer != nil {
		l.timer.Stop()
	}
	l.mu.Unlock()
	l.running.Wait()
	all := l.table.all()
	l.giveBack(context.Background(), l.leaving(all, (*node).leave))
	l.tellLast(all)
	return l.store.close()
}

func leaseLife(sync time.Duration) time.Duration { return max(time.Second, 5*sync) }

var errClosed = fmt.Errorf("%w: leased", limiter.ErrClosed)

// now is the instant nodes count in.
func (l *Limiter) now() int64 { return int64(time.Since(l.base)) }

// newID returns a name that no node has had: what is leased to a name that is used again could be spent twice.
func (l *Limiter) newID() string { return fmt.Sprintf("%s.%x", l.id, l.entries.Add(1)) }

func newSeed() maphash.Seed { return maphash.MakeSeed() }

var (
	_ limiter.Limiter   = (*Limiter)(nil)
	_ limiter.Batcher   = (*Limiter)(nil)
	_ limiter.Refunder  = (*Limiter)(nil)
	_ limiter.Resetter  = (*Limiter)(nil)
	_ limiter.Selective = (*Limiter)(nil)
)
