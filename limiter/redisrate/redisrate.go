package redisrate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/internal/rediscall"
	"github.com/spillway-go/spillway/limiter"
)

// Config is what [New] takes.
type Config struct {
	// Client is the connection to Redis, a *redis.Client, *redis.ClusterClient or *redis.Ring. Required. It stays the
	// caller's: [Limiter.Close] does not close it.
	Client redis.UniversalClient
	// Prefix begins every key: prefix:Space:{ID}, without the first colon if it is empty. redis_rate itself puts "rate:"
	// in front of everything. A key with an empty Space is its ID alone. Braces are an error: they would choose the slot
	// of all keys in a Cluster.
	Prefix string
	// Timeout bounds each decision in all, the wait for a connection included; zero: 50 ms.
	Timeout time.Duration
	// Observer sees an EventStore for each call to Redis; nil: nobody.
	Observer limiter.Observer
	// Name tells this limiter from others in events.
	Name string
}

const defaultTimeout = 50 * time.Millisecond

// Limiter is a [limiter.Limiter] that lets redis_rate decide, and a [limiter.Resetter]. It is neither a [limiter.Batcher]
// nor a [limiter.Refunder]. All methods are safe for concurrent use. Make one with [New].
type Limiter struct {
	call     *rediscall.Client
	rate     *redis_rate.Limiter
	prefix   string
	name     string
	observer limiter.Observer
	closed   atomic.Bool
}

var (
	_ limiter.Limiter   = (*Limiter)(nil)
	_ limiter.Resetter  = (*Limiter)(nil)
	_ limiter.Selective = (*Limiter)(nil)
)

// New returns a limiter, or an error that names everything wrong with c. It does no I/O.
func New(c Config) (*Limiter, error) {
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	var errs []error
	if strings.ContainsAny(c.Prefix, "{}") {
		errs = append(errs, fmt.Errorf("redisrate: %w: prefix %q has braces", limiter.ErrInvalid, c.Prefix))
	}
	call, err := rediscall.Bound(c.Client, c.Timeout)
	if err != nil {
		errs = append(errs, fmt.Errorf("redisrate: %w", err))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Limiter{
		call: call, rate: redis_rate.NewLimiter(&once{call: call}),
		prefix: c.Prefix, name: c.Name, observer: c.Observer,
	}, nil
}

// Serves implements [limiter.Selective].
func (l *Limiter) Serves(limit limiter.Limit) error {
	if limit == limiter.Unlimited || limit == limiter.DenyAll {
		return nil
	}
	if _, err := newBucket(limit, time.Now()); err != nil {
		return fmt.Errorf("redisrate: %w", err)
	}
	return nil
}

// Allow implements [limiter.Limiter] in one trip to Redis. Limits other than TokenBucket, and those out of redis_rate's
// range (see the package comment), are [limiter.ErrInvalid].
func (l *Limiter) Allow(ctx context.Context, key limiter.Key, limit limiter.Limit, n int) (limiter.Decision, error) {
	if err := l.ready(ctx); err != nil {
		return limiter.Decision{}, err
	}
	if n < 0 {
		return limiter.Decision{}, fmt.Errorf("redisrate: %w: n = %d", limiter.ErrInvalid, n)
	}
	switch limit {
	case limiter.Unlimited:
		return limiter.Decision{Allowed: true, Via: limiter.ViaStore, Limit: limit, Remaining: math.MaxInt}, nil
	case limiter.DenyAll:
		d := limiter.Decision{Allowed: n == 0, Via: limiter.ViaStore, Limit: limit}
		if n > 0 {
			d.RetryAfter = limiter.Never
		}
		return d, nil
	}
	began := time.Now()
	b, err := newBucket(limit, began)
	if err != nil {
		return limiter.Decision{}, fmt.Errorf("redisrate: %w", err)
	}
	take := b.cost(n)
	if n == 0 || n > limit.Quota() {
		take = b.tooMuch()
	}
	res, err := l.rate.AllowN(ctx, key.Render(l.prefix, ""), b.asked(), take)
	l.observe(ctx, "allow", began, err)
	if err != nil {
		return limiter.Decision{}, fmt.Errorf("redisrate: %w", err)
	}
	return b.decide(limit, n, res), nil
}

// Reset implements [limiter.Resetter].
func (l *Limiter) Reset(ctx context.Context, key limiter.Key) error {
	if err := l.ready(ctx); err != nil {
		return err
	}
	began := time.Now()
	err := l.rate.Reset(ctx, key.Render(l.prefix, ""))
	l.observe(ctx, "reset", began, err)
	if err != nil {
		return fmt.Errorf("redisrate: %w", err)
	}
	return nil
}

// Close ends the limiter and closes connections it made, never Config.Client. Later calls return [limiter.ErrClosed].
// Closing again does nothing.
func (l *Limiter) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	return l.call.Close()
}

