package middleware

import (
	"context"
	"errors"
	"fmt"

	"github.com/spillway-go/spillway/limiter"
)

// Inspect says how an identity stands with a policy, and takes nothing. The identity is written as in the store, such as
// "ip=203.0.113.7" or "tenant=acme|ip=203.0.113.7" (see [keyfunc.Encode]); for [Guard.Take] it is "key=…". The limit is the
// policy's own with its adjusters, not what a Plan would pick for some request. No event is emitted. An unknown policy and
// one without a Limit are errors wrapping [limiter.ErrInvalid].
func (g *Guard) Inspect(ctx context.Context, policy, identity string) (limiter.Decision, error) {
	p, err := g.counting(policy, identity)
	if err != nil {
		return limiter.Decision{}, err
	}
	_, d, err := g.takeOf(ctx, p, identity, 0, g.clock.now())
	return d, err
}

// Reset forgets what a policy has counted for an identity, which is written as for [Guard.Inspect]: as if it had never
// asked. Requests in flight are not touched. A limiter that cannot forget is [errors.ErrUnsupported].
func (g *Guard) Reset(ctx context.Context, policy, identity string) (err error) {
	p, err := g.counting(policy, identity)
	if err != nil {
		return err
	}
	r, ok := p.Limiter.(limiter.Resetter)
	if !ok {
		return fmt.Errorf("middleware: policy %q: its Limiter cannot forget a key: %w", policy, errors.ErrUnsupported)
	}
	defer func() {
		if v := recover(); v != nil {
			err = errPanic
			g.panicked(ctx, p, "Reset", v)
		}
	}()
	key := p.storeKey(identity)
	return errors.Join(r.Reset(ctx, key), r.Reset(ctx, twinOf(p, identity)))
}

// counting returns a policy that has counters.
func (g *Guard) counting(name, identity string) (*policy, error) {
	p := g.core.snapshot.Load().byName[name]
	switch {
	case p == nil:
		return nil, fmt.Errorf("%w: there is no policy %q", limiter.ErrInvalid, name)
	case p.Limit == nil:
		return nil, fmt.Errorf("%w: policy %q has no Limit", limiter.ErrInvalid, name)
	case identity == "":
		return nil, fmt.Errorf("%w: no identity", limiter.ErrInvalid)
	}
	return p, nil
}
