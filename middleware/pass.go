package middleware

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/response"
)

// Entry is what an adapter tells the guard about a request.
type Entry struct {
	// Framework knows the route and the values of the framework; nil: net/http alone.
	Framework keyfunc.Framework
	// Mux looks up routes and parameters for a guard outside of it, which has not set r.Pattern yet. Framework wins.
	Mux *http.ServeMux
	// Below is the writer that a recorder of responses wraps, where that is not the one given to Enter: frameworks with a
	// response of their own write to another one below. nil: the same.
	Below http.ResponseWriter
	// Defer leaves the body of a plain refusal to the caller, who finds it in [Pass.Denied]: for frameworks that answer
	// errors in an envelope of their own. The fields are set all the same.
	Defer bool
}

// Pass is the answer to [Guard.Enter]. It is a value; whoever holds it calls [Pass.Leave] once the request is served.
// The zero Pass does not proceed.
type Pass struct {
	v    *visit
	gen  uint32
	next bool
	want bool // the status matters
	w    http.ResponseWriter
	r    *http.Request
	no   *Verdict
}

// Proceed reports whether the request goes on. If not, the response has been written, unless [Pass.Denied] says
// otherwise or the request's context has ended.
func (p *Pass) Proceed() bool { return p.next }

// Writer returns the writer to hand on: the one given to Enter, unless a degrade handler records responses, which then
// goes around Entry.Below.
func (p *Pass) Writer() http.ResponseWriter { return p.w }

// Request returns the request to hand on: the one given to Enter, unless its context says more: that it proceeds degraded,
// or that policies could not decide it (see [Undecided]).
func (p *Pass) Request() *http.Request { return p.r }

// Denied returns the refusal that the caller has to write, nil if there is none. See [Entry].Defer.
func (p *Pass) Denied() *Verdict { return p.no }

// Settles reports whether [Pass.Leave] has anything to do. If not, it need not be called.
func (p *Pass) Settles() bool { return p.v != nil }

// NeedsStatus reports whether the status matters to Leave.
func (p *Pass) NeedsStatus() bool { return p.v != nil && p.want }

// Leave settles a request that went on: places in flight are free again, and units are given back where a policy's
// Refund says so for the status. 0 means that nobody knows the status, as of a hijacked connection; such a request stays
// charged. After a panic the status is 500. Only the first call counts, over all copies of the Pass.
func (p *Pass) Leave(status int) {
	v := p.v
	if p.v = nil; v == nil || !v.claim(p.gen) {
		return
	}
	v.release(v.result(status))
	v.settle(status)
	v.done()
}

// Serve hands a request that proceeds to a net/http handler and settles it by the status written. A panic of the handler
// is settled as 500 and passes on.
func (p *Pass) Serve(next http.Handler) {
	if !p.Settles() {
		next.ServeHTTP(p.w, p.r)
		return
	}
	w, x := p.w, &status{code: http.StatusOK} // nobody asks for more than that next has returned
	if p.NeedsStatus() {
		w, x = watchStatus(w, p.r)
	}
	returned := false
	defer func() {
		switch {
		case returned:
			p.Leave(x.get())
		case x.written() && p.want:
			p.Broke(x.get())
		default:
			p.Broke(0)
		}
	}()
	next.ServeHTTP(w, p.r)
	returned = true
}

// Broke settles a request whose handler has panicked, or has not written the whole response, which nobody records then.
// written is the status that it had written before, 0 if none: then
// the answer is 500, or nobody knows it, if the client has left. A client that breaks off a response it has got must not
// have its units back for that.
func (p *Pass) Broke(written int) {
	v := p.v
	if p.v = nil; v == nil || !v.claim(p.gen) {
		return
	}
	if written == 0 && v.r.Context().Err() == nil {
		written = http.StatusInternalServerError
	}
	r := v.result(written)
	if r == limiter.ResultSucceeded {
		r = limiter.ResultFailed // whatever it had written before
	}
	v.release(r)
	v.endRecords(false)
	v.settle(written)
	v.done()
}

// LeaveLater frees places in flight now and settles by the status once it is known: for frameworks that write the
// answer to a returned error later. The function may be called from where the status is, or never: then the request
// stays charged. Only its first call counts. Recorders end without a response, as that answer does not pass by them, and
// are shown its status and header once more when they are known: a page that is gone takes its copy away. For them the
// Framework of the Entry has to know the request until then.
//
// likely is the status that is to be expected, for who has to know at once whether the request has failed; 0: nobody knows.
func (p *Pass) LeaveLater(likely int) func(status int) {
	v, gen := p.v, p.gen
	if p.v = nil; v == nil || !v.claim(gen) {
		return func(int) {}
	}
	v.release(v.result(likely))
	v.endRecords(false)
	return func(status int) {
		if v.claim(gen + 1) {
			v.tellRecorders(status)
			v.settle(status)
			v.done()
		}
	}
}

