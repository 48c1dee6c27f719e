package live_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/observe/live"
)

// view begins a stream and returns when it waits for news.
func view(p *live.Page, change func(*http.Request)) (w *wire, leave func(), ended <-chan struct{}) {
	r := local(http.MethodGet, "/live/events")
	if change != nil {
		change(r)
	}
	ctx, cancel := context.WithCancel(r.Context())
	w = newWire()
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.ServeHTTP(w, r.WithContext(ctx))
	}()
	synctest.Wait()
	return w, cancel, done
}

func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// number is the one at the end of an event's id.
func number(t *testing.T, e event) (n int) {
	t.Helper()
	_, err := fmt.Sscanf(e.id[strings.IndexByte(e.id, '-')+1:], "%d", &n)
	require.NoError(t, err)
	return n
}

func TestStreamIsTheWholeAndThenEachSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPage(t, live.Config{Title: "shop"})
		after(3500 * time.Millisecond)
		w, leave, ended := view(p, nil)
		require.True(t, strings.HasPrefix(w.text(), "retry: 2000\n\n"))
		require.Equal(t, "text/event-stream; charset=utf-8", w.header.Get("Content-Type"))
		require.Equal(t, "no-store", w.header.Get("Cache-Control"))
		after(5 * time.Second)
		all := w.events(t)
		require.Len(t, all, 6)
		require.Equal(t, "full", all[0].name)
		require.Contains(t, all[0].data, `"title":"shop"`)
		require.Contains(t, all[0].data, `"policies":[]`, "a list, though it is empty")
		for k, e := range all {
			require.Equal(t, 3+k, number(t, e))
			require.Equal(t, e.told(t).Now, all[0].told(t).Now+int64(k))
			if k > 0 {
				require.Equal(t, "tick", e.name)
			}
		}
		leave()
		<-ended
	})
}

func TestAllViewersGetTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPage(t, live.Config{})
		g := newGuard(t, p, nil, policy("a", "5/s"))
		p.Watch(g, nil)
		after(1500 * time.Millisecond)
		one, leaveOne, _ := view(p, nil)
		two, leaveTwo, _ := view(p, nil)
		for range 3 {
			send(g, "/", 9)
			after(time.Second)
		}
		require.Equal(t, one.text(), two.text())
		leaveOne()
		leaveTwo()
		synctest.Wait()
	})
}

func TestResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPage(t, live.Config{})
		after(1500 * time.Millisecond)
		w, leave, _ := view(p, nil)
		after(2 * time.Second)
		leave()
		synctest.Wait()
		all := w.events(t)
		last := all[len(all)-1]
		after(4 * time.Second)
		for name, change := range map[string]func(*http.Request){
			"as a browser does": func(r *http.Request) { r.Header.Set("Last-Event-ID", last.id) },
			"as the page does":  func(r *http.Request) { r.URL.RawQuery = "last=" + last.id },
		} {
			w, leave, _ := view(p, change)
			got := w.events(t)
			require.Len(t, got, 4, name)
			for k, e := range got {
				require.Equal(t, "tick", e.name)
				require.Equal(t, number(t, last)+1+k, number(t, e), name)
			}
			leave()
		}
		for name, id := range map[string]string{
			"of another page": "other" + last.id, "none": "", "no number": strings.Split(last.id, "-")[0] + "-x", "from the future": last.id + "00",
			"negative": strings.Split(last.id, "-")[0] + "--5", "empty": "-",
		} {
			w, leave, _ := view(p, func(r *http.Request) { r.Header.Set("Last-Event-ID", id) })
			require.Equal(t, "full", w.events(t)[0].name, name)
			leave()
		}
		after(time.Minute)
		w, leave, _ = view(p, func(r *http.Request) { r.Header.Set("Last-Event-ID", last.id) })
		require.Equal(t, "full", w.events(t)[0].name, "too old")
		leave()
		synctest.Wait()
	})
}

