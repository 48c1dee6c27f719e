package redislimit

import (
	"errors"
	"fmt"
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
	// as you like. Every decision is bounded whatever its options say. It stays yours: Close does not close it.
	Client redis.UniversalClient
	// Prefix begins every key: prefix:policy:{identity}:algorithm. Two applications on one Redis need two prefixes; letters,
	// digits, '_', '.' and '-', at most 64. Empty: keys begin with the policy.
	Prefix string
	// Timeout bounds a decision in all: waiting for a connection, dialing, sending and receiving. Zero: 50 ms. A context
	// that ends sooner bounds it further.
	Timeout time.Duration
	// CallerClock makes the clock of the calling process decide instead of the server's. Then explicit instants given to
	// AllowAll and Refund count, a process whose clock is behind waits longer by as much, and limits hold by the fastest
	// clock. Leave it off unless Redis cannot tell the time: with TIME the clocks of the processes do not matter.
	CallerClock bool
	// DenyCache is how long a denial may be answered from this process's memory; never longer than its RetryAfter. A refund,
	// reset or raise in another process is seen within that time. Zero: 1 s, which is the most. Negative: off.
	DenyCache time.Duration
	// NoSharing gives every decision a round trip of its own. Otherwise decisions that are waiting at the same moment share
	// one.
	NoSharing bool
	// Observer sees an EventStore for each call to Redis; nil: nobody.
	Observer limiter.Observer
	// Name tells this store from others in events.
	Name string
}

const (
	defaultTimeout = 50 * time.Millisecond
	maxDenyCache   = time.Second
)

// Limiter is a [limiter.Limiter] with state on Redis. It also is a [limiter.Batcher], a [limiter.Refunder] and a
// [limiter.Resetter]. All methods are safe for concurrent use. Make one with [New].
type Limiter struct {
	client   *rediscall.Client
	own      redis.UniversalClient // made by Open
	prefix   string
	caller   bool
	observer limiter.Observer
	name     string
	rules    ruleTable
	lines    *lines   // nil: every decision has a round trip of its own
	denials  *denials // nil: every denial is asked for
	closed   atomic.Bool
	groups   sync.Pool // of one limiter, as channels must not leave the synctest bubble that made them
}

var validPrefix = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// New makes a limiter on Redis. It does no I/O, so Redis may be away. The error names everything wrong with c and wraps
// [limiter.ErrInvalid].
func New(c Config) (*Limiter, error) {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: redislimit: "+format, append([]any{limiter.ErrInvalid}, args...)...))
	}
	if c.Prefix != "" && !validPrefix.MatchString(c.Prefix) {
		bad("prefix %q is not letters, digits, '_', '.' and '-', at most 64", c.Prefix)
	}
	if c.Timeout < 0 {
		bad("time-out %v is negative", c.Timeout)
	}
	if c.DenyCache > maxDenyCache {
		bad("deny cache %v is above %v", c.DenyCache, maxDenyCache)
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	l := &Limiter{prefix: c.Prefix, caller: c.CallerClock, observer: c.Observer, name: c.Name}
	if c.Client == nil {
		bad("Client is missing")
	} else if client, err := rediscall.Bound(c.Client, max(c.Timeout, 1)); err != nil {
		errs = append(errs, fmt.Errorf("redislimit: %w", err))
	} else {
		l.client = client
	}
	if len(errs) > 0 {
		if l.client != nil {
			_ = l.client.Close()
		}
		return nil, errors.Join(errs...)
	}
	if !c.NoSharing {
		l.lines = newLines(c.Timeout, l.send, l.giveUp)
		l.lines.several = l.client.Sharded()
	}
	if c.DenyCache == 0 {
		c.DenyCache = maxDenyCache
	}
	if c.DenyCache > 0 {
		l.denials = newDenials(c.DenyCache)
	}
	return l, nil
}

// Open is [New] for those who have no client yet: it makes one from a URL and sets it as c.Client, and Close closes it. The
// URL is one of
//
//	redis://user:password@host:6379/0            rediss:// with TLS, unix:// for a socket
//	redis+cluster://host:6379,host2:6379
//	redis+sentinel://host:26379,host2/MASTER/0
//	env:NAME                                     the URL is in an environment variable
//	file:/path                                   the URL is in a file
//
// with the options of go-redis behind a question mark. Like New it does no I/O. No error shows a password.
func Open(url string, c Config) (*Limiter, error) {
	client, err := rediscall.Open(url)
	if err != nil {
		return nil, fmt.Errorf("redislimit: %w", err)
	}
	c.Client = client
	l, err := New(c)
	if err != nil {
		_ = client.Close()
		return nil, err
	}
	l.own = client
	return l, nil
}

// Close makes every later call fail with [limiter.ErrClosed]. It closes the client of [Open], and not one that New was given.
func (l *Limiter) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	err := l.client.Close()
	if l.own != nil {
		err = errors.Join(err, l.own.Close())
	}
	return err
}

var errClosed = fmt.Errorf("%w: redislimit", limiter.ErrClosed)

var (
	_ limiter.Limiter  = (*Limiter)(nil)
	_ limiter.Batcher  = (*Limiter)(nil)
	_ limiter.Refunder = (*Limiter)(nil)
	_ limiter.Resetter = (*Limiter)(nil)
)
