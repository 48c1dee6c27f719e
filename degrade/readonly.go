package degrade

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// ReadOnlyConfig says what [ReadOnly] takes for a read. The zero value takes GET, HEAD and OPTIONS without Upgrade for
// reads and everything else for writes, one request at a time.
//
// A request that names another method than these three in X-HTTP-Method-Override, X-HTTP-Method or X-Method-Override is a
// write whatever the settings: something further in may obey it. Where a service obeys a field of a form, such as _method,
// Writes has to tell.
type ReadOnlyConfig struct {
	// ReadRoutes are further reads, as [http.ServeMux] patterns: "POST /search", "POST /login". They are matched, each on its
	// own, against the path and against the pattern of the framework's route; either is a match. A path that routers read in
	// different ways, with doubled slashes, dot segments or escapes, matches by its route alone. A pattern without a
	// method makes DELETE a read too. Requests with Upgrade are no reads by their route.
	ReadRoutes []string
	// Reads tells further reads, such as a query by GraphQL. It must leave the body as it has found it.
	Reads func(*keyfunc.Request) bool
	// Writes tells writes among what would be reads, such as a GET with side effects. It is asked before ReadRoutes and
	// Reads. Where it or Reads panics, the request is a write.
	Writes func(*keyfunc.Request) bool

	// Latch, if not 0, is the share of refusals among the policy's decisions of 5 s, over all its keys, from which on all
	// writes are refused without asking the policy, with a 503, so that clients do not see it flap: 0 < Latch ≤ 1. Writes are
	// let in again when the share has stayed under half of Latch for 10 s. Fewer than 20 decisions in 5 s are no share. Reads
	// are asked of the policy as usual.
	//
	// It is for limits of a whole service. Where each caller has a quota of its own, one caller who asks more often than
	// all the others together can shut writes for all.
	Latch float64
}

// Latched is a [Handler] that may be switched on for all requests of its policy, as [ReadOnly] with a Latch. It is for
// metrics and events. Latched is safe for concurrent use.
type Latched interface {
	Latched(now time.Time) bool
}

// ReadOnly serves reads and refuses writes while a policy refuses. A read proceeds, marked as degraded, if its budget
// allows, and is skipped otherwise; a write is refused at once, spends nothing of the budget, and gets the plain refusal
// that says so: a 503 if the limit is the service's, which is to say that the cause is [Capacity] or the policy's key
// names no caller, as with [keyfunc.Global], and else a 429. It needs a [Within] directly around it, as one around a chain
// is charged for writes too.
//
// At most one config; see there for what a read is. A handler belongs to one policy.
func ReadOnly(cfg ...ReadOnlyConfig) Handler {
	h := new(readOnly)
	if len(cfg) > 1 {
		h.errs = append(h.errs, fmt.Errorf("degrade: ReadOnly: %w: %d configs, want at most one", limiter.ErrInvalid, len(cfg)))
	}
	if len(cfg) == 0 {
		return h
	}
	h.isRead, h.isWrite = cfg[0].Reads, cfg[0].Writes
	for _, pattern := range cfg[0].ReadRoutes {
		r, err := newReadRoute(pattern)
		if err != nil {
			h.errs = append(h.errs, fmt.Errorf("degrade: ReadOnly: %w: ReadRoutes: %w", limiter.ErrInvalid, err))
			continue
		}
		h.routes = append(h.routes, r)
	}
	share := cfg[0].Latch
	if share == 0 {
		return h
	}
	if !(share > 0 && share <= 1) { // NaN is neither
		h.errs = append(h.errs, fmt.Errorf("degrade: ReadOnly: %w: Latch: %v is no share, want 0 < Latch ≤ 1, or 0 for none", limiter.ErrInvalid, share))
	}
	return &latchedReadOnly{readOnly: h, latch: newLatch(share)}
}

type readOnly struct {
	routes          readRoutes
	isRead, isWrite func(*keyfunc.Request) bool
	errs            []error
}

