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
	key      string // as rendered; empty for limits without state
	rule     *rule
	n        int
	maxDelay time.Duration
	shadow   bool
	around   int64 // calendar windows: the instant to send edges for; 0: about now

	// What the script answered.
	booked int
	before string // the state before
}

func (p *part) stateless() bool { return p.key == "" }

// queues reports whether the part is a place in a queue, which cannot be given back.
func (p *part) queues() bool {
	return p.rule.limit.Algorithm == limiter.LeakyBucket && !p.shadow && p.n > 0
}

// group is the takes of one call: all are booked, or none.
type group struct {
	parts   []part
	index   []int // the part of each take; nil for a single take
	veto    bool  // is refused whatever the script finds
	now     int64 // the deciding clock, in ticks: the caller's as sent, or the server's as answered
	verdict byte
	err     error

	// Equal single takes of one trip are asked for once. The first has the others behind it, and its trip decides for all.
	next, last *group
	decision   limiter.Decision
	decided    bool

	one [1]part
}

func (g *group) stateless() bool {
	for i := range g.parts {
		if !g.parts[i].stateless() {
			return false
		}
	}
	return true
}

// single makes a group of one take.
func (l *Limiter) single(g *group, key limiter.Key, r *rule, n int) {
	g.one[0] = part{id: key, key: l.render(key, r.limit.Algorithm), rule: r, n: n}
	g.parts = g.one[:]
}

func (l *Limiter) render(key limiter.Key, a limiter.Algorithm) string { return key.Render(l.prefix, a.Tag()) }

// gather makes a group of the takes and puts those together that count together.
func (l *Limiter) gather(takes []limiter.Take) (*group, error) {
	g := &group{parts: make([]part, 0, len(takes)), index: make([]int, len(takes))}
	queues := false
	for k := range takes {
		t := &takes[k]
		r, err := l.rules.get(t.Limit)
		if err != nil {
			return nil, fmt.Errorf("take %d: %w", k, err)
		}
		if t.N < 0 {
			return nil, fmt.Errorf("%w: take %d: n %d is negative", limiter.ErrInvalid, k, t.N)
		}
		at := -1
		for i := range g.parts {
			p := &g.parts[i]
			if p.id != t.Key || p.rule.limit.Algorithm != t.Limit.Algorithm {
				continue
			}
			if p.rule.limit != t.Limit {
				return nil, fmt.Errorf("%w: take %d: two limits for one key", limiter.ErrInvalid, k)
			}
			if p.shadow == t.Shadow {
				at = i
			}
		}
		if at < 0 {
			at = len(g.parts)
			p := part{id: t.Key, rule: r, maxDelay: t.MaxDelay, shadow: t.Shadow}
			if !r.stateless() {
				p.key = l.render(t.Key, t.Limit.Algorithm)
			}
			g.parts = append(g.parts, p)
		}
		p := &g.parts[at]
		queued := p.queues()
		p.n = addUnits(p.n, t.N)
		p.maxDelay = min(p.maxDelay, t.MaxDelay)
		g.index[k] = at
		if p.queues() && !queued {
			if queues {
				return nil, fmt.Errorf("%w: take %d: two leaky buckets cannot leave at one instant", limiter.ErrInvalid, k)
			}
			queues = true
		}
		if t.Limit == limiter.DenyAll && t.N > 0 && !t.Shadow {
			g.veto = true
		}
	}
	if len(g.parts) > maxParts {
		return nil, fmt.Errorf("%w: %d takes in one call are more than %d", limiter.ErrInvalid, len(g.parts), maxParts)
	}
	return g, nil
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

// decide works out the decision of part k from what the script answered.
func (g *group) decide(p *part, d *limiter.Decision, caller bool) error {
	s, err := p.rule.state(p.before)
	if err != nil {
		return fmt.Errorf("%w: redislimit: %w", limiter.ErrInvalid, err)
	}
	return g.decideFrom(p, d, &s, caller)
}

func (g *group) decideFrom(p *part, d *limiter.Decision, s *limiter.State, caller bool) error {
	now := limiter.Reading{Now: g.now, Caller: caller}
	p.rule.Decide(d, s, now, p.n, p.maxDelay, p.booked > 0)
	switch {
	case p.stateless() || p.n == 0:
	case g.verdict == booked && d.Allowed != (p.booked > 0):
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

// answer fills in the decisions of takes and reports whether all real ones passed.
func (g *group) answer(takes []limiter.Take, caller bool) (bool, error) {
	switch {
	case g.err != nil:
		return false, g.err
	case g.verdict == foreign:
		return false, errForeign
	}
	decisions := make([]limiter.Decision, len(g.parts))
	for i := range g.parts {
		if err := g.decide(&g.parts[i], &decisions[i], caller); err != nil {
			return false, err
		}
	}
	for k := range takes {
		takes[k].Decision = decisions[g.index[k]]
	}
	return g.verdict == booked, nil
}
