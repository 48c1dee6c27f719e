package redissource

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/internal/rediscall"
)

// Config is what [New] takes. Client and Key are required.
type Config struct {
	// Client is any client of go-redis: a *redis.Client (also for Sentinel), a *redis.ClusterClient or a *redis.Ring. It
	// stays yours. Watch makes one connection of its own from the client's options, without its hooks. A Dialer, an
	// OnConnect or credentials in the options that ignore their context delay the end of a Watch; the default dialer does
	// so while TLS is agreed on, for DialTimeout at most.
	Client redis.UniversalClient
	// Key is the name of the string that is the document.
	Key string
	// Channel is the channel of the messages that say it has changed. Empty: Key with ":changed" behind it.
	Channel string
	// Poll is how often the document may have changed although nobody said so, give or take a tenth. Zero: 30 s; at least
	// 1 s. Negative: off; then a message that is lost is made up for when the next one comes.
	Poll time.Duration
	// Timeout bounds each call in all, and how long it may take to subscribe. Zero: 2 s.
	Timeout time.Duration
}

const (
	defaultPoll    = 30 * time.Second
	leastPoll      = time.Second
	defaultTimeout = 2 * time.Second
)

// Source is a [config.Source] of a key in Redis. All methods are safe for concurrent use. Make one with [New].
type Source struct {
	client  *rediscall.Client
	rdb     redis.UniversalClient
	key     string
	channel string
	timeout time.Duration
	poll    time.Duration // 0: off

	// Of a subscription; tests shorten them.
	beat     time.Duration // a connection that is silent for twice as long is lost
	patience time.Duration // how long a lost subscription is tried for again
}

var _ config.Source = (*Source)(nil)

// New makes a source. It does no I/O, so Redis may be away. The error names everything wrong with c.
func New(c Config) (*Source, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("redissource: "+format, args...)) }
	if c.Key == "" {
		bad("Key is missing")
	}
	if c.Poll > 0 && c.Poll < leastPoll {
		bad("Poll %v is below %v", c.Poll, leastPoll)
	}
	if c.Timeout < 0 {
		bad("Timeout %v is negative", c.Timeout)
	}
	if c.Channel == "" {
		c.Channel = c.Key + ":changed"
	}
	if c.Poll == 0 {
		c.Poll = defaultPoll
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	s := &Source{
		rdb: c.Client, key: c.Key, channel: c.Channel, timeout: c.Timeout, poll: max(c.Poll, 0),
		beat: max(defaultBeat, c.Timeout), patience: defaultPatience,
	}
	if c.Client == nil {
		bad("Client is missing")
	} else if client, err := rediscall.Bound(c.Client, max(c.Timeout, 1)); err != nil {
		bad("%w", err)
	} else {
		s.client = client
	}
	if len(errs) > 0 {
		if s.client != nil {
			_ = s.client.Close()
		}
		return nil, errors.Join(errs...)
	}
	return s, nil
}

// Load returns what is in the key now, [config.ErrIncomplete] if that is nothing. A key that is no string is an error, and
// so is a document above [config.MaxDocument], of which no more than that is read.
func (s *Source) Load(ctx context.Context) ([]byte, error) {
	// Both ends count, so this is one byte more than may be there.
	v, err := s.await(ctx, func() (any, error) { return s.client.Do(ctx, "getrange", s.key, 0, config.MaxDocument) })
	if err != nil {
		return nil, s.fault(ctx, err)
	}
	doc, ok := v.(string)
	switch {
	case !ok && v != nil:
		return nil, fmt.Errorf("redissource: key %q: a reply of type %T", s.key, v)
	case doc == "":
		return nil, fmt.Errorf("redissource: key %q: %w", s.key, config.ErrIncomplete)
	case len(doc) > config.MaxDocument:
		return nil, fmt.Errorf("redissource: key %q: the document is above %d bytes", s.key, config.MaxDocument)
	}
	return []byte(doc), nil
}

// publish makes the document and the message one: nobody is told of what is not there.
var publish = rediscall.NewScript(`redis.call('SET', KEYS[1], ARGV[1])
return redis.call('PUBLISH', ARGV[2], '')`)

// Publish sets the document and tells everybody who watches it. It is for tools that deploy one: the document is not
// checked, save that it is neither empty nor above [config.MaxDocument]. After an error it may be set all the same.
func (s *Source) Publish(ctx context.Context, doc []byte) error {
	if len(doc) == 0 || len(doc) > config.MaxDocument {
		return fmt.Errorf("redissource: key %q: a document of %d bytes, which must be 1 to %d", s.key, len(doc), config.MaxDocument)
	}
	text := string(doc) // whatever becomes of doc while a call that was left goes on
	_, err := s.await(ctx, func() (any, error) {
		return s.client.RunAny(ctx, publish, []string{s.key}, text, s.channel)
	})
	return s.fault(ctx, err)
}

// await ends with ctx. The call, which notices that a caller has left only at its time-out, ends by then.
func (s *Source) await(ctx context.Context, call func() (any, error)) (any, error) {
	type answer struct {
		value any
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		v, err := call()
		done <- answer{v, err}
	}()
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// fault is err with what it is about, and the bare error of a context that has ended.
func (s *Source) fault(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("redissource: key %q: %w", s.key, err)
}

// String returns "redis:" and the key.
func (s *Source) String() string { return "redis:" + s.key }

// Close closes connections that [New] had to provide for because the client cannot be bounded as it is; never the client.
// It may be called more than once. Later calls fail.
func (s *Source) Close() error { return s.client.Close() }
