package keyfunc

import (
	"bytes"
	"hash"
	"net/http"
	"net/netip"
	"strings"
	"unsafe"
)

// Framework is what an adapter knows of a request beyond [http.Request].
type Framework interface {
	// Route returns the matched pattern, in the framework's own spelling or that of [http.ServeMux], and "" if nothing
	// matched. It is called at most once per request, and only when somebody asks.
	Route() string
	// Param returns the path parameter of that name, or "".
	Param(name string) string
	// Value returns what a middleware has stored in the framework's context under that name.
	Value(name string) (any, bool)
}

// Request is a request as a [Func] sees it: the [http.Request] itself, with the route, the client address and a buffer
// for keys. It is made ready by [Request.Reset] and reused for other requests afterwards, so a Func must not keep it.
// It is not safe for concurrent use.
type Request struct {
	*http.Request

	fw        Framework
	trust     *ClientIP
	route     string
	hasRoute  bool
	buf       []byte // all keys; only ever appended to while one request is served
	raw       []byte // scratch
	sum       [32]byte
	frozen    string
	gen       uint32
	mac       hash.Hash // set while an HMAC runs
	probe     *probe    // set by Check
	clients   [2]client // by the guard's trust, and by the other one asked last
	ip        ipKey
	ipProblem error
	ignored   bool
}

// client is a client address as resolved by one trust; by is nil if nothing was.
type client struct {
	by   *ClientIP
	addr netip.Addr
	err  error
}

// ipKey is the last key made of a client address, for the usual case of several policies with IP().
type ipKey struct {
	by     *ClientIP
	v4, v6 uint8
	key    Key
}

// maxKept is the largest buffer a Request keeps for the next request, in bytes.
const maxKept = 4096

// Reset makes r ready for req. fw is what the adapter knows and may be nil; trust says whom to believe about the client
// address, nil means the zero [Trust]. Keys made before are void. It does not allocate.
func (r *Request) Reset(req *http.Request, fw Framework, trust *ClientIP) {
	if trust == nil {
		trust = byPeer
	}
	r.Request, r.fw, r.trust = req, fw, trust
	r.route, r.hasRoute, r.frozen = "", false, ""
	r.buf, r.raw = reuse(r.buf), reuse(r.raw)
	r.gen++
	r.mac, r.probe = nil, nil
	r.clients[0].by, r.clients[1].by, r.ip.by = nil, nil, nil
	r.ipProblem, r.ignored = nil, false
}

// Release lets go of the request that was served, for a Request that goes back into a pool. Keys made of it are void
// with the next Reset.
func (r *Request) Release() { r.Request, r.fw, r.trust, r.frozen, r.ipProblem = nil, nil, nil, "", nil }

func reuse(b []byte) []byte {
	if cap(b) > maxKept {
		return nil
	}
	return b[:0]
}

// Key makes the key kind=value. It does not allocate. The kind is 1 to 16 of a-z, 0-9 and _, beginning with a letter;
// the value is any bytes. An empty value or a bad kind gives a Key that is no identity, so that
//
//	return r.Key("user", id), nil
//
// is safe: without an id the request has no key ([ErrNoKey]), and a bad kind is an error wrapping [limiter.ErrInvalid].
// See [Key.Err].
func (r *Request) Key(kind, value string) Key { return makeKey(r, kind, value) }

// Resolve calls f and checks what it returns: exactly one of the Key and the error is set, and the Key is one of this
// request. Whoever calls a Func and uses its Key should do it through Resolve.
func (r *Request) Resolve(f Func) (Key, error) {
	if r.probe != nil {
		return r.probeFunc(f)
	}
	return r.check(f(r))
}

func (r *Request) check(k Key, err error) (Key, error) {
	if err == nil {
		err = k.Err()
	}
	if err != nil {
		return Key{}, err
	}
	if k.r != r {
		return Key{}, errStale
	}
	return k, nil
}

// join writes the keys of funcs one after another with | between them.
func (r *Request) join(funcs []Func) (Key, error) {
	var few [8]Key
	parts := few[:0]
	if len(funcs) > len(few) {
		parts = make([]Key, 0, len(funcs))
	}
	start, whole := len(r.buf), true
	for i, f := range funcs {
		if i > 0 {
			r.buf = append(r.buf, '|')
		}
		lo := len(r.buf)
		k, err := r.Resolve(f)
		if err != nil {
			return Key{}, err
		}
		for _, p := range parts {
			if sharesKind(p.text(), k.text()) {
				return Key{}, errSameKind
			}
		}
		// A function that made several keys, or returned one from before, leaves gaps.
		whole = whole && int(k.lo) == lo && int(k.hi) == len(r.buf)
		parts = append(parts, k)
	}
	if whole {
		return r.since(start), nil
	}
	start = len(r.buf)
	for i, p := range parts {
		if i > 0 {
			r.buf = append(r.buf, '|')
		}
		r.buf = append(r.buf, r.buf[p.lo:p.hi]...)
	}
	return r.since(start), nil
}

