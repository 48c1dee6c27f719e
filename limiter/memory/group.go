package memory

import (
	"fmt"
	"math"
	"runtime"
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

// slot is what a call needs for each take: room for a part, and two lists of numbers.
type slot struct {
	part
	of    int32 // this take's part
	order int32 // the part whose cell is locked at this position
}

// group is a call under way. Its slots are an array, and it does not hold the takes, so that both stay on the stack.
type group struct {
	l      *Limiter
	at     time.Time
	now    limiter.Reading
	takes  int
	n      int // parts
	cells  int // distinct cells
	inline [few]slot
	more   []slot // for many takes
}

func (g *group) slots() []slot {
	if g.more != nil {
		return g.more
	}
	return g.inline[:g.takes]
}

// decide is AllowAll for any number of takes, and Allow when the usual path will not do.
func (l *Limiter) decide(at time.Time, takes []limiter.Take) (bool, error) {
	g := group{l: l, at: at, takes: len(takes)}
	if len(takes) > few {
		g.more = make([]slot, len(takes))
	}
	if err := g.gather(takes); err != nil {
		return false, err
	}
	for {
		if !g.resolve(takes) {
			return false, errClosed
		}
		if g.arrange() && g.lock(takes) {
			break
		}
		runtime.Gosched() // whoever moves or frees the cells may need this processor
	}
	g.now = limiter.Reading{Now: l.clock.reading(at), Caller: true}
	pass := g.settlePlain(takes)
	if !pass {
		pass = g.settle(takes)
	}
	g.unlock()
	var shared int64
	parts := g.slots()[:g.n]
	for i := range parts {
		if p := &parts[i]; p.n > 0 && p.ref.seg != nil && p.ref.seg.shared {
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
func (g *group) gather(takes []limiter.Take) error {
	slots := g.slots()
	leaky := false
	for k := range takes {
		t := &takes[k]
		r, err := g.l.rules.get(&t.Limit)
		if err != nil {
			return invalidTake(k, err)
		}
		if t.N < 0 {
			return invalidTake(k, fmt.Errorf("%w: n = %d", limiter.ErrInvalid, t.N))
		}
		j := 0
		for ; j < g.n; j++ {
			p := &slots[j]
			if p.rule.limit.Algorithm != t.Limit.Algorithm || takes[p.take].Key != t.Key {
				continue
			}
			if p.rule != r && p.rule.limit != t.Limit {
				return invalidTake(k, fmt.Errorf("%w: another limit for a key of the same call", limiter.ErrInvalid))
			}
			if p.shadow == t.Shadow {
				break
			}
		}
		p := &slots[j]
		if j == g.n {
			g.n++
			p.rule, p.take, p.shadow, p.maxDelay = r, int32(k), t.Shadow, max(0, t.MaxDelay)
			if !r.stateless {
				p.hash = g.l.hasher.own(&t.Key, t.Limit.Algorithm)
			}
		}
		if r.limit.Algorithm == limiter.LeakyBucket && !t.Shadow && t.N > 0 && p.n == 0 {
			if leaky {
				return invalidTake(k, fmt.Errorf("%w: a second leaky_bucket take", limiter.ErrInvalid))
			}
			leaky = true
		}
		p.n = addN(p.n, t.N)
		p.maxDelay = min(p.maxDelay, max(0, t.MaxDelay))
		slots[k].of = int32(j)
	}
	return nil
}

func invalidTake(k int, err error) error { return fmt.Errorf("memory: take %d: %w", k, err) }

func addN(a, b int) int {
	if a > math.MaxInt-b {
		return math.MaxInt
	}
	return a + b
}

// resolve finds the cell of every part, adding those that a take is going to need. false: closed.
func (g *group) resolve(takes []limiter.Take) bool {
	l := g.l
	at := maxInstant
	if !g.at.IsZero() {
		at = l.clock.of(g.at)
	}
	if l.dir.Load() == nil {
		return false
	}
	parts := g.slots()[:g.n]
	for i := range parts {
		p := &parts[i]
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
		k, a := &takes[p.take].Key, p.rule.limit.Algorithm
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
	return true
}

// arrange joins the parts that share a cell and brings the cells into the order in which they are locked. false: a cell
// has changed hands between two look-ups, so that two keys name the same one; whoever locked it for both would wait for
// itself.
func (g *group) arrange() bool {
	slots := g.slots()
	parts := slots[:g.n]
	g.cells = 0
	for i := range parts {
		p := &parts[i]
		if p.ref.seg == nil {
			continue
		}
		for j := range i { // two keys may share an overflow cell; a shadow take may have the key of a real one
			q := &parts[j]
			if q.ref.seg != p.ref.seg || q.ref.i != p.ref.i {
				continue
			}
			if q.ref.hash != p.ref.hash {
				return false
			}
			if p.joined = true; q.holder == int32(j) {
				p.holder, q.joined = int32(j), true
			}
			if !p.shadow && !q.shadow && q.lead == int32(j) {
				p.lead = int32(j)
				q.total = addN(q.total, p.n)
			}
		}
		if p.holder != int32(i) {
			continue
		}
		j := g.cells
		for ; j > 0 && p.ref.before(slots[slots[j-1].order].ref); j-- {
			slots[j].order = slots[j-1].order
		}
		slots[j].order = int32(i)
		g.cells++
	}
	return true
}

// lock takes the bits of all cells. false: one has changed hands, and none is held.
func (g *group) lock(takes []limiter.Take) bool {
	slots := g.slots()
	for k := range g.cells {
		p := &slots[slots[k].order]
		if p.word, p.locked = p.ref.lock(); !p.locked {
			g.unlock()
			return false
		}
		p.was = p.word
	}
	for i := range slots[:g.n] {
		p := &slots[i]
		if p.ref.seg == nil {
			continue
		}
		if p.ref.seg.shared && !g.stillShared(p, &takes[p.take].Key) {
			g.unlock()
			return false
		}
		if p.lead != int32(i) || p.total == 0 || !p.joined && g.l.rules.at(p.word) == p.rule {
			continue
		}
		if p.acquired = p.rule.acquire(); !p.acquired {
			g.unlock()
			p.rule, _ = g.l.rules.get(&takes[p.take].Limit) // it was valid before
			return false
		}
	}
	return true
}

// stillShared reports whether a part's locked overflow cell is the one that counts for its key. If the key gets a cell of
// its own later than this, that starts with what is booked here: whoever adds it has to lock this one.
func (g *group) stillShared(p *slot, k *limiter.Key) bool {
	if r, _ := g.l.lookup(p.hash); r.seg != nil {
		return false
	}
	return g.l.lookupOverflow(k, p.rule.limit.Algorithm) == p.ref
}

// unlock gives back what lock has taken.
func (g *group) unlock() {
	slots := g.slots()
	for i := range slots[:g.n] {
		p := &slots[i]
		if p.acquired {
			p.rule.release()
			p.acquired = false
		}
	}
	for k := range g.cells {
		p := &slots[slots[k].order]
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

// settlePlain is settle for the usual case: no cell is shared or learns a new limit, none has more than a cell, and all
// real takes pass. They are booked as they are decided, and undone if one does not pass. false: nothing is done.
func (g *group) settlePlain(takes []limiter.Take) bool {
	if g.n != len(takes) || g.n > few {
		return false
	}
	slots := g.inline[:g.n]
	for i := range slots {
		if p := &slots[i]; p.hash != 0 && (p.n == 0 || p.joined || p.acquired || p.rule.side || p.ref.seg == nil) {
			return false
		}
	}
	var undo [few]struct {
		at, frac int64
		units    uint32
	}
	for _, shadow := range [...]bool{false, true} { // a shadow take is booked only if the real ones pass
		for i := range slots {
			p := &slots[i]
			if p.shadow != shadow {
				continue
			}
			d := &takes[i].Decision
			if p.hash == 0 {
				p.rule.Decide(d, &limiter.State{}, g.now, p.n, p.maxDelay, false)
			} else {
				c := p.ref.cell()
				undo[i].at, undo[i].frac, undo[i].units = c.at, c.frac, c.units
				s := limiter.State{At: c.at, Frac: c.frac, Units: int64(c.units), Rule: p.rule.Rule}
				p.rule.Decide(d, &s, g.now, p.n, p.maxDelay, true)
				c.at, c.frac, c.units = s.At, s.Frac, uint32(s.Units)
			}
			if d.Allowed || shadow {
				continue
			}
			for j := range i {
				if q := &slots[j]; q.hash != 0 && !q.shadow {
					c := q.ref.cell()
					c.at, c.frac, c.units = undo[j].at, undo[j].frac, undo[j].units
				}
			}
			return false
		}
	}
	return true
}

// settle decides all parts on the state before, books all or none, and fills in the decisions.
func (g *group) settle(takes []limiter.Take) (pass bool) {
	slots := g.slots()
	pass = true
	never := false
	for i := range slots[:g.n] {
		p := &slots[i]
		if p.lead != int32(i) {
			continue
		}
		d := &takes[p.take].Decision
		g.peek(d, p, p.total)
		p.passes, p.never = d.Allowed, !d.Allowed && d.RetryAfter == limiter.Never
		if !p.passes && !p.shadow {
			pass = false
			never = never || p.never
		}
	}
	for _, shadow := range [...]bool{false, true} { // real ones first, where they share a cell
		for i := range slots[:g.n] {
			p := &slots[i]
			if p.shadow != shadow || p.lead != int32(i) {
				continue
			}
			d := &takes[p.take].Decision
			switch {
			case pass:
				g.take(d, p)
			case p.passes:
				g.peek(d, p, 0)
			}
			if !pass && !never && !p.never {
				g.learn(p)
			}
		}
	}
	for k := range takes {
		p := &slots[slots[k].of]
		first := slots[p.lead].take
		if int(first) == k {
			continue
		}
		t := &takes[k]
		t.Decision = takes[first].Decision
		t.Decision.Limit = t.Limit
	}
	return pass
}

func (g *group) peek(d *limiter.Decision, p *slot, n int) {
	var s limiter.State
	var old *rule
	if p.ref.seg != nil {
		old = g.l.state(&s, p.ref, g.slots()[p.holder].word)
	}
	p.decide(d, &s, old, g.now, n, false)
}

func (g *group) take(d *limiter.Decision, p *slot) {
	if p.ref.seg == nil || p.total == 0 {
		g.peek(d, p, p.total)
		return
	}
	var s limiter.State
	h := &g.slots()[p.holder]
	old := g.l.state(&s, p.ref, h.word)
	room := g.l.reserve(&s, p.rule)
	p.decide(d, &s, old, g.now, p.total, true)
	g.l.settleLog(room, &s)
	g.store(p, &s, old)
}

// decide lets the part's rule decide, or on an overflow cell the slowest of those that share it: under whichever came last,
// a key of a fast limit would refill the cell for one of a slow limit.
func (p *slot) decide(d *limiter.Decision, s *limiter.State, old *rule, now limiter.Reading, n int, book bool) {
	if old == nil || old == p.rule || !p.ref.seg.shared || !slower(&old.limit, &p.rule.limit) {
		p.rule.Decide(d, s, now, n, p.maxDelay, book)
		return
	}
	old.Decide(d, s, now, n, p.maxDelay, book)
	d.Limit = p.rule.limit
	if d.RetryAfter == limiter.Never && n <= p.rule.quota {
		d.RetryAfter = d.ResetAfter // then the cell is free for another rule
	}
}

// slower reports whether a gives units back more slowly than b.
func slower(a, b *limiter.Limit) bool { return pace(a) < pace(b) }

func pace(l *limiter.Limit) float64 {
	period := l.Period
	switch l.Align.Unit {
	case limiter.Day:
		period = 24 * time.Hour
	case limiter.Week:
		period = 7 * 24 * time.Hour
	case limiter.Month:
		period = 31 * 24 * time.Hour
	}
	return float64(l.Rate) / float64(period)
}

func (g *group) learn(p *slot) {
	if p.ref.seg == nil || p.total == 0 {
		return
	}
	var s limiter.State
	h := &g.slots()[p.holder]
	old := g.l.state(&s, p.ref, h.word)
	if old == nil || old == p.rule || p.ref.seg.shared && slower(&old.limit, &p.rule.limit) {
		return
	}
	before := s.Log.Cap()
	p.rule.Learn(&s, g.now)
	g.l.logged.Add(int64(s.Log.Cap() - before))
	g.store(p, &s, old)
}

// store writes the state of a step back to its cell.
func (g *group) store(p *slot, s *limiter.State, old *rule) {
	h := &g.slots()[p.holder]
	h.word = g.l.store(p.ref, h.word, s, old, p.rule, p.acquired)
	p.acquired = false
}
