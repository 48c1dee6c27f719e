package response

import (
	"net/http"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// Canonical names of the fields as Go keeps them. They are assigned directly: Header.Set would canonicalise and allocate.
const (
	keyRetry      = "Retry-After"
	keyState      = "Ratelimit"
	keyPolicy     = "Ratelimit-Policy"
	keyXLimit     = "X-Ratelimit-Limit"
	keyXRemaining = "X-Ratelimit-Remaining"
	keyXReset     = "X-Ratelimit-Reset"
	key06Limit    = "Ratelimit-Limit"
	key06Left     = "Ratelimit-Remaining"
	key06Reset    = "Ratelimit-Reset"
)

// maxPartition bounds pk: a partition key is a hash of a key, never the key.
const maxPartition = 16

// Item is one policy's state in one response.
type Item struct {
	Policy *Policy
	// Decision is what the limiter answered. nil: the state is not known, and only the policy itself is told.
	Decision *limiter.Decision
	// Partition is the pk parameter of the draft fields, at most 16 bytes, of which a longer one is cut; nil: none. It
	// must not be, or lead back to, the key, an address or a user: use an HMAC.
	Partition []byte
	// Set is the policy's own set; zero: that of the Renderer. Off: nothing is told of this policy.
	Set Set
	// Violated says that the policy refuses the request.
	Violated bool
}

// line is an Item reduced to the numbers that are told.
type line struct {
	item  *Item
	set   Set
	known bool          // the state is known
	r     int64         // units left
	t     int64         // effective window in seconds, −1: none
	reset time.Duration // until the full quota is back
	wait  time.Duration // of a violated policy
}

// measure computes the numbers of an item. Clients spread r over t, so r/t is kept at the nominal rate wherever units
// come back steadily: with the time to the full quota as t, a nearly full bucket of 600 would read as 599 in 1 s.
func (x *Renderer) measure(ln *line) {
	it := ln.item
	p, d := it.Policy, it.Decision
	ln.t = -1
	if d == nil {
		return
	}
	ln.known = true
	ln.r = min(max(int64(d.Remaining), 0), p.quota)
	ln.reset = max(d.ResetAfter, 0)
	if it.Violated {
		ln.wait = max(d.RetryAfter, 0)
		if ln.wait != limiter.Never {
			// A client that waits for the reset must not be refused again.
			ln.reset = max(ln.reset, ln.wait)
		}
	}
	if p.window == 0 {
		return
	}
	switch {
	case it.Violated:
		if ln.wait == limiter.Never {
			return
		}
		ln.t = x.waitSeconds(ln.wait)
	case ln.r == 0:
		next := d.NextAfter
		if next <= 0 {
			next = d.ResetAfter
		}
		ln.t = max(1, ceilSeconds(next))
	case p.fixed:
		ln.t = ceilSeconds(d.ResetAfter)
		if ln.t == 0 {
			ln.t = p.window // an untouched window: it ends within its length
		}
	default:
		ln.t = max(1, p.refill(ln.r))
	}
	ln.t = min(ln.t, maxInteger)
	if x.perSecond > 0 && ln.t <= maxRetry {
		ln.r = min(ln.r, x.perSecond*ln.t)
	}
}

// better reports whether ln describes the response better than b: on a refusal the longer wait, otherwise fewer units
// left, on a tie the later reset. While the request passes, a quota describes it better than a bound on requests in
// flight: that one is free again with this very response, and has no reset to wait for.
func (ln *line) better(b *line, refused bool) bool {
	switch {
	case b == nil:
		return true
	case refused && ln.wait != b.wait:
		return ln.wait > b.wait
	case !refused && ln.item.Policy.inflight != b.item.Policy.inflight:
		return b.item.Policy.inflight
	case !refused && ln.r != b.r:
		return ln.r < b.r
	}
	return ln.reset > b.reset
}

// WriteHeaders tells the state of the policies of one request, in the order given, before anything else is written. h
// is the response's header, r the request (nil: never cross-origin), now the instant of the decisions.
//
// Where no item is Violated all are told, and there is no Retry-After. Where one is, RateLimit-Policy still lists all,
// RateLimit has the violated ones, the X fields describe the violated one with the longest wait, and Retry-After is the
// longest wait of them all, missing if that is [limiter.Never]. Items of set [Off] and unlimited ones are told nowhere;
// where nothing can be told, nothing is written.
//
// A family of fields that one policy asks for, or that is on the response already, tells of all policies counted in
// requests, so that all families describe the same thing. A policy in another unit is only in the families of its own
// set.
//
// Fields that another limiter has set are added to: lists are joined, a larger Retry-After stays, the X fields are
// replaced only if ours has fewer units left. A refusal takes the place of what a pass has told, and a pass changes
// nothing on a response that has a Retry-After.
func (x *Renderer) WriteHeaders(h http.Header, r *http.Request, now time.Time, items []Item) {
	if len(items) == 1 && x.plain && len(h) == 0 && x.writeOne(h, now, &items[0]) {
		if x.expose && r != nil {
			exposeFields(h, r, false)
		}
		return
	}
	var few [4]line
	s := sheet{lines: few[:0]}
	for i := range items {
		it := &items[i]
		if it.Policy == nil {
			continue
		}
		set := it.Set.Or(x.set)
		if it.Violated {
			s.refused = true
			s.retry = s.retry || !set.off
			if it.Decision != nil {
				s.wait = max(s.wait, it.Decision.RetryAfter)
			}
		}
		if set.off || it.Policy.silent || it.Decision != nil && it.Decision.Limit.Algorithm == limiter.Unlimited.Algorithm {
			continue
		}
		ln := line{item: it, set: set}
		x.measure(&ln)
		s.lines = append(s.lines, ln)
	}
	x.write(h, r, now, &s)
}
