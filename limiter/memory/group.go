package memory

import (
	"fmt"
	"math"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// few is how many takes a call may have without an allocation.
const few = 8

// part is the takes of a call that count as one: those of one key and algorithm, shadow ones apart.
type part struct {
	rule     *rule
	hash     uint64 // of the key's own cell; 0: needs no state
	n        int
	maxDelay time.Duration
	take     int32 // the first of its takes
	shadow   bool

	ref      ref   // where its state is; seg is nil if it has none
	holder   int32 // the part that holds the cell's bit: another one if they share it
	lead     int32 // the part that decides for it: another real one on the same overflow cell
	total    int   // lead: n of all it decides for
	word     uint32
	was      uint32 // word as it was locked
	locked   bool
	joined   bool // other parts share the cell
	acquired bool // holds a reference of rule for the step to come
	passes   bool
	never    bool
}

// group is a call under way.
type group struct {
	l     *Limiter
	at    time.Time
	takes []limiter.Take
	parts []part
	of    []int32 // by take: its part
	order []int32 // parts in the order their cells are locked
	now   limiter.Reading
}

// decide is AllowAll for any number of takes, and Allow when the usual path will not do.
func (l *Limiter) decide(at time.Time, takes []limiter.Take) (bool, error) {
	var parts [few]part
	var of, order [few]int32
	g := group{l: l, at: at, takes: takes, parts: parts[:0], of: of[:0], order: order[:0]}
	if len(takes) > few {
		g.parts, g.of, g.order = make([]part, 0, len(takes)), make([]int32, 0, len(takes)), make([]int32, 0, len(takes))
	}
	if err := g.gather(); err != nil {
		return false, err
	}
	for {
		if !g.resolve() {
			return false, errClosed
		}
		if g.lock() {
			break
		}
	}
	g.now = l.clock.reading(at)
	pass := g.settle()
	g.unlock()
	var shared int64
	for i := range g.parts {
		if p := &g.parts[i]; p.n > 0 && p.ref.seg != nil && p.ref.seg.shared {
			shared++
		}
	}
	if shared > 0 && l.noteOverflow(shared) {
		l.report()
	}
	if l.due(g.now.Now) {
		l.sweep(g.now.Now)
	}
	return pass, nil
}

// gather checks the takes and sums up those that count together.
func (g *group) gather() error {
	leaky := 0
	for k := range g.takes {
		t := &g.takes[k]
		if t.N < 0 {
			return fmt.Errorf("memory: take %d: %w: n = %d", k, limiter.ErrInvalid, t.N)
		}
		r, err := g.l.rules.get(&t.Limit)
		if err != nil {
			return fmt.Errorf("memory: take %d: %w", k, err)
		}
		if t.Limit.Algorithm == limiter.LeakyBucket && !t.Shadow && t.N > 0 {
			if leaky++; leaky > 1 {
				return fmt.Errorf("memory: take %d: %w: a second leaky_bucket take", k, limiter.ErrInvalid)
			}
		}
		j := 0
		for ; j < len(g.parts); j++ {
			if p := &g.parts[j]; p.shadow == t.Shadow && g.takes[p.take].Key == t.Key && p.rule.limit.Algorithm == t.Limit.Algorithm {
				if p.rule.limit != t.Limit {
					return fmt.Errorf("memory: take %d: %w: another limit for a key of the same call", k, limiter.ErrInvalid)
				}
				break
			}
		}
		if j == len(g.parts) {
			p := part{rule: r, take: int32(k), shadow: t.Shadow}
			if !r.stateless {
				p.hash = g.l.hasher.own(t.Key, t.Limit.Algorithm)
			}
			g.parts = append(g.parts, p)
		}
		p := &g.parts[j]
		p.n = addN(p.n, t.N)
		p.maxDelay = max(p.maxDelay, t.MaxDelay)
		g.of = append(g.of, int32(j))
	}
	return nil
}

func addN(a, b int) int {
	if a > math.MaxInt-b {
		return math.MaxInt
	}
	return a + b
}

// resolve finds the cell of every part, adding those that a take is going to need. false: closed.
func (g *group) resolve() bool {
	l := g.l
	at := int64(maxInstant)
	if !g.at.IsZero() {
		at = l.clock.of(g.at)
	}
	if l.dir.Load() == nil {
		return false
	}
	for i := range g.parts {
		p := &g.parts[i]
		p.ref, p.total, p.lead, p.holder = ref{}, p.n, int32(i), int32(i)
		p.locked, p.joined = false, false
		if p.hash == 0 {
			continue
		}
		var open bool
		if p.ref, open = l.lookup(p.hash); !open {
			return false
		}
		if p.ref.seg != nil {
			continue
		}
		k, a := &g.takes[p.take].Key, p.rule.limit.Algorithm
		if p.n == 0 || p.n > p.rule.quota { // nothing will be stored
			p.ref = l.lookupOverflow(k, a)
			continue
		}
		if p.ref, open = l.obtain(k, p.rule, p.hash, at); open && p.ref.seg == nil {
			p.ref, open = l.obtainOverflow(k, a, at)
		}
		if !open {
			return false
		}
	}
	g.order = g.order[:0]
	for i := range g.parts {
		p := &g.parts[i]
		if p.ref.seg == nil {
			continue
		}
		for j := range i { // two keys may share an overflow cell; a shadow take may have the key of a real one
			q := &g.parts[j]
			if q.ref != p.ref {
				continue
			}
			if p.joined = true; q.holder == int32(j) {
				p.holder, q.joined = int32(j), true
			}
			if !p.shadow && !q.shadow && q.lead == int32(j) {
				p.lead = int32(j)
				q.total = addN(q.total, p.n)
			}
		}
		if p.holder == int32(i) {
			g.order = append(g.order, int32(i))
		}
	}
	// All calls lock cells in one order: own ones before shared ones, by hash.
	for i := 1; i < len(g.order); i++ {
		for j := i; j > 0 && g.before(g.order[j], g.order[j-1]); j-- {
			g.order[j], g.order[j-1] = g.order[j-1], g.order[j]
		}
	}
	return true
}

func (g *group) before(i, j int32) bool {
	p, q := &g.parts[i].ref, &g.parts[j].ref
	if p.seg.shared != q.seg.shared {
		return q.seg.shared
	}
	return p.hash < q.hash
}

// lock takes the bits of all cells. false: one has changed hands, and none is held.
func (g *group) lock() bool {
	for _, i := range g.order {
		p := &g.parts[i]
		if p.word, p.locked = p.ref.lock(); !p.locked {
			g.unlock()
			return false
		}
		p.was = p.word
	}
	for i := range g.parts {
		p := &g.parts[i]
		if p.ref.seg == nil {
			continue
		}
		if p.ref.seg.shared && !g.stillShared(p) {
			g.unlock()
			return false
		}
		if p.lead != int32(i) || p.total == 0 || !p.joined && g.l.rules.at(p.word) == p.rule {
			continue
		}
		if p.acquired = p.rule.acquire(); !p.acquired {
			g.unlock()
			p.rule, _ = g.l.rules.get(&g.takes[p.take].Limit) // it was valid before
			return false
		}
	}
	return true
}

// stillShared reports whether a part's locked overflow cell is the one that counts for its key. If the key gets a cell of
// its own later than this, that starts with what is booked here: whoever adds it has to lock this one.
func (g *group) stillShared(p *part) bool {
	if r, _ := g.l.lookup(p.hash); r.seg != nil {
		return false
	}
	return g.l.lookupOverflow(&g.takes[p.take].Key, p.rule.limit.Algorithm) == p.ref
}

// unlock gives back what lock has taken.
func (g *group) unlock() {
	for i := range g.parts {
		p := &g.parts[i]
		if p.acquired {
			p.rule.release()
			p.acquired = false
		}
	}
	for _, i := range g.order {
		p := &g.parts[i]
		if !p.locked {
			continue
		}
		if p.word != p.was || p.word == 0 {
			p.ref.seg.lower(g.l.idleAt(p.ref, p.word))
		}
		p.ref.cell().unlock(p.word)
		p.locked = false
	}
}

// settle decides all parts on the state before, books all or none, and fills in the decisions.
func (g *group) settle() (pass bool) {
	pass = true
	never := false
	for i := range g.parts {
		p := &g.parts[i]
		if p.lead != int32(i) {
			continue
		}
		d := &g.takes[p.take].Decision
		*d = g.peek(p, p.total)
		p.passes, p.never = d.Allowed, !d.Allowed && d.RetryAfter == limiter.Never
		if !p.passes && !p.shadow {
			pass = false
			never = never || p.never
		}
	}
	for _, shadow := range [...]bool{false, true} { // real ones first, where they share a cell
		for i := range g.parts {
			p := &g.parts[i]
			if p.shadow != shadow || p.lead != int32(i) {
				continue
			}
			d := &g.takes[p.take].Decision
			switch {
			case pass:
				*d = g.take(p)
			case p.passes:
				*d = g.peek(p, 0)
			}
			if !pass && !never && !p.never {
				g.learn(p)
			}
		}
	}
	for k := range g.takes {
		p := &g.parts[g.of[k]]
		first := g.parts[p.lead].take
		if int(first) == k {
			continue
		}
		t := &g.takes[k]
		t.Decision = g.takes[first].Decision
		t.Decision.Limit = t.Limit
	}
	return pass
}

func (g *group) peek(p *part, n int) limiter.Decision {
	var s limiter.State
	if p.ref.seg != nil {
		g.l.state(&s, p.ref, g.parts[p.holder].word)
	}
	return p.rule.Peek(&s, g.now, n, p.maxDelay)
}

func (g *group) take(p *part) limiter.Decision {
	if p.ref.seg == nil || p.total == 0 {
		return g.peek(p, p.total)
	}
	var s limiter.State
	h := &g.parts[p.holder]
	old := g.l.state(&s, p.ref, h.word)
	room := g.l.reserve(&s, p.rule)
	d := p.rule.Take(&s, g.now, p.total, p.maxDelay)
	g.l.settleLog(room, &s)
	g.store(p, &s, old)
	return d
}

func (g *group) learn(p *part) {
	if p.ref.seg == nil || p.total == 0 {
		return
	}
	var s limiter.State
	h := &g.parts[p.holder]
	old := g.l.state(&s, p.ref, h.word)
	if old == nil || old == p.rule {
		return
	}
	before := s.Log.Cap()
	p.rule.Learn(&s, g.now)
	g.l.logged.Add(int64(s.Log.Cap() - before))
	g.store(p, &s, old)
}

// store writes the state of a step back to its cell.
func (g *group) store(p *part, s *limiter.State, old *rule) {
	h := &g.parts[p.holder]
	h.word = g.l.store(p.ref, h.word, s, old, p.rule, p.acquired)
	p.acquired = false
}
