package degrade

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/spillway-go/spillway/keyfunc"
)

// pageVerdict is what the header of a response says about storing it.
type pageVerdict uint8

const (
	undecided pageVerdict = iota
	unsaid                // neither may it be stored nor does it speak against what is
	forbidden             // must not be stored, and speaks against older copies
	allowed
)

// recording is one response to an allowed request. It passes everything on at once and keeps at most maxPage bytes of it.
// Its mutex is for handlers that keep the writer and write once they have returned: what comes then belongs to nobody, and
// its buffer to another request.
type recording struct {
	pages *Pages
	began time.Time
	write bool // the request is one: only the status matters
	store *pageStore
	cut   uint32 // of the address, which the handler may change
	held  *pageBuffers
	ctx   context.Context // of the request
	host  string
	address

	mu      sync.Mutex
	done    bool // the handler has returned, and nothing below changes
	status  int
	verdict pageVerdict
	page    Page
	vary    []string
	fields  int   // of the header, when it was last judged after it went out
	length  int64 // Content-Length; -1: not said
	taking  bool  // the body is being kept
	broken  bool  // what was kept is not the whole response
}

// pageBuffers are what recordings need and give back.
type pageBuffers struct {
	key    []byte
	asked  fieldCopy // of the request, as it came
	before fieldCopy // of the response, as it was before the handler
	body   []byte
}

var pageBuffersPool = sync.Pool{New: func() any { return new(pageBuffers) }}

// keptBody is the largest buffer for a body that waits for another request.
const keptBody = 1 << 20

func (b *pageBuffers) release() {
	b.asked.reset()
	b.before.reset()
	if b.body = b.body[:0]; cap(b.body) > keptBody {
		b.body = nil
	}
	if b.key = b.key[:0]; cap(b.key) > 1<<14 {
		b.key = nil
	}
	pageBuffersPool.Put(b)
}

// fieldCopy is a header as it was at one moment. Handlers and frameworks change the maps they are given.
type fieldCopy struct {
	fields []struct {
		name   string
		lo, hi int
	}
	values []string
}

func (c *fieldCopy) take(h http.Header) {
	for name, values := range h {
		lo := len(c.values)
		c.values = append(c.values, values...)
		c.fields = append(c.fields, struct {
			name   string
			lo, hi int
		}{name, lo, len(c.values)})
	}
}

// get returns the values of a field, nil if there is none.
func (c *fieldCopy) get(name string) []string {
	for _, f := range c.fields {
		if f.name == name {
			return c.values[f.lo:f.hi:f.hi]
		}
	}
	return nil
}

func (c *fieldCopy) reset() {
	clear(c.fields)
	clear(c.values)
	c.fields, c.values = c.fields[:0], c.values[:0]
	if cap(c.values) > 256 {
		c.fields, c.values = nil, nil
	}
}

// recordable reports whether a response to r can be stored, or says something about what is. Most of what cannot be is
// known here, before it costs anything.
func recordable(r *http.Request) (write, ok bool) {
	switch r.Method {
	case http.MethodGet, "":
		if overrides(r.Header) {
			return true, true
		}
	case http.MethodHead, http.MethodOptions, http.MethodTrace:
		o := overrides(r.Header)
		return o, o
	default:
		return true, true
	}
	if r.ContentLength != 0 || len(r.Header["Range"]) > 0 || len(r.Header["Upgrade"]) > 0 {
		return false, false
	}
	if lines := r.Header["Cache-Control"]; len(lines) > 0 {
		if d := parseDirectives(lines); d.bad || d.noStore {
			return false, false
		}
	}
	_, degraded := FromContext(r.Context())
	return false, !degraded
}

// record starts a recording, unless there is nothing to record.
func (p *Pages) record(w http.ResponseWriter, r *keyfunc.Request, policy, identity string) (http.ResponseWriter, func(ok bool)) {
	write, ok := recordable(r.Request)
	if !ok {
		return w, nil
	}
	held := pageBuffersPool.Get().(*pageBuffers)
	s := p.store.Load()
	x := &recording{pages: p, began: time.Now(), write: write, store: s, cut: s.cutOf(r.Request), held: held, ctx: r.Context(), host: r.Host, length: -1}
	x.address = p.addressOf(held.key[:0], r, policy, identity)
	held.key = x.address.key
	if write {
		return x.wrap(w), x.finish
	}
	held.asked.take(r.Header)
	held.before.take(w.Header())
	return x.wrap(w), x.finish
}

// begin sees the final status, before the header goes out: what is further out may change it then.
func (x *recording) begin(w http.ResponseWriter, status int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.done:
	case x.status != 0:
		// A recovery further in tells by a second status that the handler has broken off.
		x.broken = x.broken || status != x.status
	case status == http.StatusSwitchingProtocols:
		x.status, x.verdict, x.broken = status, unsaid, true
	case status >= 200:
		x.status = status
		if !x.write {
			x.judge(w.Header(), time.Now())
		}
	}
}

// sent sees that a part of the response has gone out, and with the first one the header. What is further out, such as a
// session, may have added to it on its way, or does so later if something buffers.
func (x *recording) sent(w http.ResponseWriter) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.done || x.verdict != allowed {
		return
	}
	if h := w.Header(); len(h) != x.fields {
		x.fields = len(h)
		x.judgeAgain(h)
	}
}

