// Package memory is the limiter that keeps its state in this process: exact, bounded in memory, without goroutines and
// without allocations once a key is known.
//
//	store, err := memory.New(memory.Config{})
//	…
//	d, err := store.Allow(ctx, limiter.Key{Space: "login", ID: "ip=203.0.113.7"}, limiter.PerMinute(10), 1)
//
// It is not for limits that hold across processes: each process counts for itself. See package redislimit for those.
//
// # Bounds
//
// At most Config.MaxKeys keys have state of their own. A key whose full quota is back is the same as one never seen, so
// it is forgotten, and only then: a key that still restricts somebody is never pushed out by new ones. When every place
// is taken by such keys, new keys share a few overflow places per space, so together they get what one of them would
// get; no flood of made-up keys buys a fresh burst. A key that gets a place of its own later starts with what its
// overflow place has been charged. [Limiter.Overflow] counts the takes decided so; if it grows, raise MaxKeys.
//
// A key costs 32 to 50 bytes. A SlidingWindow with more than one cell adds 4 bytes a cell, a SlidingLog 16 bytes for
// each take in the period; Config.MaxLogEntries bounds the latter over all keys. Beyond it a take joins the newest entry
// of its key, which lets in less, never more.
//
// Cleaning up rides on calls, a part of the table at a time, and takes microseconds: there is no sweep that stops others,
// and a store nobody calls does nothing. With calls coming in, a key is forgotten a few seconds after its quota is back.
//
// # Keys as hashes
//
// A key is kept as a 64-bit hash of its space, identity and algorithm under random secrets of this store, not as text.
// Two keys with one hash would share a counter. The chance that any two of a million keys do is 3 in 10⁸; since the
// secrets are never shown, nobody can aim for it.
//
// # Time
//
// The store has a monotonic clock of its own, so its time never steps. A call that is overtaken by another on its key is
// late by nanoseconds, and that earns nothing. An instant given by a caller may be late as well, and earns nothing either.
// It should not be more than a second late, or it may meet a key that is forgotten already. An instant in the future
// holds the key there until the clock arrives.
package memory
