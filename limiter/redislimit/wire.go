package redislimit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// The layout of calls, replies and states is told in limits.lua.

// Tags of stored states and of rules on the wire. Another layout must get other tags, so that old values are never read
// with a new meaning.
const firstTag = 0xA1

func tagOf(a limiter.Algorithm) byte { return firstTag + byte(a) }

// maxTicks bounds instants on the wire, as Lua's numbers are exact up to it, and stands for any longer delay.
const maxTicks = 1 << 53

// rule is a limit prepared for both sides of the wire.
type rule struct {
	*limiter.Rule
	limit limiter.Limit
	terms string // as stored, and as the script gets it
	boxed any    // terms, as an argument
	text  string // calendar windows: names the calendar
}

func (w *rule) stateless() bool { return w.terms == "" }

func newRule(l limiter.Limit) (*rule, error) {
	r, err := limiter.NewTickRule(l, time.Microsecond)
	if err != nil {
		return nil, err
	}
	w := &rule{Rule: r, limit: l}
	if l == limiter.Unlimited || l == limiter.DenyAll {
		return w, nil
	}
	period := uint64((l.Period + time.Microsecond - 1) / time.Microsecond)
	if l.Align != (limiter.Align{}) {
		period = 0
		w.text = l.Align.Unit.String() + " " + l.Align.Zone
	}
	terms := binary.LittleEndian.AppendUint32([]byte{tagOf(l.Algorithm)}, uint32(l.Rate))
	terms = appendUint48(terms, period)
	switch l.Algorithm {
	case limiter.TokenBucket, limiter.LeakyBucket:
		terms = binary.LittleEndian.AppendUint32(terms, uint32(l.Quota()))
	case limiter.SlidingWindow:
		terms = append(terms, byte(max(l.Cells, 1)))
	}
	w.terms = string(terms)
	w.boxed = w.terms
	return w, nil
}

// arg is the rule as the script gets it. A calendar window brings the edges around an instant along: the script picks by
// its own clock.
func (w *rule) arg(around int64) any {
	if w.text == "" {
		return w.boxed
	}
	start, end := w.Window(around)
	before, _ := w.Window(start - 1)
	_, after := w.Window(end)
	out := []byte(w.terms)
	for _, edge := range []int64{before, start, end, after} {
		out = appendInstant(out, edge)
	}
	return append(out, w.text...)
}

func appendUint48(b []byte, v uint64) []byte {
	return append(b, byte(v), byte(v>>8), byte(v>>16), byte(v>>24), byte(v>>32), byte(v>>40))
}

// appendInstant appends a number of ticks as the double that Lua counts in.
func appendInstant(b []byte, ticks int64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(min(max(ticks, -maxTicks), maxTicks))))
}

// units is a number of units on the wire: what is above every quota can never fit, however much it is.
func units(n int) uint32 { return uint32(min(n, limiter.MaxRate+1)) }

const shadowFlag = 1

// appendTake appends one take of the rule with the given number, to be tried times times.
func appendTake(b []byte, rule, n, times int, maxDelay time.Duration, shadow bool) []byte {
	b = append(b, byte(rule))
	b = binary.LittleEndian.AppendUint32(b, units(n))
	b = binary.LittleEndian.AppendUint32(b, uint32(times))
	b = appendInstant(b, int64(max(0, maxDelay)/time.Microsecond))
	if shadow {
		return append(b, shadowFlag)
	}
	return append(b, 0)
}

// Flags of a group.
const (
	callerClock = 1 << iota
	refundFlag
	vetoFlag // is decided, and nothing booked
)

// Where the numbers of takes and of runs stand in a group.
const (
	takesAt = 1
	runsAt  = 2
)

// appendPlain is a call of a single take of a token bucket by the server's clock, to be tried times times. The script tells
// it by its length.
func appendPlain(b []byte, r *rule, n, times int) []byte {
	b = binary.LittleEndian.AppendUint32(b, units(n))
	b = binary.LittleEndian.AppendUint32(b, uint32(times))
	return append(b, r.terms...)
}

// appendGroup begins a group of a single take and a single run. now is 0 where the server's clock decides.
func appendGroup(b []byte, flags byte, now int64) []byte {
	return appendInstant(append(b, flags, 1, 1, 0), now)
}

// appendRefund completes a refund.
func appendRefund(b []byte, a limiter.Algorithm, n int, mark int64) []byte {
	b = append(b, tagOf(a))
	b = binary.LittleEndian.AppendUint32(b, units(n))
	b = binary.LittleEndian.AppendUint32(b, 0)
	return append(appendInstant(b, mark/int64(time.Microsecond)), 0)
}

// Verdicts of the script on a group.
const (
	refused byte = iota
	booked
	foreign // a key holds something else
	outside // the clock is outside of the calendar edges that were sent
)

// errReply says that a reply is not one of this script's.
var errReply = errors.New("the reply of the script is malformed")

// reader takes a reply or a state apart. After a read past the end it is bad and reads zeros.
type reader struct {
	s   string
	bad bool
}