var errSameKind = invalid("Join: the same kind twice")

// sharesKind tells whether two encoded keys have a kind in common.
func sharesKind(a, b []byte) bool {
	for len(a) > 0 {
		var part []byte
		part, a = cutPart(a)
		for rest := b; len(rest) > 0; {
			var other []byte
			other, rest = cutPart(rest)
			if bytes.Equal(kindOf(part), kindOf(other)) {
				return true
			}
		}
	}
	return false
}

// Freeze returns an immutable copy of all keys made so far, from which [Key.In] cuts each. It allocates once, and not
// again until another key is made.
func (r *Request) Freeze() string {
	if len(r.frozen) != len(r.buf) { // the buffer only grows, so equal length is equal content
		r.frozen = string(r.buf)
	}
	return r.frozen
}

// Borrow is Freeze without the copy: the string is overwritten once r is Reset or Released, so it is only for callees
// that keep no part of it.
func (r *Request) Borrow() string { return unsafe.String(unsafe.SliceData(r.buf), len(r.buf)) }

// Route returns the pattern of the matched route in the framework's own spelling, and "" if none matched. A method at the
// start, as [http.ServeMux] patterns may have it, is removed; a host is kept. Without a framework it is the Pattern of
// the [http.Request], which ServeMux sets only on what it serves itself. The framework is asked once, and not before the
// first call: a flood of requests for unknown paths need not pay for routing.
func (r *Request) Route() string {
	if !r.hasRoute {
		pattern := ""
		if r.fw != nil {
			pattern = r.fw.Route()
		} else {
			pattern = r.Pattern
		}
		r.route, r.hasRoute = withoutMethod(pattern), true
	}
	return r.route
}

// withoutMethod removes "GET " from "GET a.example/x". A pattern that begins with a slash has no method, whatever blanks
// it has further on.
func withoutMethod(pattern string) string {
	if pattern == "" || pattern[0] == '/' {
		return pattern
	}
	if i := strings.IndexAny(pattern, " \t/"); i > 0 && pattern[i] != '/' {
		return strings.TrimLeft(pattern[i:], " \t")
	}
	return pattern
}

// Param returns the path parameter of that name as the framework matched it, or [http.Request.PathValue] without one.
func (r *Request) Param(name string) string {
	if r.fw != nil {
		return r.fw.Param(name)
	}
	return r.PathValue(name)
}

// Value returns what a middleware has stored under name: in the framework's context (Set of Gin and Echo) or, failing
// that, in the context of the [http.Request] with the plain string as its key. Values under keys of other types, the
// usual way in net/http, are for the functions given to [User] and [Tenant].
func (r *Request) Value(name string) (any, bool) {
	if r.fw != nil {
		if v, ok := r.fw.Value(name); ok {
			return v, true
		}
	}
	v := r.Context().Value(name)
	return v, v != nil
}

// ClientIP returns the client address as the guard's [Trust] finds it. On an error ([ErrNoPeer], [ErrNoClientIP],
// [ErrInvalidForwarded], [ErrTooFewHops]) there is none: the fallback that [IP] may count by is a proxy, and must not be
// mistaken for a client by a list of exempt addresses. The address is found once per request.
func (r *Request) ClientIP() (netip.Addr, error) {
	addr, err := r.client(r.trust)
	if err != nil {
		return netip.Addr{}, err
	}
	return addr, nil
}

// client resolves the client address by c, or remembers it. With an error the address is the fallback.
func (r *Request) client(c *ClientIP) (netip.Addr, error) {
	at := &r.clients[0]
	if c != r.trust {
		at = &r.clients[1]
	}
	if at.by != c {
		var ignored bool
		at.addr, ignored, at.err = c.resolve(r.Request)
		at.by = c
		r.ignored = r.ignored || ignored
	}
	return at.addr, at.err
}

// Fallback tells why a key of this request was made of the nearest verified hop instead of the client address
// ([ErrInvalidForwarded], [ErrTooFewHops]), and is nil if none was. It is for the guard to count: such requests share the
// quota of a proxy, and a rising number means a wrong configuration or somebody trying headers.
func (r *Request) Fallback() error { return r.ipProblem }

// Ignored reports whether the peer sent the header that the [Trust] reads and was not believed, as it is no trusted proxy:
// somebody trying, or a proxy that the trust forgets, in which case all its clients share one key.
func (r *Request) Ignored() bool { return r.ignored }
