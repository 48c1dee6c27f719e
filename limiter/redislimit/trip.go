package redislimit

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/spillway-go/spillway/internal/rediscall"
	"github.com/spillway-go/spillway/limiter"
)

//go:embed limits.lua
var source string

var script = rediscall.NewScript(source)

// maxTripParts bounds what one script run does: Redis serves nobody else meanwhile. Rules have numbers of one byte.
const maxTripParts = 255

// trip is one run of the script under construction, and then its reply.
type trip struct {
	members []*group
	groups  []*group // the members in the order of the call, without those that are behind an equal one
	keys    []string
	args    []any
	call    call
	rules   []*rule // nil: not to be used again
	run     run
	first   map[string]*group
}

// run is the last group written, if the next may be a repetition of it with another key.
type run struct {
	part   *part
	at     int // where it stands in the call
	length int // 0: none
}

// call is the script's first argument: where it points to one, an argument of go-redis need not be allocated.
type call struct{ buf []byte }

// MarshalBinary is how go-redis writes it.
func (c *call) MarshalBinary() ([]byte, error) { return c.buf, nil }

// String is how hooks write it.
func (c *call) String() string { return string(c.buf) }

var trips = sync.Pool{New: func() any { return &trip{first: make(map[string]*group)} }}

// free gives a trip back. Nothing may refer to it any more.
func (t *trip) free() {
	clear(t.members)
	clear(t.groups)
	clear(t.keys)
	clear(t.args)
	clear(t.rules)
	clear(t.first)
	t.members, t.groups, t.keys, t.args = t.members[:0], t.groups[:0], t.keys[:0], t.args[:0]
	t.call.buf, t.rules, t.run = t.call.buf[:0], t.rules[:0], run{}
	trips.Put(t)
}

// send asks for groups each of which has one place, and fills in what was answered.
func (l *Limiter) send(ctx context.Context, groups []*group) {
	for again := false; ; again = true {
		if l.client.Sharded() && len(groups) > 1 {
			l.sendEach(ctx, groups)
		} else {
			t := trips.Get().(*trip)
			t.members = append(t.members, groups...)
			t.load(l.caller)
			reply, err := l.call(ctx, t)
			l.answered(t, reply, err)
		}
		// Where the clocks are so far apart that the edges sent do not hold the server's instant, it told it.
		groups = outsideOf(groups)
		if again || len(groups) == 0 {
			return
		}
	}
}

// sendEach is send on a Cluster or a Ring: a run of the script for each first key, in one pipeline for each server. One for
// each place would be less to send, but while a place is moved, a run must wait until all its keys have been.
func (l *Limiter) sendEach(ctx context.Context, groups []*group) {
	f := fans.Get().(*fan)
	for _, g := range groups {
		key := g.key()
		t := f.at[key]
		if t == nil {
			t = trips.Get().(*trip)
			f.at[key] = t
			f.trips = append(f.trips, t)
		}
		t.members = append(t.members, g)
	}
	for _, t := range f.trips {
		t.load(l.caller)
		f.calls = append(f.calls, rediscall.Call{Keys: t.keys, Args: t.args})
	}
	l.callEach(ctx, f.calls)
	for i, t := range f.trips {
		l.answered(t, f.calls[i].Reply, f.calls[i].Err)
	}
	clear(f.at)
	clear(f.trips)
	clear(f.calls)
	f.trips, f.calls = f.trips[:0], f.calls[:0]
	fans.Put(f)
}

// fan is trips made at once.
type fan struct {
	at    map[string]*trip // by their first key
	trips []*trip
	calls []rediscall.Call
}

var fans = sync.Pool{New: func() any { return &fan{at: make(map[string]*trip)} }}

// answered takes the reply apart and frees the trip.
func (l *Limiter) answered(t *trip, reply string, err error) {
	if err == nil {
		err = t.read(reply, l.caller)
	}
	if err == nil {
		l.decideEqual(t)
	} else {
		for _, g := range t.members {
			g.err = err
		}
	}
	t.free()
}

