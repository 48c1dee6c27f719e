package adaptive

import "time"

// Suspend says that the request that took its place at began is held for its turn: it keeps its place, and its age is no sign
// of trouble. Resume has to follow, whatever becomes of it.
func (c *Controller) Suspend(began time.Time) { c.ages.end(c.at(began)) }

// Resume says that a request that was held begins now: its age and its round-trip time count from now on, and its Release has to
// say now as the instant it began.
func (c *Controller) Resume(now time.Time) { c.ages.begin(c.at(now)) }
