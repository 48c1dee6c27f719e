package client_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/client"
	"github.com/spillway-go/spillway/limiter"
)

// listen is a partner that is nothing but its connections, each served by a function.
func listen(t *testing.T, serve func(c net.Conn, n int64)) (url string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for n := int64(1); ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer func() { _ = c.Close() }()
				serve(c, n)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return "http://" + l.Addr().String()
}

// head reads the header of a request as it is on the wire.
func head(r *bufio.Reader) (text string, ok bool) {
	for {
		line, err := r.ReadString('\n')
		if text += line; err != nil || line == "\r\n" {
			return text, err == nil
		}
	}
}

func ask(t *testing.T, rt http.RoundTripper, method, url string, pairs ...string) (int, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	require.NoError(t, err)
	for i := 0; i < len(pairs); i += 2 {
		r.Header.Set(pairs[i], pairs[i+1])
	}
	status, _, err := finish(rt.RoundTrip(r))
	return status, err
}

// asked are requests without a body that net/http sends again by itself on HTTP/1.
var asked = map[string][]string{
	"GET": {http.MethodGet}, "HEAD": {http.MethodHead}, "OPTIONS": {http.MethodOptions}, "TRACE": {http.MethodTrace},
	"DELETE": {http.MethodDelete, "Idempotency-Key", "1"}, "another": {"PURGE", "X-Idempotency-Key", "1"},
}

// What keeps net/http from sending a request again is not on the wire: nothing of it differs from a request as it would be
// without, and the connection is used again.
func TestNothingIsSeenOnTheWire(t *testing.T) {
	for name, a := range asked {
		t.Run(name, func(t *testing.T) {
			heads := make(chan string, 10)
			var connections atomic.Int64
			url := listen(t, func(c net.Conn, n int64) {
				connections.Store(n)
				for r := bufio.NewReader(c); ; {
					text, ok := head(r)
					if !ok {
						if text != "" {
							heads <- "more: " + text
						}
						return
					}
					heads <- text
					_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
				}
			})
			rt := &http.Transport{}
			defer rt.CloseIdleConnections()
			tr := newTransport(t, client.Config{Base: rt})
			plain, err := ask(t, rt, a[0], url, a[1:]...)
			require.NoError(t, err)
			require.Equal(t, http.StatusNoContent, plain)
			want := <-heads
			for range 3 { // the first is sent before the protocol is known
				_, err := ask(t, tr, a[0], url, a[1:]...)
				require.NoError(t, err)
				require.Equal(t, want, <-heads)
			}
			require.NotContains(t, want, "Content-Length")
			require.NotContains(t, want, "Transfer-Encoding")
			require.Equal(t, int64(1), connections.Load())
			rt.CloseIdleConnections()
			require.Empty(t, heads)
		})
	}
}

// A connection that is cut when it is used again: each time the request is seen is an attempt with a turn of its own.
func TestBaseSendsNothingAgain(t *testing.T) {
	for name, a := range asked {
		for _, strict := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", strict), func(t *testing.T) {
				tr, url, seen := cut(t, strict, 3)
				before := tr.Stats()
				_, err := ask(t, swap{tr, url}, a[0], "http://a.example/", a[1:]...)
				require.Error(t, err)
				require.Equal(t, int64(3), seen.Load(), "attempts")
				now := tr.Stats()
				require.Equal(t, uint64(3), now.Sent-before.Sent)
				require.Zero(t, now.Resent)
			})
		}
	}
	t.Run("Strict without retries", func(t *testing.T) {
		tr, url, seen := cut(t, true, 1)
		_, err := ask(t, swap{tr, url}, http.MethodGet, "http://a.example/")
		require.Error(t, err)
		require.Equal(t, int64(1), seen.Load())
	})
}

// A partner that closes each connection after its first answer, without saying so, is no failure: a retry makes up for it, and
// no breaker opens.
func TestClosedConnectionsAreMadeUpFor(t *testing.T) {
	var refuses atomic.Int64
	url := listen(t, func(c net.Conn, _ int64) {
		r := bufio.NewReader(c)
		if _, ok := head(r); !ok {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
		if _, ok := head(r); ok { // taken, and cut without an answer
			refuses.Add(1)
		}
	})
	rt := &http.Transport{}
	defer rt.CloseIdleConnections()
	tr := newTransport(t, client.Config{Base: rt, Retry: soon, Breaker: client.Breaker{Failures: 1}})
	for range 20 {
		status, err := ask(t, tr, http.MethodGet, url)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, status)
	}
	require.Equal(t, int64(19), refuses.Load())
	s := tr.Stats()
	require.Equal(t, uint64(19), s.Retried)
	require.Zero(t, s.Resent)
}

// Frames of HTTP/2 (RFC 9113 section 4.1), as much as a partner that refuses needs.
const (
	frameData, frameHeaders, frameReset, frameSettings, framePing, frameGoAway = 0, 1, 3, 4, 6, 7

	flagAck, flagEndStream, flagEndHeaders = 1, 1, 4
	refusedStream                          = 7
	preface                                = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
)

func frame(w io.Writer, kind, flags byte, stream uint32, payload ...byte) {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	_, _ = w.Write(append(binary.BigEndian.AppendUint32(b, stream), payload...))
}

// http2Partner is a partner on HTTP/2 whose streams are answered by a function, which may break the connection by false.
type http2Partner struct {
	answer func(w io.Writer, stream uint32, nth int64) bool
	seen   atomic.Int64 // requests
	data   atomic.Int64 // frames of bodies
	open   atomic.Int64 // requests that did not end with their header
}

