package redislimit

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// maxParts is how many takes the script decides as one group.
const maxParts = 127

// part is the takes of a call that count as one: those of one key and algorithm, shadow ones apart.
type part struct {
	id       limiter.Key
	key      string // as rendered; not used where the limit has no state
	rule     *rule
	n        int
	maxDelay time.Duration
	shadow   bool
	around   int64 // calendar windows: the instant to send edges for; 0: about now

	// What the script answered.
	booked int
	before string // the state before
	epoch  uint64 // of what is remembered of the key, before it was asked for

	decision limiter.Decision
}

func (p *part) stateless() bool { return p.rule.stateless() }

// queues reports whether the part is a place in a queue, which cannot be given back.
func (p *part) queues() bool {
	return p.rule.limit.Algorithm == limiter.LeakyBucket && !p.shadow && p.n > 0
}

// group is the takes of one call: all are booked, or none.
type group struct {
	parts   []part
	index   []int // the part of each take; nil where there is one part
	veto    bool  // is refused whatever the script finds
	asks    bool  // a remembered denial must not answer
	now     int64 // the deciding clock, in ticks: the caller's as sent, or the server's as answered
	sent    time.Time
	verdict byte
	decided bool // the decisions are worked out
	err     error

	again bool // another take of this trip is of the same key

	// Equal single takes of one trip are asked for once. The first has the others behind it, and its trip decides for all.
	next, last *group

	seat
	one  [1]part
	self [1]*group
}

// alone is g as a list.
func (g *group) alone() []*group {
	g.self[0] = g
	return g.self[:]
}

// free gives a group back. Nothing may refer to it any more.
func (l *Limiter) free(g *group) {
	wake := g.wake
	*g = group{}
	g.wake = wake
	l.groups.Put(g)
}

func (g *group) stateless() bool {
	for i := range g.parts {
		if !g.parts[i].stateless() {
			return false
		}
	}
	return true
}

// calendar reports whether a part has a calendar window.
func (g *group) calendar() bool {
	for i := range g.parts {
		if g.parts[i].rule.text != "" {
			return true
		}
	}
	return false
}

// single makes g a group of one take.
func (l *Limiter) single(g *group, t *limiter.Take) error {
	r, err := l.rules.get(t.Limit)
	if err != nil {
		return err
	}
	if t.N < 0 {
		return fmt.Errorf("%w: n %d is negative", limiter.ErrInvalid, t.N)
	}
	g.parts = g.one[:]
	p := &g.one[0]
	p.id, p.rule, p.n, p.maxDelay, p.shadow = t.Key, r, t.N, t.MaxDelay, t.Shadow
	g.asks = t.Shadow || t.NoCache || t.N == 0
	if r.stateless() {
		g.veto = t.Limit == limiter.DenyAll && t.N > 0 && !t.Shadow
	} else {
		p.key = l.render(t.Key, t.Limit.Algorithm)
	}
	return nil
}

func (l *Limiter) render(key limiter.Key, a limiter.Algorithm) string {
	return key.Render(l.prefix, a.Tag())
}

// gather makes g a group of the takes and puts those together that count together.
func (l *Limiter) gather(g *group, takes []limiter.Take) error {
	if len(takes) == 1 {
		return l.single(g, &takes[0])
	}
	g.parts, g.index = make([]part, 0, len(takes)), make([]int, len(takes))
	queues := false
	for k := range takes {
		t := &takes[k]
		at, err := l.partOf(g, t)
		if err != nil {
			return fmt.Errorf("take %d: %w", k, err)
		}
		p := &g.parts[at]
		queued := p.queues()
		p.n = addUnits(p.n, t.N)
		p.maxDelay = min(p.maxDelay, t.MaxDelay)
		g.index[k] = at
		if p.queues() && !queued {
			if queues {
				return fmt.Errorf("%w: take %d: two leaky buckets cannot leave at one instant", limiter.ErrInvalid, k)
			}
			queues = true
		}
		g.veto = g.veto || t.Limit == limiter.DenyAll && t.N > 0 && !t.Shadow
		g.asks = g.asks || t.Shadow || t.NoCache
	}
	if len(g.parts) > maxParts {
		return fmt.Errorf("%w: %d takes in one call are more than %d", limiter.ErrInvalid, len(g.parts), maxParts)
	}
	return nil
}

