// Package stores makes the limiters that a policy document names: on Redis, in memory, with a fallback.
//
//	s := stores.New(stores.Config{Observer: metrics})
//	defer s.Close()
//	follower, err := config.Open(ctx, source, config.Deps{Central: s.Central, Local: s.Local, Leased: s.Leased})
package stores

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/internal/rediscall"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/fallback"
	"github.com/spillway-go/spillway/limiter/leased"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/limiter/redislimit"
)

// Config is what [New] takes.
type Config struct {
	// Observer sees the events of the limiters; nil: nobody.
	Observer limiter.Observer
	// Logger is told of outages; nil: [slog.Default].
	Logger *slog.Logger
	// Dry sends nothing to Redis by itself, so that a document can be checked without taking part in the fleet.
	Dry bool
}

// Stores makes each limiter once and returns it again for every version of a document that names the same store. Its
// methods are safe for concurrent use. Make one with [New].
type Stores struct {
	cfg Config

	mu      sync.Mutex
	closed  bool
	central *made // without what decides while it is away
	client  redis.UniversalClient
	safe    *made // central and what decides meanwhile
	leased  map[lease]*made
	census  *fallback.Census
	local   *memory.Limiter
	close   []func() error // in the order of making
}

// made is the central limiter and the store it was made for.
type made struct {
	limiter limiter.Limiter
	store   string
}

// lease tells limiters of mode leased apart.
type lease struct {
	sync time.Duration
	safe bool // with what decides meanwhile
}

// New returns Stores that have made nothing. It does no I/O.
func New(c Config) *Stores { return &Stores{cfg: c} }

// Central is the constructor of [config.Deps] for the limiter that a fleet shares: on Redis as store says, or in memory, as
// a fleet of one. A later Store must say the same of Redis and, where it has one, of the fallback: else the error is
// [config.ErrNeedsRestart]. One without a fallback is the same Redis alone.
func (s *Stores) Central(store config.Store) (limiter.Limiter, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("stores: %w", limiter.ErrClosed)
	}
	alone := store
	alone.Fallback = nil
	central, err := s.once(&s.central, alone, func() (limiter.Limiter, error) {
		if store.Redis == nil {
			return s.memory(store.Memory, "memory")
		}
		return s.redis(alone)
	})
	if err != nil || store.Redis == nil || store.Fallback == nil {
		return central, err
	}
	return s.once(&s.safe, store, func() (limiter.Limiter, error) { return s.fallback(store, central, "redis") })
}

// Leased is the constructor of [config.Deps] for limits that are leased from the Redis of store. A process asks for its
// leases at about every sync; zero: 100 ms.
func (s *Stores) Leased(store config.Store, sync time.Duration) (limiter.Limiter, error) {
	if store.Redis == nil {
		return nil, errors.New("stores: leases are taken from Redis")
	}
	alone := store
	alone.Fallback = nil
	if _, err := s.Central(alone); err != nil { // which has the client, and knows the store
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("stores: %w", limiter.ErrClosed)
	}
	of := func(safe bool, store config.Store, make func() (limiter.Limiter, error)) (limiter.Limiter, error) {
		is := s.leased[lease{sync, safe}]
		l, err := s.once(&is, store, make)
		if err == nil {
			if s.leased == nil {
				s.leased = map[lease]*made{}
			}
			s.leased[lease{sync, safe}] = is
		}
		return l, err
	}
	name := "leased"
	if sync != 0 {
		name += " " + sync.String()
	}
	l, err := of(false, alone, func() (limiter.Limiter, error) {
		// A call that took longer than half of a lease's life could bring no lease any more.
		life := max(time.Second, 5*sync)
		l, err := leased.New(leased.Config{
			Client: s.client, Prefix: store.Prefix, Sync: sync, Timeout: min(duration(store.Timeout), life/2), Observer: s.cfg.Observer, Logger: s.cfg.Logger, Name: name,
		})
		if err != nil {
			return nil, err
		}
		s.later(l.Close)
		return l, nil
	})
	if err != nil || store.Fallback == nil {
		return l, err
	}
	return of(true, store, func() (limiter.Limiter, error) { return s.fallback(store, l, name) })
}