func (p *http2Partner) serve(_ *http.Server, c *tls.Conn, _ http.Handler) {
	defer func() { _ = c.Close() }()
	if _, err := io.CopyN(io.Discard, c, int64(len(preface))); err != nil {
		return
	}
	frame(c, frameSettings, 0, 0)
	for {
		var h [9]byte
		if _, err := io.ReadFull(c, h[:]); err != nil {
			return
		}
		payload := make([]byte, int(h[0])<<16|int(h[1])<<8|int(h[2]))
		if _, err := io.ReadFull(c, payload); err != nil {
			return
		}
		stream := binary.BigEndian.Uint32(h[5:])
		switch kind, flags := h[3], h[4]; {
		case kind == frameSettings && flags&flagAck == 0:
			frame(c, frameSettings, flagAck, 0)
		case kind == framePing && flags&flagAck == 0:
			frame(c, framePing, flagAck, 0, payload...)
		case kind == frameData:
			p.data.Add(1)
		case kind == frameHeaders:
			if flags&flagEndStream == 0 {
				p.open.Add(1)
			}
			if !p.answer(c, stream, p.seen.Add(1)) {
				return
			}
		}
	}
}

func ok200(w io.Writer, stream uint32) bool {
	frame(w, frameHeaders, flagEndHeaders|flagEndStream, stream, 0x88) // :status 200, RFC 7541 appendix A
	return true
}

func refuse(w io.Writer, stream uint32) bool {
	frame(w, frameReset, 0, stream, 0, 0, 0, refusedStream)
	return true
}

// leave ends a connection before a stream was taken.
func leave(w io.Writer, stream uint32) bool {
	frame(w, frameGoAway, 0, 0, append(binary.BigEndian.AppendUint32(nil, stream-2), 0, 0, 0, 0)...)
	return true
}

func (p *http2Partner) start(t *testing.T) (url string, rt *http.Transport) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.TLS = &tls.Config{NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}
	s.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){"h2": p.serve}
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that are given up
	s.StartTLS()
	t.Cleanup(s.Close)
	rt, _ = s.Client().Transport.(*http.Transport)
	rt.ForceAttemptHTTP2 = true
	t.Cleanup(rt.CloseIdleConnections)
	return s.URL, rt
}

// On HTTP/2 net/http sends again what was refused or left behind. It is kept from that, and Retry makes up for it.
func TestBaseSendsNothingAgainOnHTTP2(t *testing.T) {
	for how, no := range map[string]func(io.Writer, uint32) bool{"REFUSED_STREAM": refuse, "GOAWAY": leave} {
		for name, a := range asked {
			t.Run(fmt.Sprint(how, " ", name), func(t *testing.T) {
				var refusing atomic.Bool
				p := &http2Partner{answer: func(w io.Writer, stream uint32, _ int64) bool {
					if how == "GOAWAY" && refusing.CompareAndSwap(true, false) || refusing.Load() {
						return no(w, stream)
					}
					return ok200(w, stream)
				}}
				url, rt := p.start(t)
				tr := newTransport(t, client.Config{Base: rt, Retry: soon, Strict: true, Limiter: newMemory(t), Limit: limiter.PerSecond(limiter.MaxRate)})
				for range 3 {
					status, err := ask(t, tr, a[0], url, a[1:]...)
					require.NoError(t, err)
					require.Equal(t, http.StatusOK, status)
				}
				refusing.Store(true)
				before, seen := tr.Stats(), p.seen.Load()
				_, err := ask(t, tr, a[0], url, a[1:]...)
				now := tr.Stats()
				if how == "GOAWAY" { // a new connection takes it
					require.NoError(t, err)
				} else {
					require.ErrorContains(t, err, "HTTP/2")
					require.NotErrorIs(t, err, context.Canceled)
					require.Equal(t, uint64(3), now.Sent-before.Sent)
				}
				require.EqualValues(t, now.Sent-before.Sent, p.seen.Load()-seen, "each that was seen had a turn")
				require.Zero(t, now.Resent)
				require.Zero(t, p.open.Load()+p.data.Load(), "requests are as without")
				require.Zero(t, tr.InFlight())
			})
		}
	}
}

// With Strict, what may not be repeated is sent once on HTTP/2, with a body or without.
func TestStrictSendsOnceOnHTTP2(t *testing.T) {
	for _, body := range []string{"", "pay 1"} {
		p := &http2Partner{answer: func(w io.Writer, stream uint32, _ int64) bool { return refuse(w, stream) }}
		url, rt := p.start(t)
		tr := newTransport(t, client.Config{Base: rt, Retry: soon, Strict: true, Limiter: newMemory(t), Limit: limiter.PerSecond(limiter.MaxRate)})
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
		require.NoError(t, err)
		_, _, err = finish(tr.RoundTrip(r))
		require.Error(t, err)
		require.Equal(t, int64(1), p.seen.Load())
		require.Zero(t, tr.Stats().Resent)
	}
}

// Who gives up while his stream is refused has given up; what was withheld does not hide it.
func TestGivenUpOnHTTP2(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	p := &http2Partner{answer: func(w io.Writer, stream uint32, _ int64) bool {
		cancel()
		return refuse(w, stream)
	}}
	url, rt := p.start(t)
	_, _, err := call(ctx, newTransport(t, client.Config{Base: rt, Retry: soon}), http.MethodGet, url, "x", nil)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, int64(1), p.seen.Load())
}
