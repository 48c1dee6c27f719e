package middleware

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/spillway-go/spillway/keyfunc"
)

// Match says which requests are meant: those that match every field that is set, each by any of its values. The empty
// Match of a policy matches every request; an empty Exempt exempts none.
type Match struct {
	// Hosts are host names without a port, in any case; "*.example.com" is every name below example.com.
	Hosts []string
	// Routes are [http.ServeMux] patterns, such as "GET /search", "/api/" (everything below) or "/{$}" (the root). They
	// are matched against the request's path and against the pattern of the framework's route; either is a match. A path
	// that routers read in different ways, with doubled slashes, dot segments or escapes, matches in any of these ways as a
	// Match, and as an Exempt only by the route that it reaches.
	Routes []string
	// Methods are request methods in upper case; GET includes HEAD.
	Methods []string
	// CIDRs are addresses or networks that hold the client, as Config.ClientIP finds it. A client that cannot be told is
	// in none.
	CIDRs []string
	// If is asked last.
	If func(*keyfunc.Request) bool
}

func (m *Match) empty() bool {
	return len(m.Hosts) == 0 && len(m.Routes) == 0 && len(m.Methods) == 0 && len(m.CIDRs) == 0 && m.If == nil
}

// rule is a Match made ready.
type rule struct {
	empty    bool
	routed   bool
	hosts    []string // lower case
	suffixes []string // ".example.com"
	methods  []string
	networks []netip.Prefix
	cond     func(*keyfunc.Request) bool
}

// matcher decides which of a stage's rules a request matches.
type matcher struct {
	rules  []rule
	free   []uint64 // a bit for every rule without routes
	strict []uint64 // a bit for every exemption
	routes routes
	routed bool // some rule has routes
	hosted bool // some rule or route looks at the host
}

// add compiles m as the next rule and returns its index. The rule of an exemption is strict: where routers may disagree
// about a path, the path does not exempt.
func (x *matcher) add(m *Match, strict bool) (int, error) {
	k := len(x.rules)
	r := rule{empty: m.empty(), routed: len(m.Routes) > 0, methods: m.Methods, cond: m.If}
	var errs []error
	for _, pattern := range m.Routes {
		hosted, err := x.routes.add(k, pattern)
		if err != nil {
			errs = append(errs, err)
		}
		x.hosted = x.hosted || hosted
	}
	for _, host := range m.Hosts {
		name, wild := strings.CutPrefix(strings.ToLower(host), "*")
		switch {
		case name == "" || strings.ContainsAny(name, "*/ ") || strings.Contains(name, ":") || wild != strings.HasPrefix(name, "."):
			errs = append(errs, fmt.Errorf("host %q is no host name without a port, and no *.name", host))
		case wild:
			r.suffixes = append(r.suffixes, name)
		default:
			r.hosts = append(r.hosts, name)
		}
	}
	for _, method := range m.Methods {
		if method == "" || strings.ToUpper(method) != method || strings.ContainsAny(method, " \t/") {
			errs = append(errs, fmt.Errorf("method %q is no method in upper case", method))
		}
	}
	for _, text := range m.CIDRs {
		network, err := parseNetwork(text)
		if err != nil {
			errs = append(errs, err)
		}
		r.networks = append(r.networks, network)
	}
	x.rules = append(x.rules, r)
	if k/64 == len(x.free) {
		x.free = append(x.free, 0)
		x.strict = append(x.strict, 0)
	}
	if strict {
		x.strict[k/64] |= 1 << (k % 64)
	}
	if !r.routed {
		x.free[k/64] |= 1 << (k % 64)
	}
	x.routed = x.routed || r.routed
	x.hosted = x.hosted || len(m.Hosts) > 0
	return k, errors.Join(errs...)
}

// parseNetwork reads an address or a network. A mapped one is unmapped, as client addresses are.
func parseNetwork(text string) (netip.Prefix, error) {
	network, err := netip.ParsePrefix(text)
	if err != nil {
		addr, addrErr := netip.ParseAddr(text)
		if addrErr != nil || addr.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("cidr %q is neither an address nor a network", text)
		}
		network = netip.PrefixFrom(addr, addr.BitLen())
	}
	if network.Addr().Is4In6() && network.Bits() >= 96 {
		network = netip.PrefixFrom(network.Addr().Unmap(), network.Bits()-96)
	}
	return network.Masked(), nil
}

// look finds the rules whose routes match r; hits has a bit for every rule.
func (x *matcher) look(r *keyfunc.Request, fw keyfunc.Framework, hits []uint64) (host string) {
	clear(hits)
	if x.hosted {
		host = hostOf(r.Host)
	}
	if !x.routed {
		return host
	}
	w := walk{hits: hits, method: r.Method, host: host}
	plain := x.routes.path(r.Request, w)
	if !plain {
		for k, strict := range x.strict {
			hits[k] &^= strict
		}
	}
	// The route is asked for only where it can add a match: not for routers that match plain paths themselves, and not if
	// everything has matched already.
	mux := fw == nil
	if p, ok := fw.(PathRouted); ok {
		mux = p.PathRouted()
	}
	if mux && plain {
		return host
	}
	for k := range x.rules {
		if x.rules[k].routed && hits[k/64]&(1<<(k%64)) == 0 {
			if pattern := r.Route(); pattern != "" {
				x.routes.route(pattern, mux, w)
			}
			break
		}
	}
	return host
}

// PathRouted is a [keyfunc.Framework] whose routes are ServeMux patterns, so that looking one up cannot add a match to what
// a plain path says.
type PathRouted interface{ PathRouted() bool }

// matches reports whether rule k matches, after look.
func (x *matcher) matches(k int, r *keyfunc.Request, host string, hits []uint64) bool {
	m := &x.rules[k]
	if m.empty {
		return true
	}
	return (!m.routed || hits[k/64]&(1<<(k%64)) != 0) && m.method(r.Method) && m.host(host) && m.network(r) &&
		(m.cond == nil || m.cond(r))
}

func (m *rule) method(got string) bool {
	for _, want := range m.methods {
		if methodMatches(want, got) {
			return true
		}
	}
	return len(m.methods) == 0
}

func (m *rule) host(got string) bool {
	for _, want := range m.hosts {
		if want == got {
			return true
		}
	}
	for _, suffix := range m.suffixes {
		if strings.HasSuffix(got, suffix) && len(got) > len(suffix) {
			return true
		}
	}
	return len(m.hosts) == 0 && len(m.suffixes) == 0
}

func (m *rule) network(r *keyfunc.Request) bool {
	if len(m.networks) == 0 {
		return true
	}
	addr, err := r.ClientIP()
	if err != nil {
		return false
	}
	for _, network := range m.networks {
		if network.Contains(addr) {
			return true
		}
	}
	return false
}

// hostOf returns a Host field without its port, in lower case.
func hostOf(host string) string {
	if strings.IndexByte(host, ':') >= 0 {
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// preflight reports whether r is a CORS preflight (Fetch, "CORS-preflight request"). A browser sends it without a body and
// without credentials; what has either is a request like others.
func preflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && len(r.Header["Origin"]) == 1 && len(r.Header["Access-Control-Request-Method"]) == 1 &&
		r.ContentLength == 0 && len(r.TransferEncoding) == 0 && len(r.Header["Authorization"]) == 0 &&
		len(r.Header["Cookie"]) == 0 && len(r.Header["Upgrade"]) == 0
}