// claim makes the caller the only one to end the visit that a Pass of this gen began. It is the one thing that a Pass
// kept for too long may touch, for the visit may be another request's by then.
func (v *visit) claim(gen uint32) bool { return v.gen.CompareAndSwap(gen, gen+1) }

// visit is one request at one stage. Visits are pooled: what a request needs for its decision is not allocated anew.
type visit struct {
	gen atomic.Uint32 // counts claims: a Pass of an earlier one does nothing

	guard *core
	stage *stage
	w     http.ResponseWriter
	r     *http.Request
	entry Entry
	req   keyfunc.Request
	mux   muxRoute
	now   time.Time
	look  bool // take nothing
	alone bool // nobody will leave: bounds in flight are looked at and not entered

	host   string
	hits   []uint64
	active []active
	takes  []limiter.Take
	bounds []limiter.Decision // of bounds in flight, told like decisions
	items  []response.Item

	text      string          // that keys are cut from
	subject   degrade.Subject // for gates
	told      bool            // the fields are on the response
	asked     int             // how often the policies have refused and their chains were asked
	proceeds  bool            // it is decided by those policies alone that have not refused it
	answer    answer          // what a chain wants the refusal to say
	degraded  *degrade.Info   // the request proceeds degraded
	began     time.Time       // when the time began that the request takes
	long      bool            // it is long by its nature
	suspended bool            // it is held, and its time does not run
	lowered   bool            // some policy's limit is
	waits     bool            // holds a place among the waiting
	open      bool            // some policy could not decide and lets pass
	ended     []func(ok bool) // recorders
}

// active is one policy that applies to the request.
type active struct {
	*policy
	key       limiter.Key
	span      keyfunc.Key
	id        string // identity, for bounds in flight
	cost      int
	nominal   *toldLimit     // what the operator or the plan has set
	limit     *limiter.Limit // what applies
	partition []byte

	take     int               // index of its take, −1 while there is none
	twin     int               // index of the take of its twin, −1 if there is none
	bound    int               // index of its bound, −1 if it has none
	held     bool              // has a place of its controller
	slot     bool              // counted in flight
	decided  bool              // the take's Decision stands
	err      error             // why it could not be decided
	violated bool              // the limit refuses
	lowered  bool              // adjusters have lowered the limit
	adaptive bool              // the nominal limit would not refuse
	full     bool              // too many in flight
	crowded  bool              // could not be held: too many are waiting
	shut     *shut             // a Gate refuses
	reserve  float64           // share of quota and bound that is for others
	shed     bool              // violated or full because of the reserve
	waived   bool              // it has refused, and its chain lets the request proceed
	last     *limiter.Decision // of a waived policy
	queued   bool              // it has refused, and passes after a wait
	reported bool              // err has been counted
}

var visits = sync.Pool{New: func() any { return new(visit) }}

func (c *core) visit(st *stage, w http.ResponseWriter, r *http.Request, e *Entry) *visit {
	v := visits.Get().(*visit)
	v.guard, v.stage, v.w, v.r = c, st, w, r
	v.entry.Framework, v.entry.Mux, v.entry.Below, v.entry.Defer = e.Framework, e.Mux, e.Below, e.Defer
	if e.Framework == nil && e.Mux != nil {
		v.mux = muxRoute{r, e.Mux}
		v.entry.Framework = &v.mux
	}
	v.req.Reset(r, v.entry.Framework, st.settings.trust)
	if n := (len(st.matcher.rules) + 63) / 64; cap(v.hits) < n {
		v.hits = make([]uint64, n)
	} else {
		v.hits = v.hits[:n]
	}
	return v
}

// maxKept is the number of policies of one request for which a visit keeps its memory.
const maxKept = 64

// done gives the visit back, and with it the request. Slices are emptied and not cleared: what a pooled visit still holds
// in them is small, is overwritten whole by the next request, and goes with the pool.
func (v *visit) done() {
	v.gen.Add(1)
	if v.stage.gated {
		v.subject = degrade.Subject{}
	}
	v.guard, v.stage, v.w, v.r, v.entry, v.mux = nil, nil, nil, nil, Entry{}, muxRoute{}
	v.req.Release()
	if cap(v.active) > maxKept {
		v.active, v.takes, v.bounds, v.items = nil, nil, nil, nil
	}
	clear(v.ended)
	v.active, v.takes, v.bounds, v.items, v.ended = v.active[:0], v.takes[:0], v.bounds[:0], v.items[:0], v.ended[:0]
	v.look, v.alone, v.waits, v.lowered, v.open, v.told = false, false, false, false, false, false
	if v.text = ""; v.asked > 0 {
		v.asked, v.proceeds, v.answer, v.degraded = 0, false, answer{}, nil
	}
	v.long, v.suspended = false, false
	visits.Put(v)
}
