package degrade

import (
	"container/list"
	"context"
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// handTime bounds how long the line stands still for the one that is being decided. Usually its gate hears of that; if not,
// the next one goes on.
const handTime = 250 * time.Millisecond

const queueShards = 16

// queueState is who waits. It may outlive the handler that made it.
type queueState struct {
	cfg     QueueConfig // with defaults
	seed    maphash.Seed
	waiting atomic.Int64 // waiters of all lines
	lines   atomic.Int64 // without any, gates have nothing to look up
	shards  [queueShards]queueShard
}

type queueShard struct {
	mu    sync.Mutex
	lines map[limiter.Key]*line // and all that is in them
	_     [40]byte              // a cache line each
}

func newQueueState(c QueueConfig) *queueState { return &queueState{cfg: c, seed: maphash.MakeSeed()} }

func (s *queueState) shard(k limiter.Key) *queueShard {
	return &s.shards[maphash.Comparable(s.seed, k)%queueShards]
}

// line is who waits for one key. It is there for as long as somebody waits or is being decided. While there are waiters,
// the timer of the oldest is set to the next turn.
type line struct {
	state   *queueState
	shard   *queueShard
	key     limiter.Key
	limit   limiter.Limit // as last applied
	waiters list.List     // of *waiter, oldest first
	units   int           // of all waiters
	turn    time.Time     // when fits units are there
	fits    int
	handed  *waiter // it is its turn, and it is not yet known what became of it
}

// waiter is one request. Its own goroutine waits.
type waiter struct {
	line      *line
	request   *keyfunc.Request
	cost      int
	since     time.Time
	notBefore time.Time // another policy's wait
	deadline  time.Time
	timer     *time.Timer   // to the deadline; of the oldest: to the next turn, if that is earlier
	done      chan struct{} // closed when it is out of the line
	place     *list.Element // nil: it is out of the line
	granted   bool
	kept      bool   // it goes to be decided
	forget    func() // stops what watches over kept
}

// join puts a request that may wait for up to most into its line. nil: it cannot wait, and wait is what it would have been.
func (s *queueState) join(d *Denial, now time.Time, most time.Duration) (w *waiter, wait time.Duration) {
	sh := s.shard(d.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	l := sh.lines[d.Key]
	fresh, told := l == nil, asked(&d.Decision)
	switch own := jittered(d.Decision.Via, d.Decision.RetryAfter); {
	case !fresh && told:
		l.postpone(now.Add(own), d.Cost)
	case !fresh:
	case told:
		l = &line{state: s, shard: sh, turn: now.Add(own), fits: d.Cost}
	default:
		// Those it was to stay behind have all gone meanwhile, and the last one may have taken what was there.
		l = &line{state: s, shard: sh, turn: now.Add(spacing(&d.Decision.Limit, d.Cost)), fits: d.Cost}
	}
	l.limit = d.Decision.Limit
	if d.Cost > l.limit.Quota() {
		return nil, 0 // never
	}
	at := l.eta(now, d.Cost)
	var notBefore time.Time
	if told && d.RetryAfter > d.Decision.RetryAfter {
		notBefore = now.Add(min(d.RetryAfter, farAway))
		at = later(at, notBefore)
	}
	wait = at.Sub(now)
	if wait > most || l.waiters.Len() >= s.cfg.PerKey {
		return nil, wait
	}
	if s.waiting.Add(1) > int64(s.cfg.Total) {
		s.waiting.Add(-1)
		return nil, wait
	}
	w = &waiter{
		line: l, request: d.Request, cost: d.Cost, since: now, notBefore: notBefore, deadline: now.Add(most),
		timer: time.NewTimer(most), done: make(chan struct{}),
	}
	if fresh {
		// A key may be borrowed from the request that is the first.
		l.key = limiter.Key{Space: strings.Clone(d.Key.Space), ID: strings.Clone(d.Key.ID)}
		if sh.lines == nil {
			sh.lines = make(map[limiter.Key]*line)
		}
		sh.lines[l.key] = l
		s.lines.Add(1)
	}
	w.place = l.waiters.PushBack(w)
	l.units += w.cost
	l.advance(now)
	return w, wait
}

// tell says how long a request like the refused one would have to wait now.
func (s *queueState) tell(d *Denial, now time.Time) {
	sh := s.shard(d.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if l := sh.lines[d.Key]; l != nil && d.Cost > 0 && d.Cost <= l.limit.Quota() {
		d.Wait = max(d.Wait, l.eta(now, d.Cost).Sub(now))
	}
}

// refusedAgain hears what became of a turn, where the gate has not.
func (s *queueState) refusedAgain(d *Denial, now time.Time) {
	sh := s.shard(d.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if l := sh.lines[d.Key]; l != nil && l.handed != nil && l.handed.kept && l.handed.request == d.Request {
		l.settle(now, &Verdict{Refused: true, Decision: d.Decision})
	}
}

// The methods of a line are called with its shard locked.

// eta is when a newcomer of that cost would have its turn.
func (l *line) eta(now time.Time, cost int) time.Time {
	front := l.front()
	if front == nil || l.newestFirst(now) {
		return l.behind(now, 0, 0, cost)
	}
	return l.behind(now, l.units, front.cost, cost)
}

func (l *line) front() *waiter {
	if e := l.waiters.Front(); e != nil {
		return e.Value.(*waiter)
	}
	return nil
}

func (l *line) newestFirst(now time.Time) bool {
	front := l.front()
	return l.state.cfg.NewestFirst && front != nil && now.Sub(front.since) > l.state.cfg.MaxWait/2
}

// next is who has the next turn, and when. One that another policy makes wait does not hold up those behind.
func (l *line) next(now time.Time) (w *waiter, at time.Time) {
	e, step := l.waiters.Front(), (*list.Element).Next
	if l.newestFirst(now) {
		e, step = l.waiters.Back(), (*list.Element).Prev
	}
	for ; e != nil; e = step(e) {
		x := e.Value.(*waiter)
		due := l.due(x.cost)
		if t := later(due, x.notBefore); w == nil || t.Before(at) {
			w, at = x, t
		}
		if !x.notBefore.After(later(due, now)) {
			break
		}
	}
	return w, at
}

// advance gives the turn to whose it is, and sets the timer to the next one.
func (l *line) advance(now time.Time) {
	if l.handed == nil {
		if w, at := l.next(now); w != nil && !at.After(now) {
			l.remove(w)
			w.granted, l.handed = true, w
			l.turn, l.fits = now.Add(spacing(&l.limit, w.cost)), w.cost
			close(w.done)
		}
	}
	front := l.front()
	switch {
	case front != nil:
		alarm := front.deadline
		if l.handed == nil {
			if _, at := l.next(now); at.Before(alarm) {
				alarm = at
			}
		}
		front.timer.Reset(alarm.Sub(now))
	case l.handed == nil:
		delete(l.shard.lines, l.key)
		l.state.lines.Add(-1)
	}
}

func (l *line) remove(w *waiter) {
	l.waiters.Remove(w.place)
	w.place = nil
	w.timer.Stop()
	l.units -= w.cost
	l.state.waiting.Add(-1)
}

// settle ends the turn of the one that is handed. v is nil if nobody knows what became of it: then its units may be gone.
func (l *line) settle(now time.Time, v *Verdict) {
	w, refused := l.handed, 0
	l.handed = nil
	if w.forget != nil {
		w.forget()
	}
	switch {
	case v == nil:
	case asked(&v.Decision):
		l.limit = v.Decision.Limit
		if v.Refused {
			refused = w.cost
		}
		if next, _ := l.next(now); next != nil {
			l.expect(now, &v.Decision, refused, next.cost)
		}
	case !v.Passed && !v.Refused: // its units are still there
		l.turn, l.fits = now, w.cost
	}
	l.trim(now)
	l.advance(now)
}

// expect sets the turn of a request of cost n after d; see untilFits.
func (l *line) expect(now time.Time, d *limiter.Decision, refused, n int) {
	l.turn, l.fits = now.Add(jittered(d.Via, untilFits(d, refused, n))), n
}

// overtaken hears of a request that was on its way to the policy before anybody waited. It may be late to tell, so it never
// makes a turn earlier.
func (l *line) overtaken(now time.Time, d *limiter.Decision) {
	if next, _ := l.next(now); next != nil {
		turn, fits := l.turn, l.fits
		before := l.due(next.cost)
		if l.expect(now, d, 0, next.cost); !l.turn.After(before) {
			l.turn, l.fits = turn, fits
			return
		}
		l.trim(now)
		l.advance(now)
	}
}

// postpone takes note that cost units are not there before at.
func (l *line) postpone(at time.Time, cost int) {
	if at.After(l.due(cost)) {
		l.turn, l.fits = at, cost
	}
}

// trim lets those go that would wait longer than they may, now that turns come later than they were thought to.
func (l *line) trim(now time.Time) {
	if l.newestFirst(now) {
		return // who waits for how long depends on who comes
	}
	ahead, first := 0, 0
	for e := l.waiters.Front(); e != nil; {
		w := e.Value.(*waiter)
		e = e.Next()
		if w.cost > l.limit.Quota() || l.behind(now, ahead, first, w.cost).After(w.deadline) {
			l.remove(w)
			close(w.done)
			continue
		}
		if ahead == 0 {
			first = w.cost
		}
		ahead += w.cost
	}
}

// wake is called when the waiter's timer has fired: it is somebody's turn, or the end of the waiter's.
func (w *waiter) wake(now time.Time) {
	l := w.line
	l.shard.mu.Lock()
	defer l.shard.mu.Unlock()
	if w.place == nil {
		return
	}
	l.advance(now)
	if w.place != nil && !now.Before(w.deadline) {
		l.remove(w)
		close(w.done)
		l.advance(now)
	}
}

// keep is called before the waiter goes to be decided. Should nobody hear of that, the turn ends with the request, or after
// handTime.
func (w *waiter) keep(ctx context.Context) {
	l := w.line
	l.shard.mu.Lock()
	defer l.shard.mu.Unlock()
	lost := func() {
		l.shard.mu.Lock()
		defer l.shard.mu.Unlock()
		if l.handed == w {
			l.settle(time.Now(), nil)
		}
	}
	timer, stop := time.AfterFunc(handTime, lost), context.AfterFunc(ctx, lost)
	w.kept, w.forget = true, func() { timer.Stop(); stop() }
}

// leave takes the waiter out of its line, or hands its turn on, unless it goes to be decided.
func (w *waiter) leave() {
	l := w.line
	l.shard.mu.Lock()
	defer l.shard.mu.Unlock()
	switch {
	case w.place != nil:
		l.remove(w)
		close(w.done)
		l.advance(time.Now())
	case l.handed == w && !w.kept:
		l.settle(time.Now(), new(Verdict))
	}
}
