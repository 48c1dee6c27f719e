package leased

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// part is the takes of a call that count as one: those of one key, shadow ones apart.
type part struct {
	key    limiter.Key
	limit  limiter.Limit
	n      int
	shadow bool

	e        *entry // nil: needs no state
	epoch    uint64
	w        *waiter
	verdict  verdict
	spent    bool // its tokens were spent when they arrived
	decision limiter.Decision
}

// never reports that the part asks for more than there can ever be.
func (p *part) never() bool { return p.n > p.limit.Quota() }

// AllowAll implements [limiter.Batcher] on what this process holds or can get: the tokens of each key are set aside, and spent
// when all are there. at is not used: the instant is the server's. It takes at most two time-outs.
//
// A shadow take whose key Redis does not answer for is not booked and refuses nobody, where there are real takes: it is told as
// one that passes, with what is known. What else goes wrong with a shadow take is an error, and nothing is booked.
func (l *Limiter) AllowAll(ctx context.Context, _ time.Time, takes []limiter.Take) (bool, error) {
	if err := l.open(ctx); err != nil {
		return false, err
	}
	if len(takes) == 1 && !takes[0].Shadow {
		t := &takes[0]
		d, err := l.Allow(ctx, t.Key, t.Limit, t.N)
		t.Decision = d
		return d.Allowed, err
	}
	if l.quick(takes) {
		return true, nil
	}
	if !l.begin() { // Close waits for what is set aside
		return false, errClosed
	}
	defer l.running.Done()
	parts, of, err := l.gather(takes)
	pass := false
	if err == nil {
		pass, err = l.decideAll(ctx, parts)
	}
	for k := range takes {
		takes[k].Decision = limiter.Decision{}
		if err == nil {
			takes[k].Decision = parts[of[k]].decision
		}
	}
	return pass && err == nil, err
}

// gather checks takes and sums up those that count together.
func (l *Limiter) gather(takes []limiter.Take) (parts []part, of []int, err error) {
	of = make([]int, len(takes))
	for k := range takes {
		t := &takes[k]
		if err := l.check(&t.Limit, t.N); err != nil {
			return nil, nil, fmt.Errorf("leased: take %d: %w", k, err)
		}
		j := -1
		for i := range parts {
			p := &parts[i]
			if p.key != t.Key || stateless(&p.limit) != stateless(&t.Limit) {
				continue
			}
			if p.limit != t.Limit {
				if stateless(&t.Limit) {
					continue
				}
				return nil, nil, fmt.Errorf("%w: leased: take %d: another limit for a key of the same call", limiter.ErrInvalid, k)
			}
			if p.shadow == t.Shadow {
				j = i
			}
		}
		if j < 0 {
			j = len(parts)
			parts = append(parts, part{key: t.Key, limit: t.Limit, shadow: t.Shadow})
		}
		if p := &parts[j]; t.N > math.MaxInt-p.n {
			p.n = math.MaxInt
		} else {
			p.n += t.N
		}
		of[k] = j
	}
	return parts, of, nil
}

// attempts is how often a group is tried whose tokens' leases end while it waits for others.
const attempts = 3

var errLeases = fmt.Errorf("%w: leased: leases ended before all of a group were there", limiter.ErrUnavailable)

func (l *Limiter) decideAll(ctx context.Context, parts []part) (bool, error) {
	refused, until := false, l.patience()
	for i := range parts {
		if p := &parts[i]; p.never() {
			refused = refused || !p.shadow
		}
	}
	for range attempts {
		if refused { // whatever the others say, nothing is booked
			return false, l.lookAll(ctx, parts)
		}
		pass, err := l.setAside(ctx, parts, false, until)
		shadows := false
		if err == nil {
			shadows, err = l.setAside(ctx, parts, true, until)
		}
		if err != nil || !pass {
			l.release(parts)
			return false, err
		}
		if l.book(parts, shadows) {
			return true, nil
		}
	}
	return false, errLeases
}

