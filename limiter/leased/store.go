package leased

import (
	"context"
	"fmt"
	"time"

	"github.com/spillway-go/spillway/internal/rediscall"
	"github.com/spillway-go/spillway/limiter"
)

// store is where the buckets are: Redis, or in tests the model.
type store interface {
	// lease runs the script once; leaseEach for several, within one time-out.
	lease(ctx context.Context, key string, q *request) (reply, error)
	leaseEach(ctx context.Context, calls []call)
	forget(ctx context.Context, key string) error
	timeout() time.Duration
	close() error
}

// call is one of several: key and request go in, reply and err come out.
type call struct {
	key     string
	request request
	reply   reply
	err     error
}

// onRedis is the store on Redis. A panic of a hook of the client is an error: it must not leave others waiting.
type onRedis struct{ client *rediscall.Client }

func (s onRedis) lease(ctx context.Context, key string, q *request) (r reply, err error) {
	defer contain(&err)
	text, err := s.client.Run(ctx, script, []string{key}, q.id, q.append(nil))
	return read(text, q, err)
}

func (s onRedis) leaseEach(ctx context.Context, calls []call) {
	var err error
	defer func() {
		for i := range calls {
			if err != nil {
				calls[i].err = err
			}
		}
	}()
	defer contain(&err)
	each := make([]rediscall.Call, len(calls))
	for i := range calls {
		q := &calls[i].request
		each[i] = rediscall.Call{Keys: []string{calls[i].key}, Args: []any{q.id, q.append(nil)}}
	}
	s.client.RunEach(ctx, script, each)
	for i := range calls {
		calls[i].reply, calls[i].err = read(each[i].Reply, &calls[i].request, each[i].Err)
	}
}

func (s onRedis) forget(ctx context.Context, key string) (err error) {
	defer contain(&err)
	_, err = s.client.Do(ctx, "del", key)
	return err
}

func (s onRedis) timeout() time.Duration { return s.client.Timeout() }

func (s onRedis) close() error { return s.client.Close() }

func read(text string, q *request, err error) (reply, error) {
	if err != nil {
		return reply{}, err
	}
	r, err := parseReply(text, q)
	if err != nil {
		return reply{}, fmt.Errorf("%w: leased: %w", limiter.ErrInvalid, err)
	}
	return r, nil
}

func contain(err *error) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("%w: leased: panic: %v", limiter.ErrInvalid, v)
	}
}
