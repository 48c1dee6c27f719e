package degrade_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
)

// desk plays the guard for one policy with a queue.
type desk struct {
	queue degrade.Handler
	limit limiter.Limit
	store limiter.Limiter
	via   limiter.Via // of its decisions
	dumb  bool        // it never tells what became of a second decision
	place func() (func(), bool)

	mu     sync.Mutex
	seen   []visit // ended
	passed []pass  // in order
}

// pass is one request that the policy has let through.
type pass struct {
	id   int
	key  limiter.Key
	cost int
	at   time.Time
}

// visit is one request and what became of it.
type visit struct {
	id     int
	key    limiter.Key
	cost   int
	came   time.Time
	ended  time.Time
	passed bool
	gone   bool // its context has ended
	asked  int  // how often the policy was asked
	shut   bool
	outs   []degrade.Outcome
	told   time.Duration // Denial.Wait
}

func (v visit) waited() time.Duration { return v.ended.Sub(v.came) }

func newDesk(t testing.TB, c degrade.QueueConfig, l limiter.Limit) *desk {
	t.Helper()
	store, err := memory.New(memory.Config{})
	require.NoError(t, err)
	g := &desk{queue: degrade.Queue(c), limit: l, store: store}
	require.NoError(t, degrade.Validate(g.queue))
	return g
}

func keyOf(id string) limiter.Key { return limiter.Key{Space: "p", ID: id} }

func (g *desk) current() limiter.Limit {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.limit
}

func (g *desk) change(l limiter.Limit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit = l
}

// spend takes n units of a key past the queue.
func (g *desk) spend(t testing.TB, id string, n int) {
	t.Helper()
	d, err := g.store.Allow(t.Context(), keyOf(id), g.limit, n)
	require.NoError(t, err)
	require.True(t, d.Allowed)
}

// serve is one request from its start to its end.
func (g *desk) serve(ctx context.Context, v visit) visit {
	v.came = time.Now()
	g.pass(ctx, &v)
	v.ended = time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen = append(g.seen, v)
	return v
}

func (g *desk) pass(ctx context.Context, v *visit) {
	queue := g.queue
	gate := queue.(degrade.Gate)
	req := new(keyfunc.Request)
	subject := func() *degrade.Subject {
		return &degrade.Subject{Request: req, Key: v.key, Cost: v.cost, Now: time.Now()}
	}
	decide := func() limiter.Decision {
		d, err := g.store.Allow(ctx, v.key, g.current(), v.cost)
		v.gone = err != nil // the limiter has no other reason
		d.Via = g.via
		if d.Allowed { // before the gate hears of it, and lets the next one go on
			g.mu.Lock()
			g.passed = append(g.passed, pass{v.id, v.key, v.cost, time.Now()})
			g.mu.Unlock()
		}
		if v.asked++; v.asked == 1 || !g.dumb {
			gate.After(subject(), degrade.Verdict{Passed: d.Allowed, Refused: !d.Allowed && !v.gone, Decision: d})
		}
		return d
	}
	d := limiter.Decision{Limit: g.current()}
	hint := gate.Before(subject())
	if v.shut = hint.Shut; v.shut {
		gate.After(subject(), degrade.Verdict{})
		d.RetryAfter = 0
	} else if d = decide(); d.Allowed || v.gone {
		v.passed = d.Allowed
		return
	}
	for asked := 1; ; asked++ {
		x := &degrade.Denial{
			Policy: "p", Violated: []string{"p"}, Key: v.key, Cost: v.cost, Decision: d, RetryAfter: max(d.RetryAfter, hint.Wait), Asked: asked,
			Request: req, Place: g.place, Mode: degrade.ModeQueue,
		}
		out := queue.Degrade(httptest.NewRecorder(), request(ctx), x)
		v.outs, v.told = append(v.outs, out), x.Wait
		v.gone = ctx.Err() != nil
		if out != degrade.Again || v.gone {
			return
		}
		hint.Wait = 0
		if d = decide(); d.Allowed || v.gone {
			v.passed = d.Allowed
			return
		}
	}
}

// start lets a request come, and returns once it has an answer or waits.
func (g *desk) start(ctx context.Context, v visit) {
	go g.serve(ctx, v)
	synctest.Wait()
}

// ids returns the requests that have passed, in order.
func (g *desk) ids() (ids []int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.passed {
		ids = append(ids, p.id)
	}
	return ids
}

// of returns the request of that number, which has to have ended.
func (g *desk) of(t testing.TB, id int) visit {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	k := slices.IndexFunc(g.seen, func(v visit) bool { return v.id == id })
	require.GreaterOrEqual(t, k, 0, "request %d has not ended", id)
	return g.seen[k]
}

// waiting requires that so many wait, in so many lines.
func (g *desk) waiting(t testing.TB, lines, waiting int) {
	t.Helper()
	synctest.Wait()
	l, w := degrade.QueueSize(g.queue)
	require.Equal(t, []int{lines, waiting}, []int{l, w}, "lines and waiting")
}

// deny asks a queue for a request that its policy has refused for wait, and is decided by nobody.
func deny(ctx context.Context, h degrade.Handler, d degrade.Denial, wait time.Duration) (degrade.Outcome, *degrade.Denial) {
	if d.Decision.Limit == (limiter.Limit{}) {
		d.Decision.Limit = limiter.PerSecond(1)
	}
	d.Key, d.Cost, d.Decision.RetryAfter, d.RetryAfter = keyOf("a"), max(d.Cost, 1), wait, max(d.RetryAfter, wait)
	out := h.Degrade(httptest.NewRecorder(), request(ctx), &d)
	return out, &d
}

func request(ctx context.Context) *http.Request {
	return httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx)
}

// borrow returns b as a string that changes with it, as keys do that are cut from a request's buffer.
func borrow(b []byte) string { return unsafe.String(&b[0], len(b)) }