// Who is slow for a moment gets all of it later, who is slow for long skips to the whole, and nobody waits for him.
func TestSlowViewers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPage(t, live.Config{})
		after(500 * time.Millisecond)
		quick, leaveQuick, _ := view(p, nil)
		slow, leaveSlow, _ := view(p, nil)
		resume := slow.stop()
		after(8 * time.Second)
		require.Len(t, quick.events(t), 9)
		require.Len(t, slow.events(t), 1)
		resume()
		synctest.Wait()
		require.Equal(t, quick.text(), slow.text())

		slow.forgetDeadlines() // as behind some writers
		after(time.Second)
		resume = slow.stop()
		after(2 * time.Minute)
		before := len(slow.events(t))
		resume()
		synctest.Wait()
		all := slow.events(t)
		require.LessOrEqual(t, len(all)-before, 2, "nothing has piled up")
		require.Equal(t, "full", all[len(all)-1].name)
		require.Equal(t, number(t, quick.events(t)[len(quick.events(t))-1]), number(t, all[len(all)-1]))
		leaveQuick()
		leaveSlow()
		synctest.Wait()
	})
}

func TestViewersWhoDoNotReadAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPage(t, live.Config{MaxViewers: 1})
		w, _, ended := view(p, nil)
		w.stop()
		after(12 * time.Second)
		<-ended
		again, leave, _ := view(p, nil)
		require.NotEmpty(t, again.events(t), "his place is free")
		leave()
		synctest.Wait()
	})
}

func TestMaxViewers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPage(t, live.Config{MaxViewers: 2})
		_, leave, _ := view(p, nil)
		_, leaveTwo, _ := view(p, nil)
		w, _, ended := view(p, nil)
		<-ended
		require.Equal(t, http.StatusServiceUnavailable, w.status)
		require.Equal(t, "10", w.header.Get("Retry-After"))
		require.NotContains(t, w.text(), "event:")
		leave()
		synctest.Wait()
		w, leave, _ = view(p, nil)
		require.Equal(t, "full", w.events(t)[0].name)
		leave()
		leaveTwo()
		synctest.Wait()
	})
}

func TestCloseEndsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPage(t, live.Config{})
		_, _, ended := view(p, nil)
		p.Close()
		<-ended
		p.Close()
		for _, path := range []string{"/", "/events", "/app.js"} {
			w := newWire()
			p.ServeHTTP(w, local(http.MethodGet, path))
			require.Equal(t, http.StatusServiceUnavailable, w.status)
		}
	})
}

// Functions of the user that hang hold up nothing: ticks come, viewers come and go, and the page tells what is old. One that
// panics is told of, and Close does not wait for them.
func TestStatusThatHangsOrPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPage(t, live.Config{MaxViewers: 1})
		hang, block := make(chan struct{}), make(chan struct{})
		var blocks atomic.Bool
		a := policy("a", "5/s")
		a.Adjust = []limiter.Adjuster{limiter.AdjusterFunc(func(_ time.Time, l limiter.Limit) limiter.Limit {
			if blocks.Load() {
				<-block
			}
			return l
		})}
		g := newGuard(t, p, nil, a)
		p.Watch(g, func() live.Status {
			<-hang
			panic("secret")
		})
		after(2 * time.Second)
		send(g, "/", 3)
		w, leave, _ := view(p, nil)
		blocks.Store(true)
		after(40 * time.Second)
		s := follow(t, w.events(t))
		require.Equal(t, "stale", s.state)
		require.Equal(t, uint64(3), s.rows["a"].S[0])
		require.Equal(t, "5/s", s.about["a"].Limit, "as it was")
		require.Greater(t, len(w.events(t)), 35, "a tick each second")
		require.Contains(t, w.text(), "an adjuster or a controller does not return")
		require.Contains(t, w.text(), "the document is shown as it was")
		for range 5 { // there is one place
			leave()
			synctest.Wait()
			w, leave, _ = view(p, nil)
			require.Equal(t, "full", w.events(t)[0].name)
		}
		close(block)
		close(hang)
		after(3 * time.Second)
		s = follow(t, w.events(t))
		require.Equal(t, "refused", s.state)
		require.NotContains(t, w.text(), "secret")
		require.Contains(t, w.text(), "panics")
		leave()
		synctest.Wait()
	})
}

func TestCloseDoesNotWaitForTheProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPage(t, live.Config{})
		hang := make(chan struct{})
		p.Watch(newGuard(t, p, nil, policy("a", "5/s")), func() live.Status {
			<-hang
			return live.Status{}
		})
		after(5 * time.Second)
		begin := time.Now()
		p.Close()
		require.LessOrEqual(t, time.Since(begin), time.Second)
		close(hang)
		synctest.Wait()
	})
}
