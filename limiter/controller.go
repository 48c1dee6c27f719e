package limiter

import "time"

// Controller moves a limit by what becomes of requests, as package adaptive's does: a bound on those being served in this
// process, or the rates of a policy. All methods are safe for concurrent use, and fast: they are called for every request.
//
// A place that was taken by Acquire or Admit is given back by Release, once, with the instant it was taken at.
type Controller interface {
	// Adjuster scales rates; a controller of a bound returns the nominal limit.
	Adjuster
	// Acquire takes a place if there is one and reserve, a share of the bound from 0 to 1, stays free for more important
	// requests. It returns how many are in flight, this one included, and the bound; math.MaxInt where it moves rates.
	Acquire(now time.Time, reserve float64) (inFlight, bound int, ok bool)
	// Admit takes a place whether there is one or not, and tells if there was: for what is counted and never refused.
	Admit(now time.Time) (inFlight, bound int, ok bool)
	// Reject counts a refusal that was not Acquire's: by a rate that the controller has lowered.
	Reject(now time.Time)
	// Release gives a place back. now − began is the time the request took.
	Release(now, began time.Time, r Result)
	// Suspend says that the request that took its place at began is held for its turn, which says nothing of the service, and
	// Resume that it begins only now. It keeps its place; its Release then tells now as the instant it began.
	Suspend(began time.Time)
	Resume(now time.Time)
	// Detach says that the request that began then is long by its nature, as an upgraded connection or a stream. It keeps its
	// place among Max, the bound that moves no longer holds for it, and its age is no sign of trouble. Its Release then says
	// [ResultDetached]; the two may come in either order.
	Detach(began time.Time)
	InFlight() int
	Bound() int // in force; math.MaxInt where it moves rates
	Max() int   // what Bound can be at most
}

// Result is how a request ended, as a [Controller] learns of it.
type Result uint8

const (
	// ResultSucceeded: its time tells how the service is.
	ResultSucceeded Result = iota
	// ResultFailed: by the service's fault, as with a status of 5xx, a time-out or a panic. It counts as an error, and its time
	// does not count: what fails at once would look fast.
	ResultFailed
	// ResultUnmeasured: neither. The client left, or the answer was a degraded one.
	ResultUnmeasured
	// ResultDetached: as unmeasured, and Detach has been called for it.
	ResultDetached
	// ResultWithdrawn: it never came, as far as the controller is concerned. Something else refused it before it was served.
	ResultWithdrawn
)
