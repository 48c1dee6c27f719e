package limitertest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

var concurrentRules = []rule{
	{"contention", "a thousand goroutines on one key pass exactly the quota between them", 0, checkContention},
	{"contention-batches", "groups decided at once by many goroutines pass exactly the narrowest quota, and the wide one is charged for no other", needBatch, checkContentionBatches},
	{"contention-refunds", "refunds and takes at once lose nothing and mint nothing", needRefund | needExact, checkContentionRefunds},
	{"contention-keys", "many goroutines on many keys: each key has its own quota", 0, checkContentionKeys},
}

// together runs f in n goroutines that start at once and returns the first error.
func together(n int, f func(k int) error) error {
	var wg sync.WaitGroup
	var first atomic.Pointer[error]
	gate := make(chan struct{})
	for k := range n {
		wg.Go(func() {
			<-gate
			if err := f(k); err != nil {
				first.CompareAndSwap(nil, &err)
			}
		})
	}
	close(gate)
	wg.Wait()
	if err := first.Load(); err != nil {
		return *err
	}
	return nil
}

func checkContention(c *check) {
	const goroutines, quota = 1000, 300
	for _, a := range limiter.Algorithms() {
		if !c.p.supports(a) {
			continue
		}
		for _, batch := range []bool{false, true} {
			if a == limiter.LeakyBucket && !batch || batch && c.p.NoBatch {
				continue // Allow lets nobody wait in a queue
			}
			l, k := c.calm(a, quota), c.key()
			var passed atomic.Int64
			err := together(goroutines, func(int) error {
				ok := false
				if batch {
					takes := []limiter.Take{take(k, l, 1)}
					var err error
					if ok, err = c.l.(limiter.Batcher).AllowAll(c.ctx, c.at, takes); err != nil {
						return err
					}
				} else {
					d, err := c.l.Allow(c.ctx, k, l, 1)
					if err != nil {
						return err
					}
					ok = d.Allowed
				}
				if ok {
					passed.Add(1)
				}
				return nil
			})
			c.require(err == nil, "%v: %v", a, err)
			n := passed.Load()
			c.require(float64(n) <= c.p.most(quota), "%v: of a quota of %d, %d passed", a, quota, n)
			c.require(n >= int64(c.p.least(quota)), "%v: of a quota of %d only %d passed", a, quota, n)
		}
	}
}

func checkContentionBatches(c *check) {
	const goroutines, wide, narrow = 400, 200, 50
	a := c.first()
	shared := c.calm(a, wide)
	user := c.calm(a, narrow)
	all, one := c.key(), c.key()
	b := c.l.(limiter.Batcher)
	var passed atomic.Int64
	err := together(goroutines, func(k int) error {
		takes := []limiter.Take{take(all, shared, 1), take(one, user, 1)}
		if k%2 == 0 { // the order in which a caller lists its takes must not matter, and must not deadlock
			takes[0], takes[1] = takes[1], takes[0]
		}
		ok, err := b.AllowAll(c.ctx, c.at, takes)
		if ok {
			passed.Add(1)
		}
		return err
	})
	c.require(err == nil, "AllowAll: %v", err)
	n := int(passed.Load())
	c.require(float64(n) <= c.p.most(narrow) && n >= c.p.least(narrow), "of groups limited to %d, %d passed", narrow, n)
	c.left(c.peek(all, shared), wide-n, "the wide limit")
	c.left(c.peek(one, user), narrow-n, "the narrow limit")
}

func checkContentionRefunds(c *check) {
	const goroutines, rounds, quota = 50, 20, 20
	c.each(func(c *check, a limiter.Algorithm) {
		if a == limiter.LeakyBucket {
			return
		}
		l, k := c.calm(a, quota), c.key()
		r := c.l.(limiter.Refunder)
		var held atomic.Int64
		err := together(goroutines, func(int) error {
			for range rounds {
				d, err := c.l.Allow(c.ctx, k, l, 1)
				if err != nil {
					return err
				}
				if !d.Allowed {
					continue
				}
				if n := held.Add(1); n > quota {
					return fmt.Errorf("%d of %d units are out at once", n, quota)
				}
				held.Add(-1) // before the refund, which makes the unit another's
				if err := r.Refund(c.ctx, time.Time{}, &limiter.Take{Key: k, Limit: l, N: 1, Decision: d}); err != nil {
					return err
				}
			}
			return nil
		})
		c.require(err == nil, "%v", err)
		d, err := c.l.Allow(c.ctx, k, l, 0)
		c.require(err == nil, "%v", err)
		c.left(d, quota, "all units were given back")
	})
}

func checkContentionKeys(c *check) {
	const keys, each, quota = 60, 12, 7
	a := c.first()
	l := c.calm(a, quota)
	names := make([]limiter.Key, keys)
	passed := make([]atomic.Int64, keys)
	for k := range names {
		names[k] = c.key()
	}
	err := together(keys*each, func(k int) error {
		d, err := c.l.Allow(c.ctx, names[k%keys], l, 1)
		if d.Allowed {
			passed[k%keys].Add(1)
		}
		return err
	})
	c.require(err == nil, "%v", err)
	for k := range passed {
		n := passed[k].Load()
		c.require(float64(n) <= c.p.most(quota) && n >= int64(c.p.least(quota)), "of a quota of %d, %d passed on key %d", quota, n, k)
	}
}
