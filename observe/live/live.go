package live

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/internal/errtext"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
	"github.com/spillway-go/spillway/observe"
)

// Config is what [New] takes. The zero value is valid.
type Config struct {
	// Title is what the page is called, such as the name of the service; empty: "spillway". At most 80 bytes.
	Title string
	// Top tells which keys are refused most; nil: the page does not. It must be an observer of the same guards, and Clear in
	// its settings shows keys as they are.
	Top *observe.Top
	// Authorize says who may look: it is asked for every request, for pictures and scripts as for data, and must be safe
	// for concurrent use. A stream that has begun is not asked about again. Those it is false for get 403.
	//
	// nil: whoever is on this machine. Such a request comes from a loopback address, names this machine in its Host
	// (localhost, a name below it, or a loopback address), lest a page of somebody else gives its own name that address, and has
	// come through no proxy: it has none of Forwarded, Via, X-Forwarded-For and X-Real-Ip. Others get 403. A proxy on this machine
	// that adds none of these lets everybody in, so whoever has one needs Authorize.
	Authorize func(*http.Request) bool
	// MaxViewers is how many streams there may be at once, 1…1000; zero: 64. One more gets 503.
	MaxViewers int
}

const (
	maxTitle       = 80
	defaultViewers = 64
	maxViewers     = 1000
	maxPolicies    = 1024
)

// Status is where the policies come from, for a page that shows it: such as that of a config.Follower. Texts are shown as
// they are and must hold no secret.
type Status struct {
	Source   string    // where the document is
	Hash     string    // of the one in force
	Loaded   time.Time // when it came into force
	Checked  time.Time // when the source was last asked; zero: it is not
	Changes  []string  // what it changed
	Warnings []string  // about it
	Error    string    // why what the source has now is not in force; "": it is
}

// Page is an [http.Handler] that shows what guards and limiters tell it as a [limiter.Observer]. All methods are safe for
// concurrent use. Make one with [New].
type Page struct {
	cfg  Config
	boot string // tells the ids of this page from those of one before
	// epoch is when the page was made. Time since then is monotonic.
	epoch time.Time

	watching atomic.Pointer[watching]
	limiters limiters
	reloads  reloads

	policies sync.Map // name → *policy
	mu       sync.Mutex
	count    int // of policies
	next     int // id

	sampler *sampler
	ticks   ticks
	viewers atomic.Int64
	done    chan struct{}
	ended   chan struct{}
	close   func()
}

// watching is what Watch was told.
type watching struct {
	guard  *middleware.Guard
	status func() Status
}

var (
	_ limiter.Observer = (*Page)(nil)
	_ limiter.Binder   = (*Page)(nil)
	_ http.Handler     = (*Page)(nil)
)

// New returns a Page that has seen nothing and takes a snapshot a second from now on, until Close. It returns an error wrapping
// [limiter.ErrInvalid] that names everything wrong with c. Without [Config].Authorize only this machine may look.
func New(c Config) (*Page, error) {
	var errs []error
	if len(c.Title) > maxTitle {
		errs = append(errs, fmt.Errorf("live: %w: a Title of %d bytes; want %d at most", limiter.ErrInvalid, len(c.Title), maxTitle))
	}
	if c.MaxViewers < 0 || c.MaxViewers > maxViewers {
		errs = append(errs, fmt.Errorf("live: %w: MaxViewers %d are outside 1…%d", limiter.ErrInvalid, c.MaxViewers, maxViewers))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if c.Title == "" {
		c.Title = "spillway"
	}
	if c.MaxViewers == 0 {
		c.MaxViewers = defaultViewers
	}
	p := &Page{cfg: c, boot: rand.Text()[:8], epoch: time.Now(), done: make(chan struct{}), ended: make(chan struct{})}
	p.limiters.breakers, p.limiters.memories = make(map[string]uint8), make(map[string]memory)
	p.ticks.init()
	p.sampler = &sampler{page: p, stores: make(map[string]*storeView), last: time.Now()}
	p.sampler.tick(p.sampler.last) // there is something to see at once
	p.close = sync.OnceFunc(func() {
		close(p.done)
		<-p.ended
	})
	go p.sample()
	return p, nil
}

// Watch makes the page show the policies of guard, and where they come from: status may be nil, and is otherwise asked once a
// second by one goroutine: while it has not returned the page shows what it said last, and that it is old. Until then the page has
// only what events tell. A later call takes the place of the one before.
func (p *Page) Watch(guard *middleware.Guard, status func() Status) {
	p.watching.Store(&watching{guard: guard, status: status})
}

// Close ends all streams and the goroutine of the page, and returns when that has ended. It waits for nothing that the program was
// asked and has not answered. What is asked of the page then is 503.
// Events are still counted, and shown to nobody. Closing again does nothing.
func (p *Page) Close() { p.close() }

// KeepsNoKey returns p: of keys a hash is kept.
func (p *Page) KeepsNoKey() limiter.Observer { return p }

// Bind returns the Observer of one policy. Policies of one name in several guards are one.
func (p *Page) Bind(name string) (limiter.Observer, func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.find(name)
	if x == nil {
		return discard{}, func() {}
	}
	x.bound++
	return x, sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if x.bound--; x.bound == 0 {
			p.policies.Delete(x.name)
			p.count--
		}
	})
}

// find returns the policy of a name, a new one if there is none; nil if there are too many. Page.mu is held.
func (p *Page) find(name string) *policy {
	if x, ok := p.policies.Load(name); ok {
		return x.(*policy)
	}
	if p.count >= maxPolicies || len(name) > maxName {
		return nil
	}
	p.count++
	p.next++
	x := &policy{page: p, name: name, id: p.next}
	p.policies.Store(name, x)
	return x
}

// maxName is above what a guard takes for a name.
const maxName = 128

// discard is the Observer of policies that are too many.
type discard struct{}

func (discard) Observe(limiter.Event)          {}
func (d discard) KeepsNoKey() limiter.Observer { return d }

// Observe counts e. Events of a policy that no guard has bound are not shown.
func (p *Page) Observe(e limiter.Event) {
	switch e.Kind {
	case limiter.EventStore:
		p.limiters.store(e.Name).see(&e)
	case limiter.EventBreaker:
		p.limiters.breaker(&e)
	case limiter.EventMemory:
		p.limiters.memory(&e)
	case limiter.EventReload:
		p.reloads.see(&e)
	case limiter.EventDecision, limiter.EventRejected, limiter.EventDegraded, limiter.EventError, limiter.EventLease, limiter.EventAdapt:
		if x, ok := p.policies.Load(e.Policy); ok {
			x.(*policy).Observe(e)
		}
	case limiter.EventPanic, limiter.EventStoreState:
	}
}

// reloads is how reloads went.
type reloads struct {
	mu      sync.Mutex
	applied int
	refused int
	bad     string // what was wrong with the last one; "": nothing
}

func (r *reloads) see(e *limiter.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Err == nil && (e.Reason == "" || e.Reason == limiter.ReasonOK) {
		r.applied++
		r.bad = ""
		return
	}
	r.refused++
	if r.bad = errtext.Of(e.Err); r.bad == "" {
		r.bad = clip(e.Reason)
	}
}
