package middleware

import (
	"math"
	"time"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// What a compiled policy says of one request: its limit, its key, how long it may be held.

// maxDelay returns how long a request may be held for a place under l.
func (p *policy) maxDelay(l limiter.Limit) time.Duration {
	switch {
	case l.Algorithm != limiter.LeakyBucket || p.MaxDelay < 0 || p.Shadow:
		return 0
	case p.MaxDelay > 0:
		return p.MaxDelay
	}
	if d := float64(l.Quota()) * float64(l.Period) / float64(l.Rate); d < math.MaxInt64/2 {
		return time.Duration(math.Ceil(d))
	}
	return limiter.Never
}

// nominal returns the limit the operator or the plan has set for a request.
func (p *policy) nominal(r *keyfunc.Request) limiter.Limit {
	if p.Plan != nil {
		if l, ok := p.Plan(r); ok {
			return l
		}
	}
	return p.Limit.Current()
}

// adjusted returns the limit to apply.
func (p *policy) adjusted(now time.Time, l limiter.Limit) limiter.Limit {
	for _, a := range p.Adjust {
		l = a.Adjust(now, l)
	}
	if p.Adaptive != nil {
		l = p.Adaptive.Adjust(now, l)
	}
	return l
}

func (p *policy) storeKey(id string) limiter.Key {
	k := limiter.Key{Space: p.space, ID: id}
	if p.StoreKey != nil {
		k = limiter.Key{ID: p.StoreKey(k)}
	}
	return k
}
