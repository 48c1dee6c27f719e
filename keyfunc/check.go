package keyfunc

import (
	"errors"
	"net/http"
	"net/url"
	"slices"

	"github.com/spillway-go/spillway/limiter"
)

// Check finds configuration errors of f before traffic. It calls f once, with the request GET / of the peer
// 192.0.2.1:1234 and nothing else, and returns only what wraps [limiter.ErrInvalid]; that this request has no key, or that
// a function of the application panics on it, proves nothing. All alternatives of [First] and all parts of [Join] are
// looked at. A [Join] whose parts might have a kind in common for some request is refused here.
func Check(f Func) error {
	_, err := Kinds(f)
	return err
}

// Kinds returns the kinds of the keys that f asks for, as far as a [Check] shows them: all alternatives of [First] and all
// parts of [Join], in that order. The error is that of Check.
func Kinds(f Func) ([]string, error) {
	if f == nil {
		return nil, invalid("no key function")
	}
	r := new(Request)
	r.Reset(&http.Request{
		Method: http.MethodGet, URL: &url.URL{Path: "/"}, RequestURI: "/", Host: "example.com",
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody,
		RemoteAddr: "192.0.2.1:1234",
	}, nil, nil)
	r.probe = new(probe)
	if _, err := r.Resolve(f); errors.Is(err, limiter.ErrInvalid) {
		return nil, err
	}
	return r.probe.kinds, nil
}

// probe is the state of a Check: the kinds of all keys asked for so far, those of empty values too.
type probe struct{ kinds []string }

// probeFunc is Resolve while checking. A panic is the application's answer to a request that has nothing of what it
// expects; it must not hide the other parts of a Join.
func (r *Request) probeFunc(f Func) (k Key, err error) {
	defer func() {
		if recover() != nil {
			k, err = Key{}, ErrNoKey
		}
	}()
	return r.check(f(r))
}

// probeAll calls every function and returns the first key, else the first error, one about the configuration before all
// others.
func (r *Request) probeAll(funcs []Func, each func(kinds []string)) (Key, error) {
	var found Key
	var firstErr, bad error
	for _, f := range funcs {
		from := len(r.probe.kinds)
		k, err := r.Resolve(f)
		switch {
		case err == nil && found.IsZero():
			found = k
		case bad == nil && errors.Is(err, limiter.ErrInvalid):
			bad = err
		case firstErr == nil:
			firstErr = err
		}
		each(r.probe.kinds[from:])
	}
	if bad != nil {
		return Key{}, bad
	}
	if found.IsZero() {
		return Key{}, firstErr
	}
	return found, nil
}

func (r *Request) probeFirst(funcs []Func) (Key, error) {
	return r.probeAll(funcs, func([]string) {})
}

func (r *Request) probeJoin(funcs []Func) (Key, error) {
	var seen []string
	var twice error
	k, err := r.probeAll(funcs, func(kinds []string) {
		for _, kind := range kinds {
			if slices.Contains(seen, kind) {
				twice = invalid("Join: the kind %q may occur twice", kind)
			}
		}
		seen = append(seen, kinds...)
	})
	if twice != nil && !errors.Is(err, limiter.ErrInvalid) {
		return Key{}, twice
	}
	return k, err
}
