package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/client"
	"github.com/spillway-go/spillway/internal/child"
	"github.com/spillway-go/spillway/limiter/redislimit"
)

// hands is how many jobs a worker has in hand at once: while one waits for its answer, others may leave.
const hands = 4

// drain is a worker: it takes jobs until there are none.
func drain(ctx context.Context) error {
	options, err := redis.ParseURL(os.Getenv(redisVar))
	if err != nil {
		return err
	}
	store := redis.NewClient(options)
	defer func() { _ = store.Close() }()
	service := &http.Client{Transport: spillway.Must(client.New(client.Config{
		Base:    http.DefaultTransport, //nolint:forbidigo // a program may use its own
		Name:    "service",
		Limiter: spillway.Must(redislimit.New(redislimit.Config{Client: store, Prefix: "worker-example", Timeout: time.Second})),
		Limit:   allowed,
		Strict:  true,
	}))}
	child.Say("ready")
	if err := child.Await(); err != nil {
		return err
	}
	ctx, cancel := child.Lives(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for range hands {
		wg.Go(func() {
			for {
				job, err := store.LPop(ctx, queue).Result()
				if err != nil {
					if !errors.Is(err, redis.Nil) {
						log.Print(err)
					}
					return
				}
				do(ctx, store, service, job)
			}
		})
	}
	wg.Wait()
	child.Say("done")
	return nil
}

// do does a job, or puts it back. One that may or may not have been done is done again: the service knows it by its key.
func do(ctx context.Context, store *redis.Client, service *http.Client, job string) {
	err := ask(ctx, service, job)
	if err == nil {
		return
	}
	log.Printf("%s goes back: %v", job, err)
	if err := store.RPush(ctx, queue, job).Err(); err != nil {
		log.Printf("%s is lost: %v", job, err)
		return
	}
	wait := time.Second
	var limited *client.LimitedError
	if errors.As(err, &limited) && limited.RetryAfter > 0 {
		wait = min(limited.RetryAfter, time.Minute)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func ask(ctx context.Context, service *http.Client, job string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv(serviceVar), strings.NewReader(job))
	if err != nil {
		return err
	}
	req.Header.Set("X-Worker", os.Getenv(nameVar))
	req.Header.Set("Idempotency-Key", strings.ReplaceAll(job, " ", "-"))
	res, err := service.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("the service says %s", res.Status)
	}
	return nil
}
