package peer

import (
	"context"
	"sync"

	"golang.org/x/time/rate"
)

// xtimeMap is what most applications write by hand: a map of rate.Limiter under a mutex.
type xtimeMap struct {
	p  Profile
	mu sync.Mutex
	m  map[string]*rate.Limiter
}

func (x *xtimeMap) Allow(_ context.Context, key string) (bool, error) {
	x.mu.Lock()
	l, ok := x.m[key]
	if !ok {
		l = xtimeLimiter(x.p)
		x.m[key] = l
	}
	x.mu.Unlock()
	return l.Allow(), nil
}

func xtimeLimiter(p Profile) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(p.perSecond()), int(p.Burst))
}

func xtimeMems() []Mem {
	return []Mem{
		{
			Name: "x/time/rate", Note: "one limiter, no keys", SingleKey: true,
			New: func(p Profile) (Decider, func()) {
				l := xtimeLimiter(p)
				return DeciderFunc(func(context.Context, string) (bool, error) { return l.Allow(), nil }), nop
			},
		},
		{
			Name: "x/time/rate+map", Note: "the usual mutex and map; never forgets a key",
			New: func(p Profile) (Decider, func()) { return &xtimeMap{p: p, m: map[string]*rate.Limiter{}}, nop },
		},
	}
}
