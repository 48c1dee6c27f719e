package middleware

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/spillway-go/spillway/degrade"
)

// Guard holds policies and serves requests by them. It is safe for concurrent use, and its policies may be changed while
// it serves. A Guard is one stage of its chain: [New] returns the [StageEdge] one, [Guard.Stage] the others; all share
// one set of policies. It starts no goroutine and needs no Close.
type Guard struct {
	*core
	name string
	seen atomic.Pointer[seen]
}

// seen is the stage of a guard in the snapshot it met last.
type seen struct {
	in    *snapshot
	stage *stage
}

// core is what the stages of a guard share.
type core struct {
	watch    watch
	log      *slog.Logger
	waiting  waiting
	clock    clock
	states   states
	snapshot atomic.Pointer[snapshot]
	update   sync.Mutex
	mounted  sync.Map // stage name → true, once asked for
	panics   sync.Once
	pins     atomic.Bool // some context has policies pinned
	ignoring atomic.Bool
}

// New returns the guard of cfg. The error names everything that is wrong, joined. New calls each key function once with
// an empty request to find what is wrong with its settings; it does no I/O and starts nothing. Who gives a guard up while the
// process goes on calls Update(nil), which tells a [limiter.Binder] that the policies are gone.
func New(cfg Config) (*Guard, error) {
	c := &core{log: cfg.Logger}
	if c.log == nil {
		c.log = slog.Default()
	}
	c.watch.init(cfg.Observer, c.log)
	if err := c.replace(cfg); err != nil {
		return nil, err
	}
	c.mounted.Store(StageEdge, true)
	return &Guard{core: c, name: StageEdge}, nil
}

// replace puts what cfg says into force, or nothing.
func (c *core) replace(cfg Config) error {
	set, err := newSettings(cfg)
	s, errs := c.compile(set, cfg.Policies)
	if err := errors.Join(err, errs); err != nil {
		return err
	}
	c.swap(s)
	return nil
}

// swap puts s into force.
func (c *core) swap(s *snapshot) {
	old := c.snapshot.Load()
	c.watch.bind(old, s)
	c.inherit(old, s)
	c.snapshot.Store(s)
	var told []string
	if old != nil {
		c.watch.release(old, s)
		c.states.prune(s)
		told = old.settings.trust.Warnings()
	}
	for _, warning := range s.settings.trust.Warnings() {
		if !slices.Contains(told, warning) {
			c.log.Warn("spillway: client address: " + warning)
		}
	}
}

// inherit lets degrade handlers go on with the state of the policy that they replace.
func (c *core) inherit(old, s *snapshot) {
	if old == nil {
		return
	}
	for _, p := range s.policies {
		if before := old.byName[p.Name]; before != nil && !same(p.Degrade, before.Degrade) {
			if err := attempt(func() { degrade.Inherit(p.Degrade, before.Degrade) }); err != nil {
				c.panicked(context.Background(), p, "Degrade.Inherit", err)
			}
		}
	}
}

// Stage returns the guard of another stage, to be mounted at its place in the chain. A stage without policies lets
// everything pass, and may get some by [Guard.Update].
func (g *Guard) Stage(name string) *Guard {
	if name == "" {
		name = StageEdge
	}
	if name == StageManual {
		g.log.Warn("spillway: the policies of this stage are for Guard.Take and not meant for requests", "stage", name)
	}
	g.mounted.Store(name, true)
	return &Guard{core: g.core, name: name}
}

// Update replaces the policies of all stages while serving. Requests in service settle on the policies they began with.
// Counters live on where the policy's name, stage, key kinds and algorithm stay. On an error, which names everything
// that is wrong, nothing changes.
func (g *Guard) Update(policies []Policy) error {
	g.update.Lock()
	defer g.update.Unlock()
	s, err := g.compile(g.core.snapshot.Load().settings, policies)
	if err != nil {
		return err
	}
	g.swap(s)
	return nil
}

// Reconfigure is Update with everything else that a Config says, but for Observer and Logger, which stay those of New.
func (g *Guard) Reconfigure(cfg Config) error {
	g.update.Lock()
	defer g.update.Unlock()
	return g.replace(cfg)
}

// Policies returns the names of the policies in force, in configuration order.
func (g *Guard) Policies() []string {
	s := g.core.snapshot.Load()
	names := make([]string, len(s.policies))
	for k, p := range s.policies {
		names[k] = p.Name
	}
	return names
}

// stage returns the policies of this stage, nil if it has none.
func (g *Guard) stage() *stage {
	s := g.core.snapshot.Load()
	if x := g.seen.Load(); x != nil && x.in == s {
		return x.stage
	}
	if s.warned.CompareAndSwap(false, true) {
		g.warnUnmounted(s)
	}
	x := &seen{s, s.stages[g.name]}
	g.seen.Store(x)
	return x.stage
}

// warnUnmounted tells of stages that nobody has asked for when the first request arrives: their policies never run.
func (g *Guard) warnUnmounted(s *snapshot) {
	for _, name := range sortedKeys(s.stages) {
		if _, ok := g.mounted.Load(name); !ok && name != StageManual {
			g.log.Warn("spillway: policies never run: mount guard.Stage of their stage, as Middleware(guard.Stage(\"NAME\"))",
				"stage", name, "policies", s.stages[name].names())
		}
	}
}

// Serve serves r by the guard: next, a refusal, or what the policy degrades to.
func (g *Guard) Serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	pass := g.Enter(w, r, Entry{})
	if pass.Proceed() {
		pass.Serve(next)
	}
}