// lookAll fills in what a group is told that is refused for a take that can never pass.
func (l *Limiter) lookAll(ctx context.Context, parts []part) (err error) {
	for i := range parts {
		p := &parts[i]
		if stateless(&p.limit) || p.never() {
			p.decision, err = l.Allow(ctx, p.key, p.limit, p.n) // takes nothing
		} else {
			p.decision, err = l.Allow(ctx, p.key, p.limit, 0)
			if v := p.decision.Remaining; err == nil && p.n > v {
				p.decision.Allowed = false
				p.decision.RetryAfter = max(p.decision.NextAfter, inNanoseconds(newTerms(p.limit, l.sync).until(int64(p.n-v), 0)))
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// setAside gets the tokens of the real parts or the shadow ones, and reports whether all are there. What was set aside stays so.
// Tokens of a call are leased so that they can be given back; but a single real part that needs one is asked for last and its
// tokens spent when they arrive, which leaves nothing to be reported.
func (l *Limiter) setAside(ctx context.Context, parts []part, shadow bool, until time.Time) (bool, error) {
	all := true
	real := slices.ContainsFunc(parts, func(p part) bool { return !p.shadow })
	needing := 0
	for i := range parts {
		p := &parts[i]
		if p.shadow != shadow || p.spent {
			continue
		}
		p.e, p.w, p.verdict = nil, nil, 0
		var err error
		if stateless(&p.limit) || p.n == 0 || p.never() {
			p.decision, err = l.Allow(ctx, p.key, p.limit, p.n)
			all = all && p.decision.Allowed
		} else if err = l.try(p); p.verdict == waits {
			needing++
		} else {
			all = all && p.verdict == taken
		}
		if err != nil && !l.bears(p, real, err) {
			return false, err
		}
		all = all && err == nil
	}
	if needing == 0 {
		return all, nil
	}
	alone := needing == 1 && all && !slices.ContainsFunc(parts, func(p part) bool { return p.shadow })
	for i := range parts {
		if p := &parts[i]; p.shadow == shadow && p.verdict == waits {
			if err := l.askFor(p, !alone); err != nil {
				return false, err
			}
		}
	}
	for i := range parts {
		p := &parts[i]
		if p.shadow != shadow || p.spent || p.w == nil {
			continue
		}
		var err error
		if p.decision, err = l.wait(ctx, p.e, p.w, until); err != nil {
			if !l.bears(p, real, err) {
				return false, err
			}
			all = false
			continue
		}
		p.verdict, p.epoch = p.w.verdict, p.w.epoch
		all = all && p.verdict == taken
		if alone {
			p.e, p.spent = nil, p.verdict == taken
		}
	}
	return all, nil
}

// bears reports whether the group can do without a part that could not be decided: a shadow one beside real ones, where Redis does
// not answer for its key. It is told what is known, as if it had passed.
func (l *Limiter) bears(p *part, real bool, err error) bool {
	if !p.shadow || !real || !errors.Is(err, limiter.ErrUnavailable) {
		return false
	}
	p.verdict, p.decision = failed, limiter.Decision{Allowed: true, Limit: p.limit, Via: limiter.ViaLease, Remaining: p.limit.Quota()}
	if p.e != nil {
		p.e.mu.Lock()
		defer p.e.mu.Unlock()
		if p.e.node.known {
			l.decide(&p.decision, p.e, &p.limit, l.now(), 0, true, limiter.ViaLease)
		}
	}
	return true
}

// enterLocked returns the entry of a part, locked and under its limit.
func (l *Limiter) enterLocked(p *part) (*entry, error) {
	for {
		e := l.table.get(&p.key, l.table.hash(&p.key))
		if e == nil {
			var err error
			if e, err = l.enter(p.key, p.limit); err != nil {
				return nil, err
			}
		}
		e.mu.Lock()
		if e.dead {
			e.mu.Unlock()
			continue
		}
		if e.node.limit != p.limit {
			e.node.relimit(p.limit)
		}
		return e, nil
	}
}

// try sets the tokens of a part aside if they are held. Else its verdict says what is to be done.
func (l *Limiter) try(p *part) error {
	e, err := l.enterLocked(p)
	if err != nil {
		return err
	}
	defer e.mu.Unlock()
	p.e = e
	now := l.now()
	p.verdict, p.epoch = p.e.node.reserve(now, int64(p.n))
	switch p.verdict {
	case taken:
		l.goOn(p.e, now)
	case denied:
		l.decide(&p.decision, p.e, &p.limit, now, p.n, false, limiter.ViaLease)
	case failed:
		return p.e.err
	}
	return nil
}

// askFor lets a part wait for its tokens.
func (l *Limiter) askFor(p *part, reserve bool) error {
	e, err := l.enterLocked(p)
	if err != nil {
		return err
	}
	defer e.mu.Unlock()
	p.e, p.verdict = e, 0
	p.w = &waiter{cost: int64(p.n), reserve: reserve, done: make(chan struct{})}
	l.join(p.e, l.now(), p.w)
	return nil
}

// release gives back what was set aside, and fills in what those parts are told: they were not the cause.
func (l *Limiter) release(parts []part) {
	for i := range parts {
		p := &parts[i]
		if p.e == nil {
			continue
		}
		p.e.mu.Lock()
		if p.verdict == 0 && p.w != nil {
			if p.w.verdict == 0 {
				p.e.node.forsake(p.w)
			} else {
				p.verdict, p.epoch = p.w.verdict, p.w.epoch
			}
		}
		now := l.now()
		if p.verdict == taken {
			p.e.node.release(now, int64(p.n), p.epoch)
			l.own(p, now)
		}
		p.e.mu.Unlock()
	}
}

// own fills in what a part is told that would have passed: it was not the cause. Its entry is locked.
func (l *Limiter) own(p *part, now int64) {
	via := limiter.ViaLease
	if p.w != nil {
		via = limiter.ViaStore
	}
	l.decide(&p.decision, p.e, &p.limit, now, 0, true, via)
}

// book spends what was set aside, that of shadow parts only if all of those passed too. false: a lease has ended meanwhile, and
// nothing was spent.
func (l *Limiter) book(parts []part, shadows bool) bool {
	var entries []*entry
	for i := range parts {
		if e := parts[i].e; e != nil && !slices.Contains(entries, e) {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b *entry) int {
		if a.number < b.number {
			return -1
		}
		return 1
	})
	for _, e := range entries {
		e.mu.Lock()
		defer e.mu.Unlock()
	}
	now := l.now()
	alive := true
	for i := range parts {
		p := &parts[i]
		if p.e != nil && p.verdict == taken && !p.e.node.alive(now, p.epoch) {
			alive = false
		}
	}
	for i := range parts {
		p := &parts[i]
		if p.e == nil || p.verdict != taken {
			continue
		}
		if alive && (!p.shadow || shadows) {
			p.e.node.spend(int64(p.n))
			continue
		}
		p.e.node.release(now, int64(p.n), p.epoch)
	}
	for i := range parts {
		p := &parts[i]
		if alive && p.e != nil && p.verdict == taken {
			l.own(p, now)
			if !p.shadow || shadows {
				p.decision.Mark = l.wall + now
			}
			if q, due := p.e.node.report(now); due {
				l.start(p.e, q)
			}
		}
	}
	return alive
}
