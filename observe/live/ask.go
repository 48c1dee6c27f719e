package live

import (
	"time"

	"github.com/spillway-go/spillway/middleware"
)

// prompt is how long a tick waits for what it asks of the program. What comes later is shown by a later tick.
const prompt = 200 * time.Millisecond

// asked is a question to functions of the user, which may block for as long as they like: they are called by a goroutine of
// their own, one at a time, and what they said last is kept meanwhile.
type asked[T any] struct {
	last  T
	said  bool // last is something
	out   chan T
	began time.Time // when the one that is out was asked
	of    *watching // who was asked
}

// ask asks f unless an answer is out already, and waits until there is one, late or the page ends. Of another guard nothing is kept.
func (a *asked[T]) ask(of *watching, f func() T, now time.Time, late <-chan time.Time, done <-chan struct{}) {
	if of != a.of {
		*a = asked[T]{of: of}
	}
	if a.out != nil { // it was waited for already
		select {
		case a.last = <-a.out:
			a.said, a.out = true, nil
		default:
			return
		}
	}
	out := make(chan T, 1) // it may end when nobody waits any more
	a.out, a.began = out, now
	go func() { out <- f() }()
	select {
	case a.last = <-a.out:
		a.said, a.out = true, nil
	case <-late:
	case <-done:
	}
}

// stale is since when an answer is out, if that is long.
func (a *asked[T]) stale(now time.Time) (since time.Time, is bool) {
	return a.began, a.out != nil && now.Sub(a.began) > 2*time.Second
}

// standing is a policy as its guard tells, and what its controller has in flight.
type standing struct {
	middleware.Overview
	flight, flightOf int
}

// overview asks a guard. Adjusters and controllers may be the user's.
func (w *watching) overview() (all []standing) {
	contain(func() {
		for _, o := range w.guard.Overview() {
			x := standing{Overview: o}
			if c := o.Adaptive; c != nil {
				contain(func() { x.flight, x.flightOf = c.InFlight(), c.Bound() })
			}
			all = append(all, x)
		}
	})
	return all
}

// tell asks for the status.
func (w *watching) tell() Status {
	status := Status{Error: "The function that tells of the document panics."}
	contain(func() { status = w.status() })
	return status
}

// gather asks everything that is the user's. No lock is held.
func (s *sampler) gather(now time.Time) {
	w := s.page.watching.Load()
	if w == nil {
		return
	}
	late := time.NewTimer(prompt)
	defer late.Stop()
	if w.guard != nil {
		s.overview.ask(w, w.overview, now, late.C, s.page.done)
	}
	if w.status != nil {
		late.Reset(prompt)
		s.status.ask(w, w.tell, now, late.C, s.page.done)
	}
}
