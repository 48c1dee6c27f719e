package peer

import (
	"context"

	"github.com/failsafe-go/failsafe-go/ratelimiter"
)

func failsafeMems() []Mem {
	return []Mem{{
		Name: "failsafe", Note: "one limiter, no keys", SingleKey: true,
		New: func(p Profile) (Decider, func()) {
			l := ratelimiter.NewBursty[any](uint(p.WindowLimit), p.Window)
			return DeciderFunc(func(context.Context, string) (bool, error) { return l.TryAcquirePermit(), nil }), nop
		},
	}}
}
