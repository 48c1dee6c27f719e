package client

import (
	"cmp"
	"container/list"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// lane is one destination: a line of those who wait, and what is known of it. Who is first in the line has the turn: he
// alone asks the Limiter, so the order of the line is the order of departures, who leaves the line early costs nothing,
// and a pause finds few places booked that it makes void.
type lane struct {
	t       *Transport
	key     limiter.Key
	breaker *breaker      // nil: none
	shared  bool          // by several keys: departures are not all of one limit
	wake    chan struct{} // tells who has the turn that something has changed

	mu      sync.Mutex
	users   int // requests that know this lane
	used    time.Time
	taken   bool
	waiting []*waiter // by number
	numbers uint64
	flying  int           // requests whose bodies have not ended
	quick   time.Duration // from a departure to the end of its body, the shortest of late
	landed  bool

	planned time.Time     // the latest departure that was booked
	pace    time.Duration // between bookings, while there is a line
	under   time.Duration // the gap of the limit at that time
	busy    bool          // there was a line at the last booking
	last    time.Time     // departure
	spares  []spare       // by at
	grid    grid          // of this process's share

	underWay   uint64 // without an answer yet
	departures uint64
	takes      time.Duration // until an answer comes, the longest of late
	told       []told
	trying     bool   // after a refusal: one at a time
	refused    uint64 // of departures, those before a refusal was known
	paused     time.Time
	refusals   int // in a row
	tokens     float64
}

// waiter waits for the turn.
type waiter struct {
	number uint64
	turn   chan struct{} // closed when it is his
}

// signal wakes who has the turn. One signal is enough: he looks at everything.
func (l *lane) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// join gives out the turn, or a place in the line by number; 0: a new one, behind all others.
func (l *lane) join(number uint64) *waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if number == 0 {
		l.numbers++
		number = l.numbers
	}
	w := &waiter{number: number, turn: make(chan struct{})}
	if !l.taken {
		l.taken = true
		close(w.turn)
		return w
	}
	at, _ := slices.BinarySearchFunc(l.waiting, number, func(w *waiter, n uint64) int { return cmp.Compare(w.number, n) })
	l.waiting = slices.Insert(l.waiting, at, w)
	return w
}

// quit gives up the place in the line, or the turn if it has just come.
func (l *lane) quit(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := slices.Index(l.waiting, w); at >= 0 {
		l.waiting = slices.Delete(l.waiting, at, at+1)
		return
	}
	l.passLocked()
}

// pass hands the turn on.
func (l *lane) pass() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.passLocked()
}

// yield passes the turn on if somebody with a lower number waits.
func (l *lane) yield(number uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 || l.waiting[0].number > number {
		return false
	}
	l.passLocked()
	return true
}

func (l *lane) passLocked() {
	if len(l.waiting) == 0 {
		l.taken, l.busy = false, false
		return
	}
	next := l.waiting[0]
	l.waiting[0] = nil
	l.waiting = l.waiting[1:]
	close(next.turn)
}

// fly takes one of the places in flight.
func (l *lane) fly() bool {
	most := l.t.config.InFlight
	l.mu.Lock()
	defer l.mu.Unlock()
	if most > 0 && l.flying >= most {
		return false
	}
	l.flying++
	return true
}

// land gives it back, after the flight f; nil: it has not left.
func (l *lane) land(f *flight) {
	l.mu.Lock()
	l.flying--
	if f != nil {
		took := time.Since(f.at)
		if l.landed {
			took = min(took, l.quick+l.quick/4+time.Microsecond)
		}
		l.quick, l.landed = took, true
	}
	l.mu.Unlock()
	l.signal()
}

// bookedLocked takes note of a place at the instant at, which the Limiter was asked for since asked.
func (l *lane) bookedLocked(asked, at time.Time, gap time.Duration) {
	if l.busy && !l.spacedLocked() && !l.planned.IsZero() {
		// Processes that share a limit take turns: this is how long one turn of all takes. What was before the asking, as a
		// store that was away or a partner that hung, is over.
		from := l.planned
		if asked.After(from) {
			from = asked
		}
		l.pace += (at.Sub(from) - l.pace) / 4
	}
	if l.busy = len(l.waiting) > 0; !l.busy {
		l.pace = gap
	}
	l.pace = max(l.pace, gap)
	l.planned, l.under = at, gap
}

// outlook is what a request that joins the line now has before it.
type outlook struct {
	wait   time.Duration // the least
	reason Reason        // for it
	ahead  int           // requests in the line
}

