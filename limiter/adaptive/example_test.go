package adaptive_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/adaptive"
)

// A bound on the requests in flight around a handler, where no guard does it: the place comes back whatever the handler does.
func ExampleController_Ticket() {
	c, err := adaptive.New(adaptive.Config{Name: "api", Max: 500})
	if err != nil {
		panic(err)
	}
	defer func() { _ = c.Close() }()
	bounded := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			reserve := 0.2 // a fifth of the places is for those who pay
			if r.Header.Get("X-Plan") == "gold" {
				reserve = 0
			}
			ticket := c.Ticket(time.Now(), reserve)
			if ticket == nil {
				http.Error(w, "too many at once", http.StatusServiceUnavailable)
				return
			}
			result := adaptive.Failed // a panic is one
			defer func() { ticket.Release(time.Now(), result) }()
			next.ServeHTTP(w, r)
			result = adaptive.Succeeded
			if r.Context().Err() != nil {
				result = adaptive.Unmeasured // nobody is there any more
			}
		})
	}
	_ = bounded(http.NotFoundHandler())
	fmt.Println(c.Bound(), c.State().Reason)
	// Output: 50 start
}

// Half as much at night, and what is configured otherwise.
func ExampleNewSchedule() {
	s, err := adaptive.NewSchedule([]adaptive.Rule{{When: "22:00-06:00", Zone: "Europe/Berlin", Scale: 0.5}}, adaptive.Calendar{})
	if err != nil {
		panic(err)
	}
	for _, hour := range []int{12, 23} {
		fmt.Println(s.Adjust(time.Date(2026, 6, 1, hour, 0, 0, 0, time.UTC), limiter.PerMinute(600)))
	}
	// Output:
	// 600/m
	// 300/m
}