func (r *reader) take(n int) string {
	if n < 0 || len(r.s) < n {
		r.s, r.bad = "", true
		return "\x00\x00\x00\x00\x00\x00\x00\x00"
	}
	out := r.s[:n]
	r.s = r.s[n:]
	return out
}

func (r *reader) byte() byte { return r.take(1)[0] }

func (r *reader) uint16() uint16 {
	b := r.take(2)
	return uint16(b[0]) | uint16(b[1])<<8
}

func (r *reader) uint32() uint32 {
	b := r.take(4)
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

func (r *reader) uint48() int64 {
	low := r.uint32()
	return int64(low) | int64(r.uint16())<<32
}

// instant reads a double that holds a whole number of ticks.
func (r *reader) instant() int64 {
	low := r.uint32()
	f := math.Float64frombits(uint64(low) | uint64(r.uint32())<<32)
	if f != math.Trunc(f) || math.Abs(f) > maxTicks {
		r.bad = true
		return 0
	}
	return int64(f)
}

// fixedState is the length of a FixedWindow's state before the text that names its calendar.
const fixedState = 47

// state reads a state that the script stored under some limit of this algorithm; it is empty for a key never seen.
func (w *rule) state(stored string) (s limiter.State, err error) {
	if stored == "" {
		return s, nil
	}
	under := w
	if !w.termsOf(stored) {
		if under, err = ruleOf(w.limit.Algorithm, stored); err != nil {
			return s, err
		}
	}
	r := &reader{s: stored}
	r.take(len(under.terms))
	s.Rule, s.At, s.Shift = under.Rule, r.instant(), r.instant()
	switch w.limit.Algorithm {
	case limiter.TokenBucket, limiter.LeakyBucket:
		s.Units, s.Frac = int64(r.uint32()), r.uint48()
	case limiter.FixedWindow:
		s.Units = int64(r.uint32())
		r.take(16 + len(under.text)) // the script's own: the edges follow from the rule
	case limiter.SlidingWindow:
		cells := max(under.limit.Cells, 1)
		if cells == 1 {
			s.Units, s.Frac = int64(r.uint32()), int64(r.uint32())
			break
		}
		s.Counts = make([]int32, cells+1)
		for k := range s.Counts {
			s.Counts[k] = int32(r.uint32())
		}
	case limiter.SlidingLog:
		r.take(8)
		newest := int64(-maxTicks)
		for from := uint32(0); len(r.s) > 0; {
			at, to := r.instant(), r.uint32()
			r.bad = r.bad || at < newest || at > s.At || to-from > limiter.MaxRate
			if to != from { // not all given back
				s.Log.Append(limiter.Entry{At: at, Units: int32(to - from)})
			}
			newest, from = at, to
		}
	}
	if r.bad || len(r.s) > 0 || !under.holds(&s) {
		return limiter.State{}, errReply
	}
	return s, nil
}

// holds reports whether a state can be one of this rule. The steps rely on it.
func (w *rule) holds(s *limiter.State) bool {
	switch w.limit.Algorithm {
	case limiter.TokenBucket, limiter.LeakyBucket:
		period := int64((w.limit.Period + time.Microsecond - 1) / time.Microsecond)
		quota := int64(w.limit.Quota())
		return s.Shift >= 0 && s.Frac < period && (s.Units < quota || s.Units == quota && s.Frac == 0)
	case limiter.SlidingWindow:
		for _, n := range s.Counts {
			if n < 0 || n > limiter.MaxRate {
				return false
			}
		}
		return s.Shift >= 0 && s.Units <= limiter.MaxRate && s.Frac <= limiter.MaxRate
	}
	return s.Shift >= 0 && s.Units <= limiter.MaxRate
}

// termsOf reports whether a state was stored under the terms of w.
func (w *rule) termsOf(stored string) bool {
	if len(stored) < len(w.terms) || stored[:len(w.terms)] != w.terms {
		return false
	}
	return w.limit.Algorithm != limiter.FixedWindow || len(stored) >= fixedState && stored[fixedState:] == w.text
}

// ruleOf makes the rule that a state was stored under.
func ruleOf(a limiter.Algorithm, stored string) (*rule, error) {
	r := &reader{s: stored}
	tag := r.byte()
	l := limiter.Limit{Algorithm: a, Rate: int(r.uint32()), Period: time.Duration(r.uint48()) * time.Microsecond}
	switch a {
	case limiter.TokenBucket, limiter.LeakyBucket:
		l.Burst = int(r.uint32())
	case limiter.SlidingWindow:
		l.Cells = int(r.byte())
	case limiter.FixedWindow:
		if l.Period == 0 && len(stored) >= fixedState {
			unit, zone, _ := strings.Cut(stored[fixedState:], " ")
			for u := limiter.Day; u <= limiter.Month; u++ {
				if u.String() == unit {
					l.Align = limiter.Align{Unit: u, Zone: zone}
				}
			}
		}
	}
	if r.bad || tag != tagOf(a) {
		return nil, errReply
	}
	rule, err := newRule(l)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errReply, err)
	}
	return rule, nil
}
