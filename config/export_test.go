package config

import "github.com/spillway-go/spillway/limiter/adaptive"

// All returns the controllers that have not been closed.
func (c *Controllers) All() (all []*adaptive.Controller) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range c.all {
		all = append(all, x.Controller)
	}
	return all
}

// Controllers returns those of the document in force.
func (f *Follower) Controllers() *Controllers { return f.deps.Controllers }
