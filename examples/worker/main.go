// Command worker limits what is no request: jobs wait for their turn, and a limit whose key is known only inside a job
// (a phone number) is taken through the guard.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/middleware"
)

func main() {
	store := spillway.Must(memory.New(memory.Config{}))
	guard := spillway.Must(spillway.New(spillway.Config{
		Limiter: store,
		Policies: []spillway.Policy{
			{Name: "sms", Stage: middleware.StageManual, Limit: limiter.PerHour(2)},
		},
	}))
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()

	// One call to the provider every half second, whoever needs it.
	provider := limiter.PerSecond(2).With(limiter.LeakyBucket).WithBurst(10)
	for _, number := range []string{"+41 79 000 00 01", "+41 79 000 00 01", "+41 79 000 00 01", "+41 79 000 00 02"} {
		d, err := guard.Take(ctx, "sms", number, 1)
		if err != nil {
			log.Fatal(err)
		}
		if !d.Allowed {
			fmt.Println(number, "has had enough messages; again in", d.RetryAfter.Round(time.Minute))
			continue
		}
		if _, err := limiter.Wait(ctx, store, limiter.Key{Space: "provider", ID: "all=-"}, provider, 1); err != nil {
			log.Fatal(err)
		}
		fmt.Println(time.Now().Format("15:04:05.000"), "sent to", number)
	}
}
