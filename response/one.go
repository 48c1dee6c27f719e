package response

import (
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// writeOne tells of one policy in the X fields on a response that has no field yet, as nearly every response is. It writes
// what write would, which a test holds it to, without weighing policies, families and the fields of others. false: not
// such a response, and nothing was written.
func (x *Renderer) writeOne(h http.Header, now time.Time, it *Item) bool {
	p, d := it.Policy, it.Decision
	if p == nil || d == nil || p.silent || it.Set.Or(x.set) != X || d.Limit.Algorithm == limiter.Unlimited.Algorithm {
		return false
	}
	left := min(max(int64(d.Remaining), 0), p.quota)
	reset, wait := max(d.ResetAfter, 0), max(d.RetryAfter, 0)
	if !it.Violated {
		k := new(block2)
		b := strconv.AppendInt(k.text[:0], left, 10)
		n := len(b)
		b = strconv.AppendInt(b, ceilEpoch(now, reset), 10)
		text := frozen(b)
		k.values[0], k.values[1] = text[:n], text[n:]
		h[keyXLimit], h[keyXRemaining], h[keyXReset] = p.limit, k.values[0:1:1], k.values[1:2:2]
		return true
	}
	if wait == limiter.Never {
		return false
	}
	k := new(block3)
	b := strconv.AppendInt(k.text[:0], left, 10)
	n := len(b)
	b = strconv.AppendInt(b, ceilEpoch(now, max(reset, wait)), 10)
	m := len(b)
	b = strconv.AppendInt(b, x.waitSeconds(wait), 10)
	text := frozen(b)
	k.values[0], k.values[1], k.values[2] = text[:n], text[n:m], text[m:]
	h[keyXLimit], h[keyXRemaining], h[keyXReset] = p.limit, k.values[0:1:1], k.values[1:2:2]
	h[keyRetry] = k.values[2:3:3]
	return true
}
