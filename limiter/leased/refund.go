package leased

import (
	"context"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// Refund implements [limiter.Refunder] on what is leased: units come back to the lease they were taken from, and never lift it
// above what it was. When that lease is over, or the key has none because it is asked for too seldom, they stay spent.
func (l *Limiter) Refund(ctx context.Context, _ time.Time, t *limiter.Take) error {
	if err := l.open(ctx); err != nil {
		return err
	}
	if t.N <= 0 || t.Decision.Mark == 0 {
		return nil
	}
	e := l.table.get(&t.Key, l.table.hash(&t.Key))
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.dead {
		e.node.refund(l.now(), t.Decision.Mark-l.wall, int64(t.N))
	}
	return nil
}

// Reset implements [limiter.Resetter]: it forgets the key on Redis and in this process. What other processes hold they may spend
// until they next ask, and then they are told to drop it.
func (l *Limiter) Reset(ctx context.Context, key limiter.Key) error {
	if err := l.open(ctx); err != nil {
		return err
	}
	// Before, so that nothing of what is held now is spent on top of the new quota, and after, for what was leased meanwhile.
	l.forget(&key)
	defer l.forget(&key)
	start := time.Now()
	err := l.store.forget(ctx, key.Render(l.prefix, suffix))
	l.observe("reset", start, 1, err)
	return err
}

func (l *Limiter) forget(key *limiter.Key) {
	e := l.table.remove(key)
	if e == nil {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dead = true
	e.node.drop(l.now())
	l.retire(e)
}
