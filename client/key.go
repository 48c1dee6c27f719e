package client

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// Host is the key host=H of where a request goes: the host of its URL, with the port if it is not the scheme's own, so http and https of
// one host are one. It is spelled in one way: in lower case, without a dot at the end, an address in its shortest form and as IPv4 where
// it is mapped, a port without zeros before it. What only a resolver knows stays several keys: localhost and 127.0.0.1, an alias, a name
// in Unicode and in Punycode. A Host header that says otherwise does not count.
func Host() keyfunc.Func {
	return func(r *keyfunc.Request) (keyfunc.Key, error) {
		return r.Key("host", hostOf(r.URL)), nil
	}
}

func hostOf(u *url.URL) string {
	if u == nil {
		return ""
	}
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.Unmap().String()
	}
	port := u.Port()
	if whole := strings.TrimLeft(port, "0"); whole != "" {
		port = whole
	}
	switch {
	case host == "", port == "", port == "80" && strings.EqualFold(u.Scheme, "http"), port == "443" && strings.EqualFold(u.Scheme, "https"):
		return host
	default:
		return net.JoinHostPort(host, port)
	}
}

// Routes is the key route=P of the pattern that a request matches, out of those of a partner's API: "POST /messages",
// "GET /messages/{id}", "api.example.com/batch/", as [http.ServeMux] reads them. Requests that match none share "-". A
// template and never the path, or each message would have a limit of its own. Join it with [Host] where there are several
// partners. A pattern that is malformed or in conflict with another one is an error wrapping [limiter.ErrInvalid].
func Routes(patterns ...string) keyfunc.Func {
	mux := http.NewServeMux()
	for _, p := range patterns {
		if err := register(mux, p); err != nil {
			return func(*keyfunc.Request) (keyfunc.Key, error) { return keyfunc.Key{}, err }
		}
	}
	return func(r *keyfunc.Request) (keyfunc.Key, error) {
		asked := http.Request{Method: or(r.Method, http.MethodGet), URL: r.URL, Host: r.Host}
		if r.URL != nil && r.URL.Host != "" {
			asked.Host = r.URL.Host
		}
		if asked.URL == nil {
			return r.Key("route", "-"), nil
		}
		_, pattern := mux.Handler(&asked)
		return r.Key("route", or(pattern, "-")), nil
	}
}

// register adds a pattern: ServeMux panics on what it cannot read.
func register(mux *http.ServeMux, pattern string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: Routes: %v", limiter.ErrInvalid, p)
		}
	}()
	mux.Handle(pattern, http.NotFoundHandler())
	return nil
}
