package keyfunc

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// User is the key user=f(r), where f says who has been authenticated and returns "" for nobody. Ask only what
// authentication has verified: see the package comment. A nil f is an error wrapping [limiter.ErrInvalid].
func User(f func(*Request) string) Func { return named("User", "user", f) }

// Tenant is the key tenant=f(r), where f returns the verified tenant and "" for none. A nil f is an error wrapping
// [limiter.ErrInvalid].
func Tenant(f func(*Request) string) Func { return named("Tenant", "tenant", f) }

func named(constructor, kind string, f func(*Request) string) Func {
	if f == nil {
		return fail(invalid("%s: function is nil", constructor))
	}
	return func(r *Request) (Key, error) {
		if r.probe != nil {
			return r.Key(kind, r.probeString(f)), nil
		}
		return r.Key(kind, f(r)), nil
	}
}

// probeString calls f while checking. The kind is known even if f cannot cope with the request.
func (r *Request) probeString(f func(*Request) string) (s string) {
	defer func() {
		if recover() != nil {
			s = ""
		}
	}()
	return f(r)
}

// Global is the one key all=-, for a quota of the whole service.
func Global() Func {
	return func(r *Request) (Key, error) { return r.Key("all", "-"), nil }
}

// Header is the key made of a request header; its kind is [KindOf] the name. An absent or empty header is no key, and
// neither is one of several lines: proxies disagree on which line counts, so the sender could choose. Whoever sets the
// header chooses the key, so use one that a gateway of yours sets and overwrites. A name that is no field name is an error
// wrapping [limiter.ErrInvalid]; so is Host, which net/http keeps elsewhere and which should be checked against a list.
func Header(name string) Func {
	if !validToken(name) {
		return fail(invalid("Header: %q is no field name", name))
	}
	canonical := canonicalHeader(name)
	if canonical == "Host" {
		return fail(invalid("Header: Host is not among the headers; use a function that checks it against a list"))
	}
	kind := KindOf(name)
	return func(r *Request) (Key, error) {
		value := ""
		if lines := r.Header[canonical]; len(lines) == 1 {
			value = trimBlanks(lines[0])
		}
		return r.Key(kind, value), nil
	}
}

// Cookie is the key made of the cookie of that name; its kind is [KindOf] the name. An absent or empty cookie is no key,
// and neither are two of that name, of which the sender could otherwise choose. The sender chooses the value, so this is
// for cookies that are verified before. A name that is no token is an error wrapping [limiter.ErrInvalid].
func Cookie(name string) Func {
	if !validToken(name) {
		return fail(invalid("Cookie: %q is no cookie name", name))
	}
	kind := KindOf(name)
	return func(r *Request) (Key, error) {
		value := ""
		// The parser of net/http, so that the key is made of what the application will read.
		if cookies := r.CookiesNamed(name); len(cookies) == 1 {
			value = cookies[0].Value
		}
		return r.Key(kind, value), nil
	}
}

// Query is the key made of the query parameter of that name; its kind is [KindOf] the name. An absent or empty parameter
// is no key, and neither are two of that name or one that is wrongly escaped, of which the sender could otherwise choose.
// The sender chooses the value. An empty name is an error wrapping [limiter.ErrInvalid].
func Query(name string) Func {
	if name == "" {
		return fail(invalid("Query: empty name"))
	}
	kind := KindOf(name)
	return func(r *Request) (Key, error) {
		if r.URL == nil {
			return r.Key(kind, ""), nil
		}
		return r.Key(kind, onlyQuery(r.URL.RawQuery, name)), nil
	}
}

// onlyQuery returns the value of name in query if it is there exactly once. It reads as [url.ParseQuery] does, without
// its map.
func onlyQuery(query, name string) string {
	found, value := false, ""
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		if strings.IndexByte(pair, ';') >= 0 { // ParseQuery drops it
			continue
		}
		key, raw, _ := strings.Cut(pair, "=")
		if key, err := url.QueryUnescape(key); err != nil || key != name {
			continue
		}
		unescaped, err := url.QueryUnescape(raw)
		if found || err != nil {
			return ""
		}
		found, value = true, unescaped
	}
	return value
}

// Param is the key made of a path parameter, such as the id of /users/{id}; its kind is [KindOf] the name. An absent or
// empty one is no key. Join it with what limits the number of keys one sender can make. An empty name is an error
// wrapping [limiter.ErrInvalid].
func Param(name string) Func {
	if name == "" {
		return fail(invalid("Param: empty name"))
	}
	kind := KindOf(name)
	return func(r *Request) (Key, error) { return r.Key(kind, r.Param(name)), nil }
}

// Value is the key made of what a middleware has stored under name, see [Request.Value]; its kind is [KindOf] the name.
// Strings and integers make a key, an integer by its decimal digits. Anything else is no key: a claim of another type
// than its reader expects has no one spelling. An empty name is an error wrapping [limiter.ErrInvalid].
func Value(name string) Func {
	if name == "" {
		return fail(invalid("Value: empty name"))
	}
	kind := KindOf(name)
	return func(r *Request) (Key, error) {
		v, _ := r.Value(name)
		if s, ok := v.(string); ok {
			return r.Key(kind, s), nil
		}
		return makeKey(r, kind, appendInteger(r, v)), nil
	}
}

// appendInteger returns the digits of an integer in the scratch buffer, nothing for other types.
func appendInteger(r *Request, v any) []byte {
	r.raw = r.raw[:0]
	switch n := v.(type) {
	case int:
		r.raw = strconv.AppendInt(r.raw, int64(n), 10)
	case int64:
		r.raw = strconv.AppendInt(r.raw, n, 10)
	case int32:
		r.raw = strconv.AppendInt(r.raw, int64(n), 10)
	case uint:
		r.raw = strconv.AppendUint(r.raw, uint64(n), 10)
	case uint64:
		r.raw = strconv.AppendUint(r.raw, n, 10)
	case uint32:
		r.raw = strconv.AppendUint(r.raw, uint64(n), 10)
	}
	return r.raw
}

// Route is the key route=METHOD SP pattern, where the pattern is the router's own ([Request.Route]) and never the path:
// paths have many spellings and parameters, and each would be a fresh quota. HEAD and no method count as GET, methods
// outside the nine of RFC 9110 and RFC 5789 as OTHER, for net/http accepts any token. Requests without a route share the
// pattern "-", so that probing for paths is limited as well.
func Route() Func { return routeKey }

func routeKey(r *Request) (Key, error) {
	pattern := r.Route()
	if pattern == "" {
		pattern = "-"
	}
	r.raw = append(append(append(r.raw[:0], routeMethod(r.Method)...), ' '), pattern...)
	return makeKey(r, "route", r.raw), nil
}

func routeMethod(method string) string {
	switch method {
	case "", http.MethodHead:
		return http.MethodGet
	case http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return "OTHER"
}