func (l *lane) outlook(s shape, now time.Time) outlook {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := outlook{reason: ReasonQuota, ahead: len(l.waiting)}
	if closed, firm := l.closedLocked(now); closed > 0 {
		o.reason = ReasonTold
		if firm {
			o.wait = closed
		}
	}
	o.wait = l.turnLocked(s, now, o.wait, o.ahead)
	if places := l.placesLocked(o.ahead); places > o.wait {
		o.wait, o.reason = places, ReasonInFlight
	}
	return o
}

// holdUp says what the line waits for now.
func (l *lane) holdUp() Reason {
	most := l.t.config.InFlight
	l.mu.Lock()
	defer l.mu.Unlock()
	if closed, _ := l.closedLocked(time.Now()); closed > 0 {
		return ReasonTold
	}
	if most > 0 && l.flying >= most {
		return ReasonInFlight
	}
	return ReasonQuota
}

// turnLocked returns the least wait for a turn under the limit, that of a line which moves on after start.
func (l *lane) turnLocked(s shape, now time.Time, start time.Duration, ahead int) time.Duration {
	if !s.even || s.gap <= 0 || l.shared {
		return start
	}
	turns := ahead
	spares, _ := l.sparesLocked(s.limit, 0, now)
	if l.taken && (spares > 0 || !l.planned.After(now)) {
		turns++ // who has the turn has not booked yet
	}
	if spares > turns {
		_, at := l.sparesLocked(s.limit, turns, now)
		return max(start, at.Sub(now))
	}
	turns -= spares
	// What was booked under a slower limit and given up holds up nobody under a faster one.
	if !l.planned.IsZero() && (l.taken || s.gap >= l.under) {
		start = max(start, l.planned.Add(s.gap).Sub(now))
	}
	pace := s.gap
	if l.busy {
		pace = max(pace, l.pace)
	}
	if turns > 0 {
		if most := limiter.MaxPeriod / time.Duration(turns); pace > most {
			pace = most
		}
	}
	return start + pace*time.Duration(turns)
}

// placesLocked returns the least wait for a place in flight behind as many requests. All places may come free at once, and then
// again when the quickest of late would be back; before the first answer nothing is known.
func (l *lane) placesLocked(ahead int) time.Duration {
	most := l.t.config.InFlight
	if most < 0 {
		return 0
	}
	rounds := time.Duration(ahead / most)
	return min(l.quick, limiter.MaxPeriod/max(rounds, 1)) * rounds
}

// lanes are the destinations. A lane in use is never put away, nor one that remembers something that still holds.
type lanes struct {
	mu    sync.Mutex
	t     *Transport
	byID  map[string]*list.Element // of *lane
	order *list.List               // the latest used first
	rest  *lane                    // shared by newcomers while all are in use
}

// looked is how many lanes are looked at for one to put away.
const looked = 8

func (ls *lanes) enter(key limiter.Key) *lane {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if e, ok := ls.byID[key.ID]; ok {
		ls.order.MoveToFront(e)
		l := e.Value.(*lane)
		l.use(1)
		return l
	}
	if ls.order.Len() >= ls.t.config.MaxDestinations && !ls.putAway(time.Now()) {
		if ls.rest == nil {
			ls.rest = ls.t.newLane(limiter.Key{Space: key.Space}, true)
		}
		ls.rest.use(1)
		return ls.rest
	}
	l := ls.t.newLane(key, false)
	l.use(1)
	ls.byID[key.ID] = ls.order.PushFront(l)
	return l
}

// putAway makes room. Those that have to stay move to the front, so that the next look finds others.
func (ls *lanes) putAway(now time.Time) bool {
	for range min(looked, ls.order.Len()) {
		e := ls.order.Back()
		if l := e.Value.(*lane); l.idle(now) {
			delete(ls.byID, l.key.ID)
			ls.order.Remove(e)
			return true
		}
		ls.order.MoveToFront(e)
	}
	return false
}

func (l *lane) use(n int) {
	l.mu.Lock()
	l.users += n
	l.used = time.Now()
	l.mu.Unlock()
}

// remembered is how long failures and what retries have cost are remembered of a lane that nobody uses.
const remembered = 10 * time.Minute

// idle reports whether forgetting the lane changes nothing that matters.
func (l *lane) idle(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users > 0 || l.flying > 0 || l.underWay > 0 || l.paused.After(now) || l.planned.After(now) ||
		slices.ContainsFunc(l.told, func(t told) bool { return now.Before(t.until) }) {
		return false
	}
	clean := !l.trying && l.tokens >= fullTokens && (l.breaker == nil || l.breaker.clean())
	return clean || now.Sub(l.used) > remembered
}

// sleep waits for d, for a change if wake is not nil, or for the end of ctx, whose error it returns.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}
