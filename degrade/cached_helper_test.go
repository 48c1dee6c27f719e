package degrade_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// cacheRoute is what an adapter knows.
type cacheRoute string

func (r cacheRoute) Route() string            { return string(r) }
func (r cacheRoute) Param(string) string      { return "" }
func (r cacheRoute) Value(string) (any, bool) { return nil, false }

// site is a policy with copies in front of an origin, as a guard uses them.
type site struct {
	h      degrade.Handler
	policy string
	route  cacheRoute
	key    keyfunc.Func // of the policy; nil: it names nobody
	origin http.HandlerFunc
}

func newSite(t testing.TB, cfg degrade.PagesConfig, origin http.HandlerFunc) *site {
	t.Helper()
	h := degrade.Cached(degrade.NewPages(cfg))
	require.NoError(t, degrade.Validate(h))
	return &site{h: h, policy: "default", route: "/", origin: origin}
}

func (s *site) request(r *http.Request) *keyfunc.Request {
	k := new(keyfunc.Request)
	k.Reset(r, s.route, nil)
	return k
}

func (s *site) keyOf(r *http.Request) limiter.Key {
	if s.key == nil {
		return limiter.Key{}
	}
	k, err := s.request(r).Resolve(s.key)
	if err != nil {
		return limiter.Key{}
	}
	return limiter.Key{Space: s.policy, ID: k.String()}
}

// allow serves an allowed request. ok is what a guard says of the handler.
func (s *site) allow(r *http.Request) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	s.serve(rec, r)
	return rec
}

func (s *site) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("RateLimit", `"default";r=9;t=1`) // as a guard does before the handler
	w, done := s.h.(degrade.Recorder).Record(w, s.request(r), s.policy, s.keyOf(r).ID)
	ok := false
	defer func() {
		if done != nil {
			done(ok)
		}
		if p := recover(); p != nil && p != http.ErrAbortHandler {
			panic(p)
		}
	}()
	s.origin(w, r)
	ok = true
}

// refuse serves a refused request; nil is a plain refusal.
func (s *site) refuse(r *http.Request, cause ...degrade.Cause) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	rec.Header().Set("RateLimit", `"default";r=0;t=60`)
	rec.Header().Set("Retry-After", "60")
	d := &degrade.Denial{Policy: s.policy, Status: 429, RetryAfter: time.Minute, Mode: degrade.ModeCache, Request: s.request(r), Key: s.keyOf(r), Identity: s.keyOf(r).ID}
	if len(cause) > 0 {
		d.Cause = cause[0]
	}
	if s.h.Degrade(rec, r, d) != degrade.Done {
		return nil
	}
	return rec
}

// fetch makes a request with fields "Name: value".
func fetch(target string, fields ...string) *http.Request {
	return cacheRequest("GET", target, fields...)
}

func cacheRequest(method, target string, fields ...string) *http.Request {
	r := httptest.NewRequest(method, target, nil)
	setFields(r.Header, fields)
	return r
}

func setFields(h http.Header, fields []string) {
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		h.Add(name, value)
	}
}

// answers is an origin with one response for all.
func answers(status int, body string, fields ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		setFields(w.Header(), fields)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// copyOf is that of a copy, or "refused".
func copyOf(rec *httptest.ResponseRecorder) string {
	if rec == nil {
		return "refused"
	}
	return rec.Body.String()
}

// byIdentity is a partition that somebody has authenticated.
func byIdentity(r *keyfunc.Request) (keyfunc.Key, error) {
	switch id := r.Header.Get("X-Identity"); id {
	case "panic":
		panic("boom")
	case "skip":
		return keyfunc.Key{}, keyfunc.ErrSkip
	default:
		return r.Key("user", id), nil
	}
}
