package etcdsource

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/spillway-go/spillway/config"
)

// Config is what [New] takes. Client and Key are required.
type Config struct {
	// Client is a client of etcd 3.4 or newer, built as you like. It stays yours. How large a value is before it is refused
	// is up to it and to the server: etcd cannot be asked for a part of one, and by default takes none above 1.5 MiB.
	Client *clientv3.Client
	// Key is the key whose value is the document.
	Key string
	// Poll is how often the source looks whether the watch still tells of everything, give or take a tenth. Zero: 30 s; at
	// least 1 s. Negative: off; then a connection that hangs is found out only by the keep-alive of the client, which is off
	// unless its DialKeepAliveTime is set.
	Poll time.Duration
	// Timeout bounds each call in all, and how long a watch may take to begin. Zero: 5 s, in which a leader is elected.
	Timeout time.Duration
}

const (
	defaultPoll    = 30 * time.Second
	leastPoll      = time.Second
	defaultTimeout = 5 * time.Second
)

// Source is a [config.Source] of a key in etcd. All methods are safe for concurrent use. Make one with [New].
type Source struct {
	client  *clientv3.Client
	key     string
	timeout time.Duration
	poll    time.Duration // 0: off
}

var _ config.Source = (*Source)(nil)

// New makes a source. It does no I/O, so etcd may be away. The error names everything wrong with c.
func New(c Config) (*Source, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("etcdsource: "+format, args...)) }
	if c.Client == nil {
		bad("Client is missing")
	}
	if c.Key == "" {
		bad("Key is missing")
	}
	if c.Poll > 0 && c.Poll < leastPoll {
		bad("Poll %v is below %v", c.Poll, leastPoll)
	}
	if c.Timeout < 0 {
		bad("Timeout %v is negative", c.Timeout)
	}
	if c.Poll == 0 {
		c.Poll = defaultPoll
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &Source{client: c.Client, key: c.Key, timeout: c.Timeout, poll: max(c.Poll, 0)}, nil
}

var errClosed = errors.New("the client is closed")

// Load returns the value of the key as a majority of the members has it now, [config.ErrIncomplete] if there is none or it
// is empty. A document above [config.MaxDocument] is an error.
func (s *Source) Load(ctx context.Context) ([]byte, error) {
	resp, err := s.get(ctx)
	if err != nil {
		return nil, s.fault(ctx, err)
	}
	switch {
	case len(resp.Kvs) == 0 || len(resp.Kvs[0].Value) == 0:
		return nil, fmt.Errorf("etcdsource: key %q: %w", s.key, config.ErrIncomplete)
	case len(resp.Kvs[0].Value) > config.MaxDocument:
		return nil, fmt.Errorf("etcdsource: key %q: a document of %d bytes, which is above %d",
			s.key, len(resp.Kvs[0].Value), config.MaxDocument)
	}
	return resp.Kvs[0].Value, nil
}

// get is a read that ends within the time-out.
func (s *Source) get(ctx context.Context, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if s.client.Ctx().Err() != nil {
		return nil, errClosed // it would go on trying
	}
	within, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	resp, err := s.client.Get(within, s.key, opts...)
	if err != nil && within.Err() != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("no answer within %v", s.timeout)
	}
	return resp, err
}

// fault is err with what it is about, and the bare error of a context that has ended.
func (s *Source) fault(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		// Of the client, as when it was closed. It must not pass for the caller's.
		return fmt.Errorf("etcdsource: key %q: the client: %v", s.key, err) //nolint:errorlint // on purpose
	}
	return fmt.Errorf("etcdsource: key %q: %w", s.key, err)
}

// String returns "etcd:" and the key.
func (s *Source) String() string { return "etcd:" + s.key }
