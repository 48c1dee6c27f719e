package live

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	kept      = 32               // ticks that a viewer may be behind
	patience  = 10 * time.Second // for a write
	heartbeat = 15 * time.Second // a comment, where no tick comes
	retry     = 2 * time.Second  // that browsers wait before they come again
)

// ticks is what all viewers read: the latest ones, encoded once. A viewer keeps a number and no queue, so one that is slow
// holds nothing up and piles up nothing: it skips to the whole.
type ticks struct {
	mu     sync.Mutex
	last   int64 // number of the latest; −1: none
	frames [kept][]byte
	news   chan struct{} // closed with the next one
}

func (t *ticks) init() {
	t.last = -1
	t.news = make(chan struct{})
}

// put adds a tick to those that are there.
func (t *ticks) put(frame []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last++
	t.frames[t.last%kept] = frame
	close(t.news)
	t.news = make(chan struct{})
}

// after returns the ticks after number n and the number of the last of them, or that some of them are gone; and what to wait
// for.
func (t *ticks) after(n int64) (frames [][]byte, last int64, lost bool, news <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n > t.last || t.last-n > kept {
		return nil, n, true, t.news
	}
	for k := n + 1; k <= t.last; k++ {
		frames = append(frames, t.frames[k%kept])
	}
	return frames, t.last, false, t.news
}

// frame is an event as it is sent (HTML Living Standard, 9.2.6). JSON has no line breaks of its own.
func (p *Page) frame(n int64, event string, data []byte) []byte {
	b := make([]byte, 0, len(data)+64)
	b = fmt.Appendf(b, "id: %s-%d\nevent: %s\ndata: ", p.boot, n, event)
	return append(append(b, data...), "\n\n"...)
}

// whole returns the event with everything, as of the latest tick, and its number. It is encoded once for each tick that anybody asks for.
func (p *Page) whole() (frame []byte, n int64) {
	s := p.sampler
	s.mu.Lock()
	defer s.mu.Unlock()
	n = s.n - 1
	if s.whole == nil || s.wholeOf != n {
		s.whole, s.wholeOf = p.frame(n, "full", s.full()), n
	}
	return s.whole, n
}

// resumed returns the number in the id of the last event that a viewer has, if it is of this page.
func (p *Page) resumed(r *http.Request) (n int64, ok bool) {
	id := r.Header.Get("Last-Event-Id")
	if id == "" {
		id = r.URL.Query().Get("last") // a script that opens a stream cannot set the field
	}
	boot, number, _ := strings.Cut(id, "-")
	n, err := strconv.ParseInt(number, 10, 64)
	return n, err == nil && n >= 0 && boot == p.boot
}

// stream sends events until the viewer leaves, cannot follow, or the page is closed.
func (p *Page) stream(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would hold back what is small
	if r.Method == http.MethodHead {
		return
	}
	if p.viewers.Add(1) > int64(p.cfg.MaxViewers) {
		p.viewers.Add(-1)
		h.Del("Content-Type")
		h.Set("Retry-After", "10")
		http.Error(w, "Too many are looking already.", http.StatusServiceUnavailable)
		return
	}
	defer p.viewers.Add(-1)
	out := http.NewResponseController(w)
	send := func(b []byte) bool {
		// Where there are no deadlines, as behind other writers, a write may take longer. It holds up nobody else.
		_ = out.SetWriteDeadline(time.Now().Add(patience))
		if _, err := w.Write(b); err != nil {
			return false
		}
		return out.Flush() == nil
	}
	if !send(fmt.Appendf(nil, "retry: %d\n\n", retry.Milliseconds())) {
		return
	}
	n, resumed := p.resumed(r)
	if !resumed {
		n = -1 - kept - 1 // of no tick
	}
	beat := time.NewTimer(heartbeat)
	defer beat.Stop()
	for {
		frames, last, lost, news := p.ticks.after(n)
		if lost {
			var whole []byte
			whole, last = p.whole()
			frames = [][]byte{whole}
		}
		for _, frame := range frames {
			if !send(frame) {
				return
			}
		}
		n = last
		beat.Reset(heartbeat)
		select {
		case <-p.done:
			return
		case <-r.Context().Done():
			return
		case <-news:
		case <-beat.C:
			if !send([]byte(":\n\n")) {
				return
			}
		}
	}
}