// outsideOf returns the groups to be asked for again.
func outsideOf(groups []*group) (out []*group) {
	for _, g := range groups {
		if g.verdict == outside && g.err == nil {
			g.err = errEdges
			out = append(out, g)
		}
	}
	for _, g := range out {
		g.next, g.last = nil, nil
	}
	return out
}

var errEdges = fmt.Errorf("%w: redislimit: the server's clock moves too fast for a calendar window", limiter.ErrUnavailable)

// call makes the round trip.
func (l *Limiter) call(ctx context.Context, t *trip) (reply string, err error) {
	defer contain(&err)
	if l.observer == nil {
		return l.client.Run(ctx, script, t.keys, t.args...)
	}
	start := time.Now()
	reply, err = l.client.Run(ctx, script, t.keys, t.args...)
	l.observe("take", start, len(t.keys), err)
	return reply, err
}

// callEach makes several calls at once.
func (l *Limiter) callEach(ctx context.Context, calls []rediscall.Call) {
	var err error
	defer func() {
		if err != nil {
			for i := range calls {
				calls[i].Err = err
			}
		}
	}()
	defer contain(&err)
	start := time.Now()
	l.client.RunEach(ctx, script, calls)
	takes, failed := 0, error(nil)
	for i := range calls {
		takes += len(calls[i].Keys)
		failed = cmp.Or(failed, calls[i].Err)
	}
	l.observe("take", start, takes, failed)
}

// contain turns a panic into an error: of a hook of the client or an observer, which must not leave others waiting.
func contain(err *error) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("%w: redislimit: panic: %v", limiter.ErrInvalid, v)
	}
}

func (l *Limiter) observe(op string, start time.Time, takes int, err error) {
	if l.observer == nil {
		return
	}
	defer func() { _ = recover() }() // an observer's fault is not the decision's
	e := limiter.Event{Kind: limiter.EventStore, Time: start, Name: l.name, Op: op, Duration: time.Since(start), N: takes, Err: err}
	if err != nil {
		e.Reason = rediscall.Cause(err)
	}
	l.observer.Observe(e)
}

// load writes the call.
func (t *trip) load(caller bool) {
	t.args = append(t.args, &t.call)
	for _, g := range t.members {
		g.err, g.again = nil, false
		if len(t.members) > 1 && t.behind(g, caller) {
			continue
		}
		t.groups = append(t.groups, g)
	}
	if !caller && len(t.groups) == 1 && t.plain(t.groups[0]) {
		return
	}
	for _, g := range t.groups {
		t.group(g, caller)
	}
}

// plain writes a call that is a single take of a token bucket. The script has a way of its own for it: it is what nobody shares.
func (t *trip) plain(g *group) bool {
	p := &g.parts[0]
	if len(g.parts) > 1 || g.veto || p.shadow || p.n == 0 || p.rule.limit.Algorithm != limiter.TokenBucket {
		return false
	}
	t.keys = append(t.keys, p.key)
	t.call.buf = appendPlain(t.call.buf, p.rule, p.n, g.times())
	return true
}

// behind puts a group behind an equal one of the same trip. Only single takes whose order among themselves does not
// matter: a queue gives every place another delay.
func (t *trip) behind(g *group, caller bool) bool {
	p := &g.parts[0]
	if len(g.parts) > 1 || g.veto || p.shadow || p.n == 0 || p.rule.limit.Algorithm == limiter.LeakyBucket {
		return false
	}
	lead := t.first[p.key]
	if lead == nil {
		t.first[p.key] = g
		g.next, g.last = nil, g
		return false
	}
	q := &lead.parts[0]
	if q.rule != p.rule || q.n != p.n || caller && lead.now != g.now {
		g.again = true
		return false
	}
	lead.last.next = g
	lead.last, g.next = g, nil
	return true
}