// wrote sees n bytes of b that have gone out.
func (x *recording) wrote(b []byte, n int, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.done || !x.taking:
	case err != nil || n != len(b):
		x.stop()
	default:
		x.keep(b)
	}
}

func (x *recording) wroteString(s string, n int, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.done || !x.taking:
	case err != nil || n != len(s) || len(x.held.body)+len(s) > x.pages.maxPage:
		x.stop()
	default:
		x.held.body = append(x.held.body, s...)
	}
}

func (x *recording) keep(b []byte) {
	if len(x.held.body)+len(b) > x.pages.maxPage {
		x.stop()
		return
	}
	x.held.body = append(x.held.body, b...)
}

// stop gives up on the body. What the header says is still heard.
func (x *recording) stop() {
	x.taking, x.broken = false, true
	x.held.body = x.held.body[:0]
}

// flushed sees that what has been written is to go out now.
func (x *recording) flushed() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.done || !x.taking {
		return
	}
	// The type of a body without one is guessed by the server from what it has at the first flush, and here from more.
	_, typed := x.page.Header["Content-Type"]
	if !x.pages.cfg.Flushed || !typed && len(x.held.body) < 512 {
		x.stop()
	}
}

func (x *recording) hijacked() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.done {
		x.verdict, x.write = unsaid, false
		x.stop()
	}
}

// active reports whether the body is being kept, for a copy that need not pass through here otherwise.
func (x *recording) active() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.done && x.taking
}

// tee keeps what is read of src, up to the bound.
type tee struct {
	src  io.Reader
	x    *recording
	read int64
}

func (t *tee) Read(b []byte) (int, error) {
	n, err := t.src.Read(b)
	if n > 0 {
		t.read += int64(n)
		t.x.wrote(b[:n], n, nil)
	}
	return n, err
}

// finish stores the response, or takes away what it speaks against. Nothing of it can harm the response.
func (x *recording) finish(ok bool) {
	x.mu.Lock()
	done := x.done
	x.done = true
	x.mu.Unlock()
	if !done {
		x.settle(ok)
		x.held.release()
	}
}

// whole reports whether what was kept is all of the response.
func (x *recording) whole(ok bool) bool {
	n := len(x.held.body)
	switch {
	case !ok || x.broken || !x.taking:
		return false
	case x.length >= 0 && x.length != int64(n):
		return false
	// Who unwraps the writer writes past it, and an empty page helps nobody.
	case n == 0 && x.length != 0 && x.status < 300:
		return false
	}
	// A handler whose client is gone may stop anywhere.
	return x.ctx.Err() == nil
}

// settle writes to the store.
func (x *recording) settle(ok bool) {
	defer func() {
		if v := recover(); v != nil {
			x.pages.panicked("Store", v)
		}
	}()
	s, public, whole := x.store, x.page.Public, x.whole(ok)
	switch {
	case x.write:
		// Without a status, the server says 200.
		if (ok || x.status != 0) && x.status < 400 && x.status != http.StatusSwitchingProtocols {
			x.written()
		}
	case x.verdict != allowed && x.verdict != forbidden:
	case x.verdict == forbidden && x.asker == anonymous:
		s.Delete(x.shared())
	case x.verdict == allowed && (public || x.asker == anonymous):
		if whole {
			x.add(x.shared())
		}
		if whole && x.asker == member {
			s.Delete(x.private()) // is older
		}
	default:
		// The response says nothing about what the anonymous get, but what was for everybody no longer is.
		shared := x.shared()
		s.update(shared, func(c *Copies) *Copies { return c.withoutPublic(shared) })
		if x.asker == member && x.verdict == forbidden {
			s.Delete(x.private())
		} else if x.asker == member && whole {
			x.add(x.private())
		}
	}
}

// written makes every copy of the address void.
func (x *recording) written() {
	x.store.written(x.cut, time.Now())
	// Other processes that share the store have no part in the cuts.
	x.store.Delete(x.shared())
	if x.asker == member {
		x.store.Delete(x.private())
	}
}

// add stores the page. It is made here, once it is known that it will be kept.
func (x *recording) add(key string) {
	p, s, cut, page, now := x.pages, x.store, x.cut, x.page, time.Now()
	dead := func(old *Page) bool {
		return s.void(cut, old) || !p.lives(old, now, Quota) && !p.lives(old, now, Capacity)
	}
	if dead(&page) {
		return
	}
	page.Body = append([]byte(nil), x.held.body...) // its capacity is what it takes
	page.Header["Content-Length"] = []string{strconv.Itoa(len(page.Body))}
	if _, ok := page.Header["Content-Type"]; !ok && len(page.Body) > 0 && len(page.Header["Content-Encoding"]) == 0 {
		page.Header["Content-Type"] = []string{http.DetectContentType(page.Body)} // as the server did
	}
	asked, host, vary := x.held.asked, x.host, x.vary
	if s.defers() {
		x.held.asked = fieldCopy{} // the change may come when the buffers are another's
	}
	values := func(name string) []string {
		if name == "Host" {
			return []string{host} // it is a part of the key, too
		}
		return asked.get(name)
	}
	s.update(key, func(c *Copies) *Copies {
		if s.void(cut, &page) { // by now
			return c
		}
		return c.with(key, vary, values, page, dead)
	})
}
