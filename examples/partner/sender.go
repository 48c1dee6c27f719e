package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/client"
	"github.com/spillway-go/spillway/internal/child"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/redislimit"
)

// pauses tells the other processes which destinations have asked for a pause. It is a [client.Pauses].
type pauses struct {
	redis  *redis.Client
	prefix string
}

func (p pauses) key(k limiter.Key) string { return k.Render(p.prefix, "pause") }

// Pause sets the key if there is none, and makes it last longer if it would not last so long. Redis 7 knows GT.
func (p pauses) Pause(ctx context.Context, key limiter.Key, d time.Duration) error {
	d = max(d, time.Millisecond)
	_, err := p.redis.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.SetNX(ctx, p.key(key), 1, d)
		pipe.Do(ctx, "pexpire", p.key(key), d.Milliseconds(), "gt")
		return nil
	})
	return unavailable(err)
}

// Paused is what is left of it.
func (p pauses) Paused(ctx context.Context, key limiter.Key) (time.Duration, error) {
	d, err := p.redis.PTTL(ctx, p.key(key)).Result()
	return max(d, 0), unavailable(err) // negative: there is none
}

func unavailable(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", limiter.ErrUnavailable, err)
}

// newPartner is the client for the provider, the same in every process.
func newPartner(store *redis.Client) *http.Client {
	return &http.Client{
		Timeout: time.Minute,
		Transport: spillway.Must(client.New(client.Config{
			Base:    http.DefaultTransport, //nolint:forbidigo // a program may use its own
			Name:    "sms",
			Key:     keyfunc.Global(), // one provider, one account
			Limiter: spillway.Must(redislimit.New(redislimit.Config{Client: store, Prefix: "partner-example", Timeout: time.Second})),
			Limit:   contract,
			Strict:  true, // the contract is worth more than a message in time
			Pauses:  pauses{redis: store, prefix: "partner-example"},
		})),
	}
}

// send is a process: it says that it is ready, is told to begin, sends its messages, and says how many failed.
func send(ctx context.Context, naive bool) error {
	messages, err := strconv.Atoi(os.Getenv(messagesVar))
	if err != nil {
		return err
	}
	partner := &http.Client{Timeout: time.Minute}
	if !naive {
		options, err := redis.ParseURL(os.Getenv(redisVar))
		if err != nil {
			return err
		}
		store := redis.NewClient(options)
		defer func() { _ = store.Close() }()
		partner = newPartner(store)
	}
	child.Say("ready")
	if err := child.Await(); err != nil {
		return err
	}
	ctx, cancel := child.Lives(ctx)
	defer cancel()
	var failed atomic.Int64
	var wg sync.WaitGroup
	for i := range messages {
		wg.Go(func() {
			if err := deliver(ctx, partner, i); err != nil {
				failed.Add(1)
				fmt.Fprintln(os.Stderr, err)
			}
		})
	}
	wg.Wait()
	child.Say(failed.Load())
	return nil
}

func deliver(ctx context.Context, partner *http.Client, i int) error {
	text := strings.NewReader(fmt.Sprintf("message %d of %d", i, os.Getpid()))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv(providerVar)+"/messages", text)
	if err != nil {
		return err
	}
	// Without this a message is never sent twice, also where nobody knows whether it arrived.
	req.Header.Set("Idempotency-Key", fmt.Sprintf("%d-%d", os.Getpid(), i))
	res, err := partner.Do(req)
	var limited *client.LimitedError
	switch {
	case errors.As(err, &limited):
		return fmt.Errorf("it goes back to the queue for %v: %w", limited.RetryAfter, err)
	case err != nil:
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusAccepted {
		return fmt.Errorf("the provider says %s", res.Status)
	}
	return nil
}