// group writes one group.
func (t *trip) group(g *group, caller bool) {
	if !caller && t.repeats(g) {
		return
	}
	b, head, flags, now := t.call.buf, len(t.call.buf), byte(0), int64(0)
	if caller {
		flags, now = callerClock, g.now
	}
	if g.veto {
		flags |= vetoFlag
	}
	b = appendGroup(b, flags, now)
	times, parts := g.times(), byte(0)
	for i := range g.parts {
		p := &g.parts[i]
		if p.stateless() {
			continue
		}
		parts++
		t.keys = append(t.keys, p.key)
		b = appendTake(b, t.rule(p, g), p.n, times, p.maxDelay, p.shadow)
	}
	b[head+takesAt] = parts
	t.call.buf = b
}

// times is how many equal groups are one in this trip.
func (g *group) times() int {
	times := 1
	for n := g.next; n != nil; n = n.next {
		times++
	}
	return times
}

// repeats writes a group of a single take that is told as the one before it is, but for the key. The script reads the keys
// of a run at once, so they differ.
func (t *trip) repeats(g *group) bool {
	p := &g.parts[0]
	if len(g.parts) > 1 || g.veto || g.next != nil || g.again || p.shadow || p.around != 0 {
		t.run.length = 0
		return false
	}
	last := t.run.part
	if t.run.length == 0 || last.rule != p.rule || last.n != p.n || last.maxDelay != p.maxDelay {
		t.run = run{part: p, at: len(t.call.buf), length: 1}
		return false
	}
	t.run.length++
	binary.LittleEndian.PutUint16(t.call.buf[t.run.at+runsAt:], uint16(t.run.length))
	t.keys = append(t.keys, p.key)
	return true
}

// rule returns the number of a part's rule in this call.
func (t *trip) rule(p *part, g *group) int {
	if p.around == 0 {
		for i, r := range t.rules {
			if r == p.rule {
				return i + 1
			}
		}
	}
	around := p.around
	if around == 0 && p.rule.text != "" {
		if around = g.now; around == 0 {
			around = time.Now().UnixMicro()
		}
	}
	if p.around == 0 {
		t.rules = append(t.rules, p.rule)
	} else {
		t.rules = append(t.rules, nil)
	}
	t.args = append(t.args, p.rule.arg(around))
	return len(t.rules)
}

// read takes the reply apart.
func (t *trip) read(reply string, caller bool) error {
	r := &reader{s: reply}
	now := r.instant()
	for _, g := range t.groups {
		if !caller {
			g.now = now
		}
		g.verdict = r.byte()
		r.bad = r.bad || g.verdict > outside
		for i := range g.parts {
			p := &g.parts[i]
			if p.stateless() {
				continue
			}
			p.booked = int(r.uint32())
			p.before = r.take(int(r.uint16()))
			if g.verdict == outside && len(p.before) == 8 {
				p.around = (&reader{s: p.before}).instant()
			}
		}
	}
	if r.bad || len(r.s) > 0 {
		return fmt.Errorf("%w: redislimit: %w", limiter.ErrInvalid, errReply)
	}
	return nil
}

// decideEqual decides for the groups that are behind an equal one: in their order, as if each had come by itself.
func (l *Limiter) decideEqual(t *trip) {
	for _, lead := range t.groups {
		if lead.next == nil || lead.verdict > booked {
			for g := lead.next; g != nil; g = g.next {
				g.now, g.verdict = lead.now, lead.verdict
				g.parts[0].around = lead.parts[0].around
			}
			continue
		}
		p := &lead.parts[0]
		granted := p.booked
		s, err := p.rule.state(p.before)
		if err != nil {
			err = fmt.Errorf("%w: redislimit: %w", limiter.ErrInvalid, err)
		}
		var last *group
		for g, i := lead, 0; g != nil; g, i = g.next, i+1 {
			q := &g.parts[0]
			g.now, g.verdict, q.booked = lead.now, refused, 0
			if i < granted {
				g.verdict, q.booked = booked, 1
			}
			if g.err = err; err == nil {
				g.err = l.decidePart(g, q, &s)
			}
			g.decided, last = true, g
		}
		if err == nil {
			l.see(last, &last.parts[0], &s)
		}
	}
}
