package leased

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
)

// modelStore is a store of models, on the clock of the bubble it is in.
type modelStore struct {
	mu      sync.Mutex
	buckets map[string]*bucket
	delay   time.Duration // before the model answers, and again before the reply is there
	away    bool          // nothing arrives
	deaf    bool          // replies do not arrive
	calls   int
	asked   []request
	closed  bool
	broken  map[string]error // what cannot be decided
}

var errAway = fmt.Errorf("%w: away", limiter.ErrUnavailable)

func (s *modelStore) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *modelStore) lease(_ context.Context, key string, q *request) (reply, error) {
	s.mu.Lock()
	delay := s.delay
	s.mu.Unlock()
	if delay > 0 {
		time.Sleep(delay)
	}
	s.mu.Lock()
	if s.away || s.closed {
		s.mu.Unlock()
		time.Sleep(s.timeout())
		return reply{}, errAway
	}
	if s.buckets == nil {
		s.buckets = map[string]*bucket{}
	}
	if b := s.buckets[key]; b == nil || b.seen && time.Now().UnixMicro() >= b.expires {
		s.buckets[key] = &bucket{}
	}
	if err := s.broken[key]; err != nil {
		s.mu.Unlock()
		return reply{}, err
	}
	s.calls++
	s.asked = append(s.asked, *q)
	b := s.buckets[key]
	r := b.acquire(time.Now().UnixMicro(), *q)
	deaf := s.deaf
	if b.whole < 0 || b.out < 0 {
		panic(fmt.Sprintf("%+v", b))
	}
	s.mu.Unlock()
	if delay > 0 {
		time.Sleep(delay)
	}
	if deaf {
		time.Sleep(s.timeout())
		return reply{}, errAway
	}
	return r, nil
}

func (s *modelStore) leaseEach(ctx context.Context, calls []call) {
	for i := range calls {
		calls[i].reply, calls[i].err = s.lease(ctx, calls[i].key, &calls[i].request)
	}
}

func (s *modelStore) forget(_ context.Context, key string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return errAway
	}
	delete(s.buckets, key)
	return nil
}

func (s *modelStore) timeout() time.Duration { return 50 * time.Millisecond }

func (s *modelStore) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// out is what nodes may still spend of all buckets.
func (s *modelStore) out() (sum int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.buckets {
		sum += b.out
	}
	return sum
}

func (s *modelStore) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// onModel returns a limiter whose buckets are models. Several may share a store.
func onModel(t *testing.T, s *modelStore, c Config) *Limiter {
	t.Helper()
	c.Client = redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	l, err := New(c)
	require.NoError(t, err)
	require.NoError(t, l.store.close())
	l.store = shared{s}
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		require.NoError(t, c.Client.Close())
	})
	return l
}

// shared is a store that outlives the limiters on it.
type shared struct{ *modelStore }

func (shared) close() error { return nil }

var (
	alice = limiter.Key{Space: "api", ID: "user=alice"}
	bob   = limiter.Key{Space: "api", ID: "user=bob"}
)

func allow(t *testing.T, l *Limiter, limit limiter.Limit, n int) limiter.Decision {
	t.Helper()
	d, err := l.Allow(t.Context(), alice, limit, n)
	require.NoError(t, err)
	return d
}

// warm makes demand enough for a lease.
func warm(t *testing.T, l *Limiter, key limiter.Key, limit limiter.Limit, takes int) {
	t.Helper()
	for range takes {
		_, err := l.Allow(t.Context(), key, limit, 1)
		require.NoError(t, err)
		time.Sleep(5 * time.Millisecond)
	}
	synctest.Wait()
	if takes > 5 {
		require.Positive(t, l.Stats().Held, "there is a lease")
	}
}