var errClosed = fmt.Errorf("redisrate: %w", limiter.ErrClosed)

func (l *Limiter) ready(ctx context.Context) error {
	if l.closed.Load() {
		return errClosed
	}
	return ctx.Err()
}

func (l *Limiter) observe(ctx context.Context, op string, began time.Time, err error) {
	if l.observer == nil {
		return
	}
	defer func() { _ = recover() }() // an observer's fault is not the decision's
	now := time.Now()
	l.observer.Observe(limiter.Event{
		Kind: limiter.EventStore, Context: ctx, Time: now, Name: l.name, Op: op, N: 1, Duration: now.Sub(began), Err: err,
		Reason: rediscall.Cause(err),
	})
}

// once is the client redis_rate is given. It runs every script once and within one bound, whatever redis_rate tries.
type once struct {
	call   *rediscall.Client
	script atomic.Pointer[rediscall.Script] // the one redis_rate runs, known from its first Eval on
}

// EvalSha runs the script by its hash. redis_rate keeps the source to itself and tells it only to who does not know the
// hash, so that is the first answer, without a trip.
func (o *once) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if s := o.script.Load(); s != nil && s.SHA() == sha {
		return o.run(ctx, s, keys, args)
	}
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(redis.ErrNoScript)
	return cmd
}

// Eval runs the script by its source, which is kept.
func (o *once) Eval(ctx context.Context, source string, keys []string, args ...any) *redis.Cmd {
	s := rediscall.NewScript(source)
	o.script.Store(s)
	return o.run(ctx, s, keys, args)
}

func (o *once) run(ctx context.Context, s *rediscall.Script, keys []string, args []any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	reply, err := o.call.RunAny(ctx, s, keys, args...)
	switch {
	case err != nil:
	case !wellFormed(reply):
		err = fmt.Errorf("%w: redis_rate's script was answered %T", limiter.ErrUnavailable, reply)
	case !isNumber(reply):
		err = fmt.Errorf("%w: the key holds what is not a number", limiter.ErrInvalid)
	}
	if err != nil {
		cmd.SetErr(err)
	} else {
		cmd.SetVal(reply)
	}
	return cmd
}

// wellFormed reports whether redis_rate can read a reply: it asserts these types without a check.
func wellFormed(reply any) bool {
	v, ok := reply.([]any)
	if !ok || len(v) != 4 {
		return false
	}
	_, allowed := v[0].(int64)
	_, remaining := v[1].(int64)
	_, retry := v[2].(string)
	_, reset := v[3].(string)
	return allowed && remaining && retry && reset
}

// isNumber reports whether a well-formed reply was counted from a number. Under a nan that somebody has put there, every
// comparison of the script is false: it admits whatever is asked, and writes nothing, so it would do so for ever.
func isNumber(reply any) bool {
	resetAfter, _ := reply.([]any)[3].(string)
	v, err := strconv.ParseFloat(resetAfter, 64) // which knows "nan", and not Lua's "-nan"
	return err == nil && !math.IsNaN(v)
}

// Del removes the key of a Reset.
func (o *once) Del(ctx context.Context, keys ...string) *redis.IntCmd {
	cmd := redis.NewIntCmd(ctx)
	args := []any{"DEL"}
	for _, k := range keys {
		args = append(args, k)
	}
	if _, err := o.call.Do(ctx, args...); err != nil {
		cmd.SetErr(err)
	}
	return cmd
}

// The others are part of what redis_rate asks of a client and are never called by it.

func (o *once) EvalRO(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	return unsupported(redis.NewCmd(ctx))
}

func (o *once) EvalShaRO(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	return unsupported(redis.NewCmd(ctx))
}

func (o *once) ScriptExists(ctx context.Context, _ ...string) *redis.BoolSliceCmd {
	return unsupported(redis.NewBoolSliceCmd(ctx))
}

func (o *once) ScriptLoad(ctx context.Context, _ string) *redis.StringCmd {
	return unsupported(redis.NewStringCmd(ctx))
}

func unsupported[C redis.Cmder](cmd C) C {
	cmd.SetErr(errors.ErrUnsupported)
	return cmd
}
