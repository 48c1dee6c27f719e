package adaptive

import "time"

// Restart says that the request that took its place at began has been held for its turn and begins only now: its age and its
// round-trip time count from now on. It keeps its place, and its Release then has to say now as the instant it began.
func (c *Controller) Restart(began, now time.Time) {
	c.ages.end(c.at(began))
	c.ages.begin(c.at(now))
}
