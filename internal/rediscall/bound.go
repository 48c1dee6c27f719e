package rediscall

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/limiter"
)

// Bound wraps c so that every call ends within timeout, which must be above 0, and is never repeated when it may have run.
// It does no I/O.
//
// A client built with ContextTimeoutEnabled can be bounded as it is: its connections are shared and its hooks see the calls.
// So is none that has socket time-outs off, or shorter than timeout, and no Cluster client that reads from replicas or finds
// its slots by a function, as one of NewFailoverClusterClient does.
//
// Of any other *redis.Client, also one of NewFailoverClient, the connections are shared, but its hooks do not see the calls:
// go-redis drops them where it changes a time-out. Any other *redis.ClusterClient or *redis.Ring gets connections of its own,
// made from the same options and closed by [Client.Close], without the hooks and the shards that a Ring is given later.
//
// Calls of a Cluster that fail make its client ask in the background who has which slot, at most four times a second: a master
// that is gone does not say who has its place.
//
// Callbacks in the options run within the call (OnConnect, credentials, limiter): one that ignores its context is not bounded.
//
// Every other type is [limiter.ErrInvalid], as its options cannot be read.
func Bound(c redis.UniversalClient, timeout time.Duration) (*Client, error) {
	if timeout <= 0 {
		return nil, fmt.Errorf("%w: a Redis time-out of %v, which must be above 0", limiter.ErrInvalid, timeout)
	}
	out := &Client{timeout: timeout}
	switch c := c.(type) {
	case *redis.Client:
		if c == nil {
			return nil, fmt.Errorf("%w: a Redis client that is nil", limiter.ErrInvalid)
		}
		out.rdb = c
		if o := c.Options(); !asItIs(timeout, o.ContextTimeoutEnabled, o.ReadTimeout, o.WriteTimeout) {
			out.rdb = boundPlain(c, timeout)
		}
	case *redis.ClusterClient:
		if c == nil {
			return nil, fmt.Errorf("%w: a Redis client that is nil", limiter.ErrInvalid)
		}
		out.sharded, out.rdb = true, c
		if o := c.Options(); o.ReadOnly || o.ClusterSlots != nil || !asItIs(timeout, o.ContextTimeoutEnabled, o.ReadTimeout, o.WriteTimeout) {
			own := redis.NewClusterClient(boundCluster(o, timeout))
			out.rdb, out.own = own, own.Close
		}
	case *redis.Ring:
		if c == nil {
			return nil, fmt.Errorf("%w: a Redis client that is nil", limiter.ErrInvalid)
		}
		out.sharded, out.rdb = true, c
		if o := c.Options(); !asItIs(timeout, o.ContextTimeoutEnabled, o.ReadTimeout, o.WriteTimeout) {
			own := redis.NewRing(boundRing(o, timeout))
			out.rdb, out.own = own, own.Close
		}
	case nil:
		return nil, fmt.Errorf("%w: a Redis client that is nil", limiter.ErrInvalid)
	default:
		return nil, fmt.Errorf("%w: a Redis client of type %T: only *redis.Client, *redis.ClusterClient and *redis.Ring "+
			"have options that can be read, without which its calls cannot be bounded", limiter.ErrInvalid, c)
	}
	return out, nil
}

// asItIs reports whether the context's deadline is the one of the socket. go-redis takes the earlier of it and the client's
// own time-out; 0 is none (of a Ring: the default), below 0 there is no deadline at all.
func asItIs(timeout time.Duration, enabled bool, own ...time.Duration) bool {
	for _, d := range own {
		if d < 0 || d > 0 && d < timeout {
			return false
		}
	}
	return enabled
}

// boundPlain shares the pool.
func boundPlain(c *redis.Client, timeout time.Duration) *redis.Client {
	o := c.Options()
	clone := c.WithTimeout(max(timeout, o.ReadTimeout, o.WriteTimeout))
	// The clone's options are a copy that nobody else has yet.
	clone.Options().ContextTimeoutEnabled = true
	return clone
}

// patience is how long a Cluster's node may take to be dialed or to tell who has which slot. While one that is gone is asked,
// no other one is. What callers wait is bounded by their own time-out.
const patience = time.Second

func boundCluster(from *redis.ClusterOptions, timeout time.Duration) *redis.ClusterOptions {
	o := *from
	o.ContextTimeoutEnabled = true
	o.ReadTimeout = max(timeout, patience)
	o.WriteTimeout = o.ReadTimeout
	if o.DialTimeout = o.ReadTimeout; from.DialTimeout > 0 {
		o.DialTimeout = min(from.DialTimeout, o.DialTimeout)
	}
	o.DialerRetries = 1 // a refusal is told at once
	o.MinIdleConns = 0  // would dial before the first call
	if o.MaxRedirects == 0 {
		o.MaxRedirects = -1 // in options that were in use 0 means none, in new ones the default
	}
	// Scripts write. The client would ask servers about each command instead, outside of the call's context.
	o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
	o.DisableRoutingPolicies = true
	if slots := o.ClusterSlots; slots != nil {
		o.ClusterSlots = (&lookup{f: slots}).get
	}
	return &o
}

// lookEvery bounds how often failures make a client ask who has which slot.
const lookEvery = 250 * time.Millisecond

// lookAgain makes a Cluster's client ask in the background who has which slot, as it does by itself only once a minute and
// when a node says MOVED: a master that is gone says nothing, and its replica has its place within seconds.
func (c *Client) lookAgain() {
	cluster, ok := c.rdb.(*redis.ClusterClient)
	if !ok || c.closed.Load() {
		return
	}
	now, last := time.Now().UnixNano(), c.looked.Load()
	if now-last >= int64(lookEvery) && c.looked.CompareAndSwap(last, now) {
		cluster.ReloadState(context.Background())
	}
}

func boundRing(from *redis.RingOptions, timeout time.Duration) *redis.RingOptions {
	o := *from
	o.ContextTimeoutEnabled = true
	o.ReadTimeout = max(timeout, o.ReadTimeout)
	o.WriteTimeout = max(timeout, o.WriteTimeout)
	o.MinIdleConns = 0
	return &o
}

// lookup bounds a function that finds slots and may not heed its context, as the one that asks Sentinels does not. One lookup
// runs at a time; whoever comes meanwhile waits for it as long as he may.
type lookup struct {
	f       func(context.Context) ([]redis.ClusterSlot, error)
	mu      sync.Mutex
	running *answer
}

type answer struct {
	done  chan struct{}
	slots []redis.ClusterSlot
	err   error
}

var errLookup = errors.New("the function that finds a Cluster's slots has panicked")

func (l *lookup) get(ctx context.Context) ([]redis.ClusterSlot, error) {
	l.mu.Lock()
	a := l.running
	if a == nil {
		a = &answer{done: make(chan struct{}), err: errLookup}
		l.running = a
		// A lookup that outlives this call is of use to the next, so it does not end with this one's context.
		go l.run(context.WithoutCancel(ctx), a)
	}
	l.mu.Unlock()
	select {
	case <-a.done:
		return a.slots, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *lookup) run(ctx context.Context, a *answer) {
	defer func() {
		_ = recover() // a has the error already
		l.mu.Lock()
		l.running = nil
		l.mu.Unlock()
		close(a.done)
	}()
	a.slots, a.err = l.f(ctx)
}
