package response

import (
	"net/http"
	"sync"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

const (
	keyType         = "Content-Type"
	keyLength       = "Content-Length"
	keyEncoding     = "Content-Encoding"
	keyCacheControl = "Cache-Control"
	keyTypeOptions  = "X-Content-Type-Options"
)

const (
	typeProblem = "application/problem+json"
	typeText    = "text/plain; charset=utf-8"
)

// Values shared by all refusals. Each slice is full, so that an append to it copies.
var (
	noStore     = []string{"no-store"}
	noSniff     = []string{"nosniff"}
	problemLine = []string{typeProblem}
	textLine    = []string{typeText}
)

// forCaches are fields of the route that tell single caches what to do.
var forCaches = [...]string{"Cdn-Cache-Control", "Surrogate-Control"}

// Prepare writes the fields of a refusal that do not depend on its body, and returns the refusal as it is told: for
// frameworks that write the body themselves, from [Renderer.Body] or in an envelope of their own.
//
// The fields are Cache-Control: no-store, in place of any other, as nobody may keep a refusal (RFC 6585 section 4) and
// what is said to single caches would win over it (RFC 9213 section 2.2),
// X-Content-Type-Options, Retry-After unless one that is long enough is there, as after [Renderer.WriteHeaders], and
// Access-Control-Expose-Headers. Unavailable and Forbidden remove limits told earlier. All other fields stay as they
// are. In the returned refusal RetryAfter is the wait in the header in whole seconds (Never: none) and Message the
// detail.
func (x *Renderer) Prepare(h http.Header, r *http.Request, f Refusal) Refusal {
	x.prepare(h, r, &f)
	return f
}

// prepare is Prepare in place, as a refusal is large.
func (x *Renderer) prepare(h http.Header, r *http.Request, f *Refusal) {
	h[keyCacheControl] = noStore
	for _, key := range forCaches {
		delete(h, key)
	}
	h[keyTypeOptions] = noSniff
	bare := kinds[f.Kind.known()].bare
	if bare {
		for _, key := range stale {
			delete(h, key)
		}
		delete(h, keyPolicy)
	}
	if f.Silent {
		f.Policies = nil
	}
	wait := f.RetryAfter
	if f.Silent || f.Kind == Forbidden {
		wait = limiter.Never
	}
	if have, ok := x.told(h, wait, f.now); ok {
		f.RetryAfter = time.Duration(ceilSeconds(have)) * time.Second
	} else if wait != limiter.Never {
		var now time.Time
		if x.retryDate {
			now = f.now()
		}
		var stack [32]byte
		text, secs := x.appendRetry(stack[:0], x.spread(wait), now)
		h[keyRetry] = []string{string(text)}
		f.RetryAfter = time.Duration(secs) * time.Second
	} else {
		f.RetryAfter = limiter.Never
	}
	if x.expose && f.Kind != Forbidden && r != nil {
		exposeFields(h, r, len(h[key06Left]) > 0)
	}
	f.Message = x.detail(r, f)
}

// Refuse writes a whole refusal: the fields of [Renderer.Prepare], status, type, length, and the body unless the method
// is HEAD. The limits themselves come from [Renderer.WriteHeaders], called before. Nothing may have been written to w.
// An error of the connection is not reported: there is nobody left to tell.
func (x *Renderer) Refuse(w http.ResponseWriter, r *http.Request, f Refusal) { x.refuse(w, r, &f) }

// WriteRefusal is [Renderer.WriteHeaders] at f.At and then [Renderer.Refuse]. Knowing both at once spares it to look for
// what the other half has written.
func (x *Renderer) WriteRefusal(w http.ResponseWriter, r *http.Request, items []Item, f Refusal) {
	h, now := w.Header(), f.now()
	if len(items) == 1 && x.plain && len(h) == 0 && x.refuseOne(w, h, r, now, &items[0], &f) {
		return
	}
	x.WriteHeaders(h, r, now, items)
	x.refuse(w, r, &f)
}

func (x *Renderer) refuse(w http.ResponseWriter, r *http.Request, f *Refusal) {
	h := w.Header()
	x.prepare(h, r, f)
	if x.body != nil {
		contentType, body := x.Body(r, *f)
		h[keyType] = []string{contentType}
		send(w, h, r, f.Status(), body)
		return
	}
	// A writer does not keep what it is given (io.Writer), so the next refusal may have the buffer.
	buf := bodies.Get().(*[]byte)
	defer bodies.Put(buf)
	var body []byte
	if acceptsProblem(r) {
		h[keyType] = problemLine
		body = appendProblem((*buf)[:0], f)
	} else {
		h[keyType] = textLine
		body = appendPhrase((*buf)[:0], f)
	}
	if cap(body) <= maxBody {
		*buf = body
	}
	send(w, h, r, f.Status(), body)
}

// send writes status, length and body.
func send(w http.ResponseWriter, h http.Header, r *http.Request, status int, body []byte) {
	// A middleware that compresses announces it before it knows the length.
	if len(h[keyEncoding]) > 0 {
		delete(h, keyLength)
	} else {
		h[keyLength] = countLine(int64(len(body)))
	}
	w.WriteHeader(status)
	if r == nil || r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
}

// bodies are buffers for problem documents; longer ones than maxBody bytes are not kept.
var bodies = sync.Pool{New: func() any { b := make([]byte, 0, 512); return &b }}

const maxBody = 4096

// Body returns the body of a refusal as it is given, and its content type; f should come from [Renderer.Prepare], so
// that the body repeats the header. The caller owns the bytes.
func (x *Renderer) Body(r *http.Request, f Refusal) (contentType string, body []byte) {
	f.Message = x.detail(r, &f)
	if x.body != nil {
		if contentType, body, ok := x.custom(r, f); ok {
			return contentType, body
		}
	}
	if acceptsProblem(r) {
		return typeProblem, appendProblem(make([]byte, 0, 320), &f)
	}
	return typeText, appendPhrase(nil, &f)
}

// custom calls the replacement of the body. A panic in it must not turn a refusal into an aborted connection.
func (x *Renderer) custom(r *http.Request, f Refusal) (contentType string, body []byte, ok bool) {
	defer func() {
		if recover() != nil {
			contentType, body, ok = "", nil, false
		}
	}()
	contentType, body = x.body(r, f)
	return contentType, body, contentType != ""
}
