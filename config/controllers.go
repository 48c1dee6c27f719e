package config

import (
	"errors"
	"reflect"
	"slices"
	"sync"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/adaptive"
	"github.com/spillway-go/spillway/middleware"
)

// Controllers are those of the adaptive policies of one guard. A controller remembers what the service bears and runs in the
// background, so it lives on over new versions of a document for as long as its policy has the same name and settings.
//
//	controllers := new(config.Controllers)
//	defer controllers.Close()
//	deps.Controllers = controllers
//	cfg, findings := config.Build(doc, deps)
//	…
//	err := guard.Reconfigure(cfg)
//	controllers.Keep(cfg)
//
// A [Follower] does all of that by itself. The zero value is ready for use, and safe for concurrent use.
type Controllers struct {
	mu     sync.Mutex
	closed bool
	all    []*controlled
}

// controlled is a controller and what it was made for.
type controlled struct {
	settings
	*adaptive.Controller
}

// settings are all that a document says of a controller. The functions and interfaces of cfg are nil.
type settings struct {
	law string
	cfg adaptive.Config
}

// find returns the controller of a policy with the same settings, nil if there is none.
func (c *Controllers) find(s settings) *controlled {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.IndexFunc(c.all, func(x *controlled) bool { return reflect.DeepEqual(x.settings, s) }); i >= 0 {
		return c.all[i]
	}
	return nil
}

// add takes over those that a document has made anew.
func (c *Controllers) add(made []*controlled) {
	if c == nil {
		return
	}
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.all = append(c.all, made...)
	}
	c.mu.Unlock()
	if closed {
		_ = closeAll(made)
	}
}

// Keep closes the controllers that cfg does not use. It is for when cfg has come into force: what is served meanwhile by
// what was in force before has its fixed limit.
func (c *Controllers) Keep(cfg middleware.Config) {
	used := make(map[limiter.Controller]bool)
	for k := range cfg.Policies {
		if a, ok := cfg.Policies[k].Adaptive.(*adaptive.Controller); ok {
			used[a] = true
		}
	}
	c.mu.Lock()
	var gone []*controlled
	c.all = slices.DeleteFunc(c.all, func(x *controlled) bool {
		if !used[x.Controller] {
			gone = append(gone, x)
		}
		return !used[x.Controller]
	})
	c.mu.Unlock()
	_ = closeAll(gone)
}

// Close closes all of them, and those that are made later: their fixed limits are in force from then on. It waits for what
// runs in the background, and may be called by an Observer or a Logger's handler, as Keep may.
func (c *Controllers) Close() error {
	c.mu.Lock()
	all := c.all
	c.closed, c.all = true, nil
	c.mu.Unlock()
	return closeAll(all)
}

func closeAll(all []*controlled) error {
	var errs []error
	for _, x := range all {
		errs = append(errs, x.Close())
	}
	return errors.Join(errs...)
}
