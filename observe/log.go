package observe

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// LogConfig is what [NewLog] takes. The zero value is valid.
type LogConfig struct {
	// Logger gets the lines; nil: what [slog.Default] is when NewLog is called.
	Logger *slog.Logger
	// Decisions is how many lines a second are written of each kind and outcome: of blocked decisions, of rejections, of
	// store calls that failed and so on, each for itself and all policies together. Zero: 10. −1: none; then only what
	// changes is logged, and panics.
	Decisions int
	// Secret is what keys are hashed with, 16 bytes or more, so that a hash means the same client in all processes and
	// after a restart. Who has it and a log can find out keys by trying. Empty: a random one of this Log.
	Secret []byte
	// ErrorText is what a line says of the Err of an event, which is not nil; nil: [ErrorText] of it, which never holds a
	// key. What another function returns is written as it is, and may be kept, as by a handler that writes later: a Log with
	// one may keep keys. It is called for lines that are written, on the path of requests, and must be safe for concurrent
	// use.
	ErrorText func(limiter.Event) string
}

const (
	defaultDecisions = 10
	maxDecisions     = 1_000_000
	minSecret        = 16
	hashBytes        = 16
)

// Log is an Observer that writes to a [slog.Logger] what an operator wants to know, and not more than that:
//
//	event            line                                                   level           how many
//	decision         allowed                                                Debug           sampled
//	                 blocked: the rejection says it, and why                Debug           sampled
//	                 would be blocked were the policy enforced              Info            sampled
//	rejected         a request was refused, and why                         Info            sampled
//	degraded         what it got instead                                    Info            sampled
//	error            a policy could not decide, or give units back          Warn            sampled ¹
//	                 the client left                                        Debug           sampled
//	store            a call failed                                          Warn            sampled
//	                 it worked, or its caller left or ran out of time       Debug           sampled
//	lease            leases held                                            Debug           sampled
//	adapt            the limit moved, and for another reason than before    Info            sampled
//	                 it moved on                                            Debug           sampled
//	panic            a callback panicked                                    Error           1 a second
//	store_state      a policy cannot decide; decides again                  Error; Info     all ²
//	breaker          a limiter is away; is back                             Warn; Info      all
//	                 the probes in between                                  Debug           all
//	memory           the table is full, and keys share cells; no more       Warn; Info      the changes
//	reload           policies were applied; were refused                    Info; Error     all ³
//
// ¹ Errors that any client can cause, as by sending no key, are counted apart, so that they cannot crowd out others. ² Of a
// policy that goes to and fro 4 a second, and then the last one, a second later at most. ³ The same refusal of the same
// source again and again, as where it is polled: Debug.
//
// Sampled lines are those that come first in a second, as told by the times of the events, [LogConfig].Decisions of them.
// The next line of that kind says how many there were in between as left_out, so nothing is lost but detail. After the last
// line of a flood that may take until the next one.
//
// A key is never in a line. The attribute key is its hash, see [Log.Hash]. Nor is the text of an error, which may hold
// one: see [ErrorText] for what is there instead.
//
// The guard and limiter/fallback log outages to the Logger of their own Config, in the same words, but not where a Log is
// their Observer or in a [Tee] that is. What they log beside that they still do, as a callback's first panic with its stack.
//
// A Log is safe for concurrent use and keeps nothing of a key, but see [LogConfig].ErrorText. It hands the context of an event to the handler, for those
// that look for a trace there. A line that is not written costs a few nanoseconds and no allocation; one that is written
// takes as long as the handler does, on the path of the request. Make one with [NewLog].
type Log struct {
	log       *slog.Logger
	secret    []byte
	lends     bool // whole events, to a function of the user
	errorText func(limiter.Event) string
	sampler   sampler
	state     logState
}

var (
	_ limiter.Observer    = (*Log)(nil)
	_ limiter.StateLogger = (*Log)(nil)
)

// NewLog returns a Log, or an error wrapping [limiter.ErrInvalid] that names everything wrong with c.
func NewLog(c LogConfig) (*Log, error) {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("observe: %w: "+format, append([]any{limiter.ErrInvalid}, args...)...))
	}
	if c.Decisions < -1 || c.Decisions > maxDecisions {
		bad("Decisions %d are outside 1…%d; −1 means none", c.Decisions, maxDecisions)
	}
	if len(c.Secret) > 0 && len(c.Secret) < minSecret {
		bad("a Secret of %d bytes; want %d or more", len(c.Secret), minSecret)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	l := &Log{log: c.Logger, secret: slices.Clone(c.Secret), errorText: c.ErrorText}
	if l.log == nil {
		l.log = slog.Default()
	}
	if len(l.secret) == 0 {
		l.secret = make([]byte, sha256.Size)
		_, _ = rand.Read(l.secret) // never fails
	}
	if l.lends = l.errorText != nil; !l.lends {
		l.errorText = func(e limiter.Event) string { return ErrorText(e.Err) }
	}
	rate := uint32(defaultDecisions)
	if c.Decisions != 0 {
		rate = uint32(max(0, c.Decisions))
	}
	l.sampler.init(rate)
	return l, nil
}

// KeepsNoKey returns l: of keys a hash is written, and nothing is kept. With an ErrorText, which sees keys and may keep
// them, it returns nil.
func (l *Log) KeepsNoKey() limiter.Observer {
	if l.lends {
		return nil
	}
	return l
}

// LogsStates returns true: what stores and breakers go through is logged here.
func (l *Log) LogsStates() bool { return true }

