package fallback_test

import (
	"context"
	"fmt"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/fallback"
)

// away is a shared store that cannot be reached.
type away struct{}

func (away) Allow(context.Context, limiter.Key, limiter.Limit, int) (limiter.Decision, error) {
	return limiter.Decision{}, fmt.Errorf("%w: connection refused", limiter.ErrUnavailable)
}

// Four processes share a limit in a store. While it is away, each admits a quarter.
func Example() {
	l, err := fallback.New(fallback.Config{Primary: away{}, Replicas: 4})
	if err != nil {
		panic(err)
	}
	defer l.Close()

	login := limiter.Key{Space: "login", ID: "ip=203.0.113.7"}
	for range 4 {
		d, err := l.Allow(context.Background(), login, limiter.PerMinute(12), 1)
		fmt.Println(d.Allowed, d.Remaining, d.Via, err)
	}
	// Output:
	// true 2 fallback <nil>
	// true 1 fallback <nil>
	// true 0 fallback <nil>
	// false 0 fallback <nil>
}

func ExampleShare() {
	for _, limit := range []limiter.Limit{
		limiter.PerMinute(600).WithBurst(100),
		limiter.PerMinute(2),
		limiter.PerHour(10).With(limiter.FixedWindow),
		limiter.PerHour(3).With(limiter.FixedWindow),
	} {
		fmt.Println(limit, "→", fallback.Share(limit, 4))
	}
	// Output:
	// 600/m burst 100 → 150/m burst 25
	// 2/m → 1/2m burst 1
	// 10/h fixed_window → 2/h fixed_window
	// 3/h fixed_window → 1/2h fixed_window
}
