package memory

import (
	"context"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// Refund implements [limiter.Refunder].
func (l *Limiter) Refund(ctx context.Context, at time.Time, t *limiter.Take) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	h := l.hasher.own(&t.Key, t.Limit.Algorithm)
	for {
		r, open := l.lookup(h)
		if !open {
			return errClosed
		}
		if t.N <= 0 || t.Decision.Mark == 0 {
			return nil // nothing was booked
		}
		if r.seg == nil {
			r = l.lookupOverflow(&t.Key, t.Limit.Algorithm)
		}
		if r.seg == nil {
			return nil // the key is full
		}
		w, ok := r.lock()
		if !ok {
			continue
		}
		var s limiter.State
		old := l.state(&s, r, w)
		if old == nil {
			r.cell().unlock(w)
			return nil
		}
		before := s.Log.Cap()
		now := l.clock.reading(at)
		s.Refund(limiter.Reading{Now: now, Caller: true}, t.N, t.Decision.Mark)
		l.logged.Add(int64(s.Log.Cap() - before))
		w = l.store(r, w, &s, old, old, false)
		if w == 0 {
			r.cell().at = now
		}
		r.seg.lower(l.idleAt(r, w))
		r.cell().unlock(w)
		return nil
	}
}

// Reset implements [limiter.Resetter]. What a key was charged on an overflow place stays there: others share it.
func (l *Limiter) Reset(ctx context.Context, key limiter.Key) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, a := range algorithms {
		h := l.hasher.own(&key, a)
		for {
			r, open := l.lookup(h)
			if !open {
				return errClosed
			}
			if r.seg == nil {
				break
			}
			w, ok := r.lock()
			if !ok {
				continue
			}
			l.clear(r, w)
			c := r.cell()
			c.at, c.frac, c.units = l.clock.now(), 0, 0
			r.seg.lower(l.idleAt(r, 0))
			c.unlock(0)
			break
		}
	}
	return nil
}

var algorithms = limiter.Algorithms()
