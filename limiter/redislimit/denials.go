package redislimit

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// denials remembers, for a short time, what was seen of the keys of refused groups. A group is refused from it if the pure
// steps, run on what was seen, refuse it even at the latest instant that the store's clock may show now. In between others
// can only have taken, unless they gave back, reset or raised, which is then noticed when the time is over.
//
// Whatever goes through this process keeps it up to date, so that within the process no decision differs from the store's.
type denials struct {
	longest time.Duration
	seed    maphash.Seed
	known   atomic.Int64 // sightings in all
	shards  [denialShards]denialShard
}

const (
	denialShards = 64
	// maxSightings bounds a shard. What is dropped costs a call and nothing else.
	maxSightings = 256
)

type denialShard struct {
	mu    sync.Mutex
	epoch uint64 // raised by refunds and resets: what was asked for before must not be remembered after
	byKey map[string]*sighting
	_     [64]byte
}

// sighting is what a reply told of a key.
type sighting struct {
	rule     *rule
	state    limiter.State
	now      int64     // the store's clock at the reply, in ticks,
	sent     time.Time // which was not before this
	received time.Time // and not after this
	n        int       // a log is abridged for one n, as it was at now,
	until    int64     // until its first entry leaves; 0: no log
}

func newDenials(longest time.Duration) *denials {
	return &denials{longest: longest, seed: maphash.MakeSeed()}
}

func (d *denials) shard(key string) *denialShard {
	return &d.shards[maphash.String(d.seed, key)%denialShards]
}

// refuses decides g if it is sure to be refused; otherwise g is prepared for being asked for.
func (d *denials) refuses(g *group, caller bool) bool {
	now := time.Now()
	g.sent = now
	known, sure := !g.asks, g.veto
	for i := range g.parts {
		p := &g.parts[i]
		if p.stateless() {
			p.rule.Decide(&p.decision, &limiter.State{}, limiter.Reading{}, p.n, 0, false)
			continue
		}
		var seen *sighting
		seen, p.epoch = d.shard(p.key).get(p.key)
		// The epochs are needed even where one part that was not seen lately makes it necessary to ask.
		if known = known && seen != nil && seen.rule == p.rule && now.Sub(seen.sent) < d.longest; !known {
			continue
		}
		early, late := g.now, g.now
		if !caller {
			early = seen.now + int64(now.Sub(seen.received)/time.Microsecond)
			late = seen.now + int64(now.Sub(seen.sent)/time.Microsecond) + 1
		}
		known = seen.decides(p, limiter.Reading{Now: early, Caller: caller}, limiter.Reading{Now: late, Caller: caller})
		sure = sure || !p.decision.Allowed && !p.shadow
	}
	if !known || !sure {
		return false
	}
	for i := range g.parts {
		if p := &g.parts[i]; !p.stateless() {
			p.decision.Via = limiter.ViaDenyCache
		}
	}
	g.verdict, g.decided = refused, true
	return true
}

// decides works out the decision of a part of a refused group at the earliest instant it may be, so that no wait told is too
// short. false: it may be another one at the latest instant, or what was seen does not tell.
func (s *sighting) decides(p *part, early, late limiter.Reading) bool {
	if s.until != 0 && (p.n != s.n || early.Now < s.now || late.Now >= s.until) {
		return false
	}
	var then limiter.Decision
	state := s.state
	p.rule.Decide(&then, &state, late, p.n, p.maxDelay, false)
	p.rule.Decide(&p.decision, &state, early, p.n, p.maxDelay, false)
	if then.Allowed != p.decision.Allowed {
		return false
	}
	if p.decision.Allowed && p.n > 0 {
		p.rule.Decide(&p.decision, &state, early, 0, 0, false) // not the cause
	}
	return true
}

func (s *denialShard) get(key string) (*sighting, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byKey[key], s.epoch
}

// see keeps what is remembered of a part's key up to date after a reply, or remembers it. state is what is stored after the
// decision.
func (d *denials) see(g *group, p *part, state *limiter.State, remember, caller bool) {
	if !remember && d.known.Load() == 0 {
		return
	}
	s := d.shard(p.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.byKey[p.key]
	switch {
	case s.epoch != p.epoch, !remember && (old == nil || g.verdict == refused && !g.asks):
		return
	case old != nil && g.verdict == booked && (caller || old.now == g.now), old != nil && g.asks:
		d.drop(s, p.key) // which of the two came first is not known: the clocks of callers say nothing about it
		return
	case old != nil && !caller && old.now > g.now:
		return // known better by now
	}
	if old == nil && len(s.byKey) >= maxSightings {
		for key := range s.byKey { // any
			d.drop(s, key)
			break
		}
	}
	now := time.Now()
	next := &sighting{rule: p.rule, state: *state, now: g.now, sent: g.sent, received: now, n: p.n}
	if p.rule.limit.Algorithm == limiter.SlidingLog {
		next.until = g.now + int64(min(p.decision.NextAfter, d.longest)/time.Microsecond)
	}
	if s.byKey == nil {
		s.byKey = make(map[string]*sighting)
	}
	if old == nil {
		d.known.Add(1)
	}
	s.byKey[p.key] = next
}

// forget drops what is remembered of keys, and what calls under way will tell of them.
func (d *denials) forget(keys ...string) {
	for _, key := range keys {
		s := d.shard(key)
		s.mu.Lock()
		s.epoch++
		if s.byKey[key] != nil {
			d.drop(s, key)
		}
		s.mu.Unlock()
	}
}

func (d *denials) drop(s *denialShard, key string) {
	delete(s.byKey, key)
	d.known.Add(-1)
}
