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
	reset := max(d.ResetAfter, 0)
	if it.Violated {
		wait := max(d.RetryAfter, 0)
		if wait == limiter.Never {
			return false
		}
		reset = max(reset, wait)
		h[keyRetry] = countLine(x.waitSeconds(wait))
	}
	h[keyXLimit] = p.limit
	h[keyXRemaining], h[keyXReset] = lines(now, min(max(int64(d.Remaining), 0), p.quota), p.quota, ceilEpoch(now, reset))
	return true
}

// refuseOne is writeOne and refuse for a spent quota of one policy that nothing else is to be said of. false: there is, and
// nothing was written.
func (x *Renderer) refuseOne(w http.ResponseWriter, h http.Header, r *http.Request, now time.Time, it *Item, f *Refusal) bool {
	p, d := it.Policy, it.Decision
	switch {
	case p == nil || d == nil || !it.Violated || f.Kind != QuotaExceeded || f.Silent,
		len(f.Policies) != 1 || f.Policies[0] != p.name || max(f.RetryAfter, 0) != max(d.RetryAfter, 0),
		f.Message != "" || f.Messages != nil || f.Instance != "" || x.messages != nil || x.body != nil || !acceptsProblem(r):
		return false
	}
	if !x.writeOne(h, now, it) {
		return false
	}
	if x.expose && r != nil {
		exposeFields(h, r, false)
	}
	buf := bodies.Get().(*[]byte)
	defer bodies.Put(buf)
	body := append(strconv.AppendInt(append((*buf)[:0], p.spent...), x.waitSeconds(max(f.RetryAfter, 0)), 10), '}')
	*buf = body
	h[keyCacheControl], h[keyTypeOptions], h[keyType] = noStore, noSniff, problemLine
	h[keyLength] = countLine(int64(len(body)))
	w.WriteHeader(http.StatusTooManyRequests)
	if r == nil || r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
	return true
}