var (
	_ Handler   = (*readOnly)(nil)
	_ Moded     = (*readOnly)(nil)
	_ Validator = (*readOnly)(nil)
	_ Proceeder = (*readOnly)(nil)
	_ Spender   = (*readOnly)(nil)
	_ Gate      = (*latchedReadOnly)(nil)
	_ Heir      = (*latchedReadOnly)(nil)
	_ Latched   = (*latchedReadOnly)(nil)
	_ Validator = (*latchedReadOnly)(nil)
	_ Proceeder = (*latchedReadOnly)(nil)
	_ Spender   = (*latchedReadOnly)(nil)
)

func (h *readOnly) Mode() string    { return ModeReadOnly }
func (h *readOnly) Proceeds()       {}
func (h *readOnly) Spends()         {}
func (h *readOnly) Validate() error { return errors.Join(h.errs...) }

func (h *readOnly) Degrade(_ http.ResponseWriter, r *http.Request, d *Denial) Outcome {
	// What proceeds is the guard's request, whatever a handler around this one has made of it.
	req := d.Request
	if req == nil {
		req = new(keyfunc.Request)
		req.Reset(r, nil, nil)
	}
	if !h.reads(req, d.Contain) {
		d.ReadOnly = true
		if everybodys(d.Key.ID) {
			d.Cause = Capacity
		}
		return Refuse
	}
	if !d.Afford(r.Context()) {
		return Skip
	}
	return Proceed
}

// everybodys reports whether an identity names no caller: the whole service, or its routes each.
func everybodys(id string) bool {
	for part := range strings.SplitSeq(id, "|") {
		if part != "all=-" && !strings.HasPrefix(part, "route=") {
			return false
		}
	}
	return true
}

// reads reports whether r is a read. In doubt it is a write: a refused read is a nuisance, a write let through is the
// damage that the mode is there to prevent. report hears of a panic; nil: nobody.
func (h *readOnly) reads(r *keyfunc.Request, report func(panicked any) bool) (read bool) {
	defer func() {
		if p := recover(); p != nil {
			if read = false; report != nil {
				report(p)
			}
		}
	}()
	if overridden(r.Header) || h.isWrite != nil && h.isWrite(r) {
		return false
	}
	if len(r.Header["Upgrade"]) == 0 {
		if safeMethod(r.Method) || h.routes.match(r) {
			return true
		}
	}
	return h.isRead != nil && h.isRead(r)
}

// safeMethod reports whether method is one of RFC 9110, section 9.2.1, other than TRACE, which is for debugging.
func safeMethod(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions
}

// overridden reports whether a header names a method that is not safe.
func overridden(h http.Header) bool {
	for name, methods := range h {
		if !overriding(name) && !(ambiguous(name) && overriding(unambiguous(name))) {
			continue
		}
		for _, method := range methods {
			if !safeMethod(strings.ToUpper(strings.TrimSpace(method))) {
				return true
			}
		}
	}
	return false
}

// latchedReadOnly is a type of its own, so that a guard asks no gate where there is no latch.
type latchedReadOnly struct {
	*readOnly
	latch *latch
}

// Before shuts writes while the latch is on.
func (h *latchedReadOnly) Before(s *Subject) Hint {
	if wait := h.latch.wait(s.Now); wait > 0 && !h.reads(s.Request, nil) {
		return Hint{Shut: true, Cause: Capacity, Wait: wait, Strict: true}
	}
	return Hint{}
}

// After counts what the policy has decided. What was shut, or refused by another policy first, is no decision of it,
// and a request counts once.
func (h *latchedReadOnly) After(s *Subject, v Verdict) {
	if !s.Again && (v.Refused || v.Passed || v.Decision.Allowed) {
		h.latch.hear(s.Now, v.Refused)
	}
}

// Inherit shares the latch of prev if it switches at the same share: what is a read does not matter to it.
func (h *latchedReadOnly) Inherit(prev Handler) bool {
	p, ok := prev.(*latchedReadOnly)
	if !ok || p.latch.state.share != h.latch.state.share {
		return false
	}
	h.latch = p.latch
	return true
}

func (h *latchedReadOnly) Latched(now time.Time) bool { return h.latch.wait(now) > 0 }