// Hash returns the attribute key of lines about a key, which is given as its identity alone, such as "ip=203.0.113.7" (the
// ID of a [limiter.Key]): $ and 22 characters, the first 16 bytes of an HMAC-SHA-256 under the Secret in base64url. The
// policy is not part of it, so one client's lines can be found in all policies. A [Top] with the same Secret has the same
// hashes.
func (l *Log) Hash(key string) string {
	mac := hmac.New(sha256.New, l.secret)
	mac.Write([]byte(key))
	var sum [sha256.Size]byte
	return "$" + base64.RawURLEncoding.EncodeToString(mac.Sum(sum[:0])[:hashBytes])
}

// Observe writes the line of e, if there is to be one.
func (l *Log) Observe(e limiter.Event) {
	v := l.judge(&e)
	if v.text == "" || v.class != unsampled && l.sampler.rate(v.class) == 0 {
		return
	}
	ctx := e.Context
	if ctx == nil {
		ctx = context.Background()
	}
	if e.Kind == limiter.EventStoreState {
		l.flip(ctx, v, &e)
		return
	}
	if !l.log.Enabled(ctx, v.level) {
		return
	}
	leftOut := int64(0)
	if v.class != unsampled {
		var pass bool
		if leftOut, pass = l.sampler.pass(v.class, e.Time); !pass {
			return
		}
	}
	l.write(ctx, v, l.attributes(e), leftOut)
}

func (l *Log) write(ctx context.Context, v verdict, list []slog.Attr, leftOut int64) {
	if leftOut > 0 {
		list = append(list, slog.Int64("left_out", leftOut))
	}
	l.log.LogAttrs(ctx, v.level, v.text, list...)
}

// attributes are those of a line about e.
func (l *Log) attributes(e limiter.Event) []slog.Attr {
	b := attrs{list: make([]slog.Attr, 0, 12)}
	b.text("policy", e.Policy)
	switch e.Kind {
	case limiter.EventDecision:
		b.text("outcome", e.Outcome.String())
		b.key(l, e.Key)
		b.add(slog.Int("n", e.N))
		b.decision(&e.Decision)
	case limiter.EventRejected:
		b.text("reason", e.Reason)
		b.key(l, e.Key)
		if e.Decision.Limit != (limiter.Limit{}) {
			b.decision(&e.Decision)
		}
	case limiter.EventDegraded:
		b.text("mode", e.Mode)
		b.key(l, e.Key)
		if e.N > 0 {
			b.add(slog.Int("status", e.N))
		}
	case limiter.EventError:
		b.text("cause", e.Reason)
		b.key(l, e.Key)
	case limiter.EventStoreState:
		b.text("state", storeState(e.State))
		b.text("cause", e.Reason)
	case limiter.EventPanic:
		b.text("callback", e.Name)
	case limiter.EventStore:
		b.text("limiter", e.Name)
		b.text("op", e.Op)
		b.add(slog.Int("n", e.N), slog.Duration("duration", e.Duration))
		b.text("cause", e.Reason)
	case limiter.EventMemory:
		b.text("limiter", e.Name)
		b.add(slog.Int64("keys", e.Keys), slog.Int64("overflow", e.Overflow))
	case limiter.EventBreaker:
		b.text("limiter", e.Name)
		b.text("state", breakerState(e.State))
	case limiter.EventReload:
		b.text("source", e.Name)
		b.text("hash", e.Hash)
		b.text("result", reloadResult(&e))
	case limiter.EventLease:
		b.add(slog.Int64("leases", e.Keys))
	case limiter.EventAdapt:
		b.text("limit", limitText(e.Decision.Limit))
		b.text("reason", e.Reason)
	}
	if e.Err != nil {
		b.text("error", l.errorText(e))
	}
	return b.list
}

// attrs are the attributes of a line.
type attrs struct{ list []slog.Attr }

func (b *attrs) add(more ...slog.Attr) { b.list = append(b.list, more...) }

// text adds what is not empty.
func (b *attrs) text(name, value string) {
	if value != "" {
		b.add(slog.String(name, value))
	}
}

func (b *attrs) key(l *Log, k limiter.Key) {
	if k.ID != "" {
		b.add(slog.String("key", l.Hash(k.ID)))
	}
}

func (b *attrs) decision(d *limiter.Decision) {
	b.add(slog.String("via", d.Via.String()), slog.String("limit", limitText(d.Limit)), slog.Int("remaining", d.Remaining))
	switch {
	case d.Allowed:
	case d.RetryAfter == limiter.Never:
		// No number: it would be one of 292 years for whoever computes with it.
		b.add(slog.Bool("never", true))
	default:
		b.add(slog.Duration("retry_after", d.RetryAfter))
	}
}

// limitText is the limit as policies write it. A bound on requests in flight has no period.
func limitText(l limiter.Limit) string {
	if l == (limiter.Limit{Burst: l.Burst}) && l.Burst > 0 {
		return strconv.Itoa(l.Burst) + " in flight"
	}
	return l.String()
}

func storeState(state uint8) string {
	if state == 0 {
		return "ok"
	}
	return "failing"
}

func breakerState(state uint8) string {
	switch state {
	case limiter.BreakerClosed:
		return "closed"
	case limiter.BreakerHalfOpen:
		return "half_open"
	case limiter.BreakerOpen:
		return "open"
	}
	return "unknown"
}

// seconds is the whole seconds in d, within an uint32.
func seconds(d time.Duration) uint32 {
	return uint32(min(max(0, d/time.Second), math.MaxUint32))
}