// partOf returns the part that a take counts with, which may be a new one. Counters are what they are called on the server.
func (l *Limiter) partOf(g *group, t *limiter.Take) (int, error) {
	r, err := l.rules.get(t.Limit)
	if err != nil {
		return 0, err
	}
	if t.N < 0 {
		return 0, fmt.Errorf("%w: n %d is negative", limiter.ErrInvalid, t.N)
	}
	made := part{id: t.Key, rule: r, maxDelay: t.MaxDelay, shadow: t.Shadow}
	if !r.stateless() {
		made.key = l.render(t.Key, t.Limit.Algorithm)
	}
	at := -1
	for i := range g.parts {
		p := &g.parts[i]
		if p.key != made.key || p.stateless() != made.stateless() || made.stateless() && (p.id != t.Key || p.rule != r) {
			continue
		}
		if p.rule.limit != t.Limit {
			return 0, fmt.Errorf("%w: two limits for one key", limiter.ErrInvalid)
		}
		if p.shadow == t.Shadow {
			at = i
		}
	}
	if at < 0 {
		g.parts = append(g.parts, made)
		at = len(g.parts) - 1
	}
	return at, nil
}

// addUnits is a + b without overflow: a sum that large is beyond every quota.
func addUnits(a, b int) int {
	if a > math.MaxInt-b {
		return math.MaxInt
	}
	return a + b
}

var (
	errForeign = fmt.Errorf("%w: redislimit: the key holds a value of something else", limiter.ErrInvalid)
	errDrift   = errors.New("redislimit: the script decided otherwise than its reply says")
)

// decide works out the decisions of a group from what the script answered.
func (l *Limiter) decide(g *group) error {
	switch {
	case g.err != nil:
		return g.err
	case g.verdict == foreign:
		return errForeign
	case g.decided:
		return nil
	}
	for i := range g.parts {
		p := &g.parts[i]
		s, err := p.rule.state(p.before)
		if err != nil {
			return fmt.Errorf("%w: redislimit: %w", limiter.ErrInvalid, err)
		}
		if err := l.decidePart(g, p, &s); err != nil {
			return err
		}
		l.see(g, p, &s)
	}
	g.decided = true
	return nil
}

// decidePart works out the decision of one part and brings s to what is stored after it, but for what a refusal stores.
func (l *Limiter) decidePart(g *group, p *part, s *limiter.State) error {
	now := limiter.Reading{Now: g.now, Caller: l.caller}
	d := &p.decision
	p.rule.Decide(d, s, now, p.n, p.maxDelay, p.booked > 0)
	if g.verdict == booked && p.n > 0 && !p.stateless() && d.Allowed != (p.booked > 0) {
		return fmt.Errorf("%w: %w", limiter.ErrInvalid, errDrift)
	}
	if g.verdict == refused && d.Allowed && p.n > 0 {
		p.rule.Decide(d, s, now, 0, 0, false) // not the cause
	}
	if !p.stateless() {
		d.Via = limiter.ViaStore
	}
	return nil
}

// see lets the deny cache learn from a part that is decided. s is its state then, but for what a refusal stores.
func (l *Limiter) see(g *group, p *part, s *limiter.State) {
	if l.denials == nil || p.stateless() || p.n == 0 {
		return
	}
	remember := g.verdict == refused && !g.asks
	if remember && !g.never() {
		p.rule.Learn(s, limiter.Reading{Now: g.now, Caller: l.caller})
	} else if s.Rule != p.rule.Rule || g.now < s.At {
		remember = false // a later refusal may store a new limit or a stepped clock
	}
	l.denials.see(g, p, s, remember, l.caller)
}

// never reports whether a part can never pass. Then nothing was stored.
func (g *group) never() bool {
	if g.veto {
		return true
	}
	for i := range g.parts {
		if p := &g.parts[i]; !p.shadow && p.n > p.rule.limit.Quota() {
			return true
		}
	}
	return false
}

// answer copies the decisions to the takes and reports whether all real ones passed.
func (g *group) answer(takes []limiter.Take) bool {
	for k := range takes {
		at := 0
		if g.index != nil {
			at = g.index[k]
		}
		takes[k].Decision = g.parts[at].decision
	}
	return g.verdict == booked
}
