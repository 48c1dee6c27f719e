package memory

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// Config is what [New] takes. The zero Config is ready for use.
type Config struct {
	// MaxKeys is how many keys may have state of their own, per algorithm; zero: one million. See the package comment
	// for what happens beyond.
	MaxKeys int
	// MaxLogEntries is how many entries the logs of all [limiter.SlidingLog] keys may hold together, 16 bytes each;
	// zero: 16·2²⁰.
	MaxLogEntries int
	// Observer sees an EventMemory after each pass over the table and when overflow begins; nil: nobody.
	Observer limiter.Observer
	// Name tells this store from others in events; empty: "memory-" and a number, so that none is taken for another.
	Name string
}

const (
	defaultMaxKeys       = 1_000_000
	defaultMaxLogEntries = 16 << 20
)

// Limiter is a [limiter.Limiter] with state in this process. It also is a [limiter.Batcher], a [limiter.Refunder] and a
// [limiter.Resetter]. All methods are safe for concurrent use. Make one with [New].
type Limiter struct {
	// Read by every call, hardly ever written.
	dir       atomic.Pointer[directory] // nil: closed
	nextSweep atomic.Int64              // own clock
	clock     clock
	hasher    hasher
	rules     ruleTable
	over      atomic.Pointer[segment] // overflow cells; nil: none in use
	maxKeys   int64
	maxLog    int64
	observer  limiter.Observer
	name      string
	told      atomic.Bool // that it is closed

	_    [64]byte
	used atomic.Int64 // keys with cells of their own
	_    [56]byte

	logged      atomic.Int64 // entries the logs have memory for
	overflow    atomic.Int64 // takes decided on overflow cells
	overflowing atomic.Bool  // in this pass or the last

	lastOverflow atomic.Int64 // overflow at the end of the last pass

	dirMu    sync.Mutex // writers of dir and its slots; innermost but for the cells' bits
	segments atomic.Int64
	perDepth [maxDepth + 1]int

	overMu sync.Mutex // writers of over, and what the mutex of an ordinary segment guards

	passSegments atomic.Int64 // most segments seen in the pass

	sweepMu sync.Mutex // only ever tried
	cursor  uint64     // prefix at which the sweep goes on
	spare   uint64     // prefix at which inserts at the cap go on
}

var (
	_ limiter.Limiter  = (*Limiter)(nil)
	_ limiter.Batcher  = (*Limiter)(nil)
	_ limiter.Refunder = (*Limiter)(nil)
	_ limiter.Resetter = (*Limiter)(nil)
)

// unnamed counts the stores that nobody has named.
var unnamed atomic.Int64

// New returns an empty store, or an error that names everything wrong with c. It starts nothing.
func New(c Config) (*Limiter, error) {
	var errs []error
	if c.MaxKeys < 0 {
		errs = append(errs, fmt.Errorf("memory: MaxKeys %d is negative", c.MaxKeys))
	}
	if c.MaxLogEntries < 0 {
		errs = append(errs, fmt.Errorf("memory: MaxLogEntries %d is negative", c.MaxLogEntries))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if c.MaxKeys == 0 {
		c.MaxKeys = defaultMaxKeys
	}
	if c.MaxLogEntries == 0 {
		c.MaxLogEntries = defaultMaxLogEntries
	}
	if c.Name == "" {
		c.Name = fmt.Sprint("memory-", unnamed.Add(1))
	}
	l := &Limiter{
		clock:    newClock(time.Now()),
		hasher:   newHasher(),
		maxKeys:  int64(c.MaxKeys),
		maxLog:   int64(c.MaxLogEntries),
		observer: c.Observer,
		name:     c.Name,
	}
	l.rules.init()
	l.nextSweep.Store(l.clock.now() + int64(passTime))
	l.dir.Store(newDirectory(newSegment(0, 0, sizes[0])))
	l.segments.Store(1)
	l.perDepth[0] = 1
	return l, nil
}

// Local reports that decisions cost no trip: a guard asks such stores first.
func (l *Limiter) Local() bool { return true }

// KeepsNoKey returns l: keys are hashed, and no part of their strings is kept beyond a call.
func (l *Limiter) KeepsNoKey() limiter.Limiter { return l }

// Len returns the number of keys held, per algorithm; keys on overflow places do not count. Keys whose quota is back
// count until they are forgotten.
func (l *Limiter) Len() int { return max(0, int(l.used.Load())) }

// Overflow returns how many takes were decided on shared overflow places so far.
func (l *Limiter) Overflow() int64 { return l.overflow.Load() }

// Stats are numbers about a [Limiter] at one moment, read one after the other.
type Stats struct {
	Keys       int   // see [Limiter.Len]
	Overflow   int64 // see [Limiter.Overflow]
	LogEntries int   // entries there is memory for in the logs of all keys, 16 bytes each
	Limits     int   // distinct limits remembered
	Segments   int   // parts of the table
}

// Stats returns numbers for tests and dashboards.
func (l *Limiter) Stats() Stats {
	return Stats{
		Keys:       l.Len(),
		Overflow:   l.Overflow(),
		LogEntries: int(l.logged.Load()),
		Limits:     l.rules.len(),
		Segments:   int(l.segments.Load()),
	}
}

// Close frees the state. Later calls return [limiter.ErrClosed]; a call under way may still be decided. Closing again
// does nothing.
func (l *Limiter) Close() {
	l.dirMu.Lock()
	l.dir.Store(nil)
	l.dirMu.Unlock()
	l.overMu.Lock()
	l.over.Store(nil)
	l.overMu.Unlock()
	l.used.Store(0)
	l.logged.Store(0)
	if !l.told.Swap(true) {
		l.report()
	}
}

var errClosed = fmt.Errorf("memory: %w", limiter.ErrClosed)