// once makes a limiter, and returns the one that is there where it was made for the same store. What has been made on the
// way is closed if the rest fails.
func (s *Stores) once(is **made, store config.Store, make func() (limiter.Limiter, error)) (l limiter.Limiter, err error) {
	says, err := json.Marshal(store)
	switch {
	case err != nil:
		return nil, fmt.Errorf("stores: %w", err)
	case *is != nil && (*is).store != string(says):
		return nil, config.ErrNeedsRestart
	case *is != nil:
		return (*is).limiter, nil
	}
	before := len(s.close)
	if l, err = make(); err != nil {
		for k := len(s.close) - 1; k >= before; k-- {
			_ = s.close[k]()
		}
		s.close = s.close[:before]
		return nil, err
	}
	*is = &made{l, string(says)}
	return l, nil
}

// Local is the constructor of [config.Deps] for limits of one process: in memory, which is that of Central where there is
// no Redis.
func (s *Stores) Local(store config.Store) (limiter.Limiter, error) {
	if store.Redis == nil {
		return s.Central(store) // is local
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("stores: %w", limiter.ErrClosed)
	}
	if s.local == nil {
		l, err := s.memory(nil, "local")
		if err != nil {
			return nil, err
		}
		s.local = l
	}
	return s.local, nil
}

// Close closes everything that was made. Later decisions fail with [limiter.ErrClosed].
func (s *Stores) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var errs []error
	for k := len(s.close) - 1; k >= 0; k-- {
		errs = append(errs, s.close[k]())
	}
	s.close = nil
	return errors.Join(errs...)
}

func (s *Stores) later(f func() error) { s.close = append(s.close, f) }

func (s *Stores) memory(m *config.Memory, name string) (*memory.Limiter, error) {
	c := memory.Config{Observer: s.cfg.Observer, Name: name}
	if m != nil {
		c.MaxKeys, c.MaxLogEntries = m.MaxKeys, m.MaxLogEntries
	}
	l, err := memory.New(c)
	if err == nil {
		s.later(func() error { l.Close(); return nil })
	}
	return l, err
}

func (s *Stores) redis(store config.Store) (limiter.Limiter, error) {
	client, err := rediscall.Open(store.Redis.Location())
	if err != nil {
		return nil, err
	}
	s.later(client.Close)
	r, err := redislimit.New(redislimit.Config{
		Client: client, Prefix: store.Prefix, Timeout: duration(store.Timeout), CallerClock: store.CallerClock,
		DenyCache: duration(store.DenyCache), NoSharing: store.NoSharing, Observer: s.cfg.Observer, Name: "redis",
	})
	if err != nil {
		return nil, err
	}
	s.later(r.Close)
	s.client = client
	return r, nil
}

// fallback makes what decides while a limiter on Redis is away.
func (s *Stores) fallback(store config.Store, primary limiter.Limiter, name string) (limiter.Limiter, error) {
	f := store.Fallback
	c := fallback.Config{
		Primary: primary, Replicas: f.Replicas, Failures: f.Failures, SlowCall: duration(f.SlowCall), Cooldown: duration(f.Cooldown),
		Observer: s.cfg.Observer, Logger: s.cfg.Logger, Name: name,
	}
	memoryName := "fallback"
	if name != "redis" {
		memoryName += " of " + name
	}
	var err error
	if c.Secondary, err = s.memory(f.Memory, memoryName); err != nil {
		return nil, err
	}
	counts := s.census == nil && f.Census // one report of this process is enough
	if counts {
		if s.census, err = fallback.NewCensus(fallback.CensusConfig{Client: s.client, Prefix: store.Prefix, Observer: s.cfg.Observer, Name: "redis"}); err != nil {
			return nil, err
		}
		s.later(func() error {
			c := s.census
			s.census = nil
			return c.Close()
		})
	}
	if f.Census {
		c.Census = s.census
	}
	both, err := fallback.New(c)
	if err != nil {
		return nil, err
	}
	if counts && !s.cfg.Dry { // last, for now it reports
		c.Census.Start()
	}
	s.later(func() error { both.Close(); return nil })
	return both, nil
}

func duration(d *config.Duration) time.Duration {
	if d == nil {
		return 0
	}
	return time.Duration(*d)
}
