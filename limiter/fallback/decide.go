package fallback

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// Allow implements [limiter.Limiter]. It returns [limiter.ErrUnavailable] only where both limiters do.
func (l *Limiter) Allow(ctx context.Context, key limiter.Key, limit limiter.Limit, n int) (d limiter.Decision, err error) {
	if l.isClosed.Load() {
		return d, errClosed
	}
	asked := l.breaker.do(func() error {
		began := l.breaker.now()
		d, err = l.primary.Allow(ctx, key, limit, n)
		if err == nil && d.Via == limiter.ViaDenyCache {
			return errNoSign // remembered: the store was not asked
		}
		return l.judge(ctx, err, began)
	})
	switch {
	case asked && err == nil:
		if d.Allowed && n > 0 {
			l.warm(key, limit, n)
		}
		return d, nil
	case asked && !errors.Is(err, limiter.ErrUnavailable):
		return limiter.Decision{}, err
	}
	first := err
	if d, err = l.secondary.Allow(ctx, key, Share(limit, l.Replicas()), n); err != nil {
		return limiter.Decision{}, reject(first, err)
	}
	d.Via = limiter.ViaFallback
	if d.RetryAfter == limiter.Never && n <= limit.Quota() {
		d.RetryAfter = l.patience()
	}
	return d, nil
}

// AllowAll implements [limiter.Batcher]: the group is decided by the primary as a whole, or by the secondary. It returns
// [errors.ErrUnsupported] unless both can.
func (l *Limiter) AllowAll(ctx context.Context, at time.Time, takes []limiter.Take) (bool, error) {
	passed, err := l.allowAll(ctx, at, takes)
	if err != nil {
		for k := range takes {
			takes[k].Decision = limiter.Decision{}
		}
		return false, err
	}
	return passed, nil
}

func (l *Limiter) allowAll(ctx context.Context, at time.Time, takes []limiter.Take) (passed bool, err error) {
	switch {
	case l.isClosed.Load():
		return false, errClosed
	case l.primary.batch == nil || l.secondary.batch == nil:
		return false, errNoBatch
	case len(takes) == 0: // a question, which says nothing about the state of the primary
		if passed, err = l.primary.batch.AllowAll(ctx, at, nil); err == nil {
			_, err = l.secondary.batch.AllowAll(ctx, at, nil)
		}
		return passed, err
	}
	asked := l.breaker.do(func() error {
		began := l.breaker.now()
		passed, err = l.primary.batch.AllowAll(ctx, at, takes)
		if err == nil && !passed && remembered(takes) {
			return errNoSign
		}
		return l.judge(ctx, err, began)
	})
	switch {
	case asked && err == nil:
		if passed {
			l.warmAll(at, takes)
		}
		return passed, nil
	case asked && !errors.Is(err, limiter.ErrUnavailable):
		return false, err
	}
	first := err
	s := l.borrow(takes)
	defer l.giveBack(s)
	if passed, err = l.secondary.batch.AllowAll(ctx, at, s.takes); err != nil {
		return false, reject(first, err)
	}
	for k := range takes {
		t := &takes[k]
		t.Decision = s.takes[k].Decision
		t.Decision.Via = limiter.ViaFallback
		if t.Decision.RetryAfter == limiter.Never && together(takes, k) <= t.Limit.Quota() {
			t.Decision.RetryAfter = l.patience()
		}
	}
	return passed, nil
}

// remembered reports whether a refusal came from the memory of the process, without the store being asked.
func remembered(takes []limiter.Take) bool {
	return slices.ContainsFunc(takes, func(t limiter.Take) bool { return t.Decision.Via == limiter.ViaDenyCache })
}

// together returns the units of all takes that count as one with takes[k].
func together(takes []limiter.Take, k int) (n int) {
	t := &takes[k]
	for i := range takes {
		if o := &takes[i]; sameCounter(o, t) && o.Shadow == t.Shadow {
			n = sum(n, o.N)
		}
	}
	return n
}

func sameCounter(a, b *limiter.Take) bool {
	return a.Limit.Algorithm == b.Limit.Algorithm && a.Key == b.Key
}

// sum is a + b, or as much as fits: that is beyond every quota.
func sum(a, b int) int {
	if a > math.MaxInt-b {
		return math.MaxInt
	}
	return a + b
}

// scratch is the takes of a call, under the shares of their limits.
type scratch struct{ takes []limiter.Take }

// few is how many takes a scratch is kept for: a rare large group must not stay in memory for ever.
const few = 64

func (l *Limiter) borrow(takes []limiter.Take) *scratch {
	s, _ := l.scratch.Get().(*scratch)
	if s == nil {
		s = new(scratch)
	}
	s.takes = append(s.takes[:0], takes...)
	n := l.Replicas()
	for k := range s.takes {
		s.takes[k].Limit = Share(s.takes[k].Limit, n)
	}
	return s
}

func (l *Limiter) giveBack(s *scratch) {
	if cap(s.takes) > few {
		return
	}
	clear(s.takes) // keys are not kept
	l.scratch.Put(s)
}

// warm charges the secondary with units that the primary has admitted, or with what its share has left of them.
//
// The caller's context is not handed on: the take is booked, whatever became of him since. Errors are dropped: the
// decision stands, and a secondary that fails has nothing to be kept warm for.
func (l *Limiter) warm(key limiter.Key, limit limiter.Limit, n int) {
	if limit.Algorithm == limiter.LeakyBucket && l.secondary.batch != nil {
		// A place in the queue is taken even if it would have to wait, which Allow refuses.
		takes := [1]limiter.Take{{Key: key, Limit: limit, N: n, Decision: limiter.Decision{Allowed: true}}}
		l.warmAll(time.Time{}, takes[:])
		return
	}
	if limit == limiter.Unlimited {
		return
	}
	share := Share(limit, l.Replicas())
	for range tries {
		d, err := l.secondary.Allow(context.Background(), key, share, n)
		if err != nil || d.Allowed {
			return
		}
		if n = min(n-1, d.Remaining); n <= 0 {
			return
		}
	}
}

// tries is how often what a share has left is asked for. The second time is enough unless others take from it meanwhile,
// and then it is charged by them.
const tries = 3

// warmAll is warm for the takes of a group that has passed. As shadow takes each key is booked by itself: the shares of some
// may be spent. Takes of one key are summed up first, since they pass together or not at all: cut down one by one, several
// small ones would come to nothing while the share could bear some of them.
func (l *Limiter) warmAll(at time.Time, takes []limiter.Take) {
	s := l.borrow(takes)
	defer l.giveBack(s)
	left := s.takes[:0]
	for _, t := range s.takes {
		if t.N <= 0 || !t.Decision.Allowed {
			continue
		}
		if k := slices.IndexFunc(left, func(o limiter.Take) bool { return sameCounter(&o, &t) }); k >= 0 {
			left[k].N = sum(left[k].N, t.N)
			continue
		}
		t.Shadow, t.MaxDelay = true, math.MaxInt64
		left = append(left, t)
	}
	for range tries {
		if len(left) == 0 {
			return
		}
		charged := left
		if _, err := l.secondary.batch.AllowAll(context.Background(), at, charged); err != nil {
			return
		}
		left = charged[:0]
		for _, t := range charged {
			if t.Decision.Allowed {
				continue
			}
			if t.N = min(t.N-1, t.Decision.Remaining); t.N > 0 {
				left = append(left, t)
			}
		}
	}
}
