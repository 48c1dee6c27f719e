// Package peer puts every rate limiter under test behind one small interface, so that all of them run in the same
// process, against the same keys and the same floors. One file per library; registry.go lists them.
package peer

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

// Decider is the only thing a limiter has to offer to be measured.
type Decider interface {
	Allow(ctx context.Context, key string) (bool, error)
}

// DeciderFunc is a function as a [Decider].
type DeciderFunc func(ctx context.Context, key string) (bool, error)

// Allow calls f.
func (f DeciderFunc) Allow(ctx context.Context, key string) (bool, error) { return f(ctx, key) }

// Profile is one limit, told both as rate and burst and as a count per window, so that each library can pick the form
// it understands.
type Profile struct {
	Rate        int64 // units per Period
	Period      time.Duration
	Burst       int64
	WindowLimit int64 // units per Window
	Window      time.Duration
}

// Profiles of the scenarios.
var (
	// Open never denies: it times the path that writes state.
	Open = Profile{Rate: 1e9, Period: time.Second, Burst: 1e9, WindowLimit: 1e12, Window: time.Hour}
	// Live never denies within a run and keeps every key that was touched alive for a minute, so that limiters which
	// forget expired keys still hold all of them.
	Live = Profile{Rate: 1, Period: time.Minute, Burst: 1 << 26, WindowLimit: 1e12, Window: time.Hour}
	// Closed denies all but the first request: it times the path that denies.
	Closed = Profile{Rate: 1, Period: time.Hour, Burst: 1, WindowLimit: 1, Window: time.Hour}
	// Hundred000 admits 100,000 per key and hour: for the over-admission check.
	Hundred000 = Profile{Rate: 100_000, Period: time.Hour, Burst: 100_000, WindowLimit: 100_000, Window: time.Hour}
	// Stored is an everyday limit whose keys stay alive: for the heap.
	Stored = Profile{Rate: 1, Period: time.Second, Burst: 100_000, WindowLimit: 100_000, Window: time.Hour}
)

// Expiring makes one unit taken expire after ttl.
func Expiring(ttl time.Duration) Profile {
	return Profile{Rate: 1, Period: ttl, Burst: 1e9, WindowLimit: 1e12, Window: ttl}
}

// Denies reports whether the profile denies every request of a key but its first.
func (p Profile) Denies() bool { return p.Burst == 1 }

func (p Profile) perSecond() float64 { return float64(p.Rate) / p.Period.Seconds() }

// Mem is a limiter that keeps its state in memory.
type Mem struct {
	Name      string // as in benchmark names: no spaces
	Note      string // what a reader must know to compare it; empty: nothing
	SingleKey bool   // ignores the key: scenarios of one key only
	// New builds the limiter; the function releases what it started.
	New func(p Profile) (Decider, func())
	// NewCleaning builds a limiter whose entries expire after ttl and which cleans up by itself at about that period.
	// nil: the library has no cleanup, or its period cannot be set.
	NewCleaning func(ttl time.Duration) (Decider, func())
	// NewBounded builds a limiter that claims to hold about maxKeys keys at most. nil: it claims no bound.
	NewBounded func(p Profile, maxKeys int) (Decider, func())
}

// MW is a complete HTTP handler: framework, limiting middleware and a handler writing "ok".
type MW struct {
	Framework string // std, gin or echo
	Name      string
	Note      string
	// Build mounts the limiter with the given number of policies of profile p, all keyed by the peer address. A
	// library without policies is mounted as often, which is what its users have to do.
	Build func(p Profile, policies int) http.Handler
}

// FullName is framework/name, as in benchmark names.
func (m MW) FullName() string { return m.Framework + "/" + m.Name }

// Keys returns n distinct keys shaped like those of clients.
func Keys(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = Key(i)
	}
	return out
}

// Key builds key number i, such as "ip:10.0.1.2", as a fresh string.
func Key(i int) string { return "ip:" + Address(i) }

// Address returns the address of client i, such as "10.0.1.2".
func Address(i int) string {
	b := append(make([]byte, 0, 15), "10."...)
	b = strconv.AppendInt(b, int64(i>>16&255), 10)
	b = append(b, '.')
	b = strconv.AppendInt(b, int64(i>>8&255), 10)
	b = append(b, '.')
	b = strconv.AppendInt(b, int64(i&255), 10)
	return string(b)
}

func nop() {}
