package serve

import (
	"net/http"
	"net/http/httputil"
	"net/netip"
	"slices"
	"strings"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
)

// peers knows which senders are believed about the way that a request has come, as the document says in client_ip.
type peers struct {
	strategy keyfunc.Strategy
	header   string            // of strategy header
	client   *keyfunc.ClientIP // nil: nobody is believed
	probe    *keyfunc.ClientIP // finds probed in probeHeader where the peer is believed
}

// probeHeader makes the list of trusted proxies answer for a single peer.
const probeHeader = "X-Probe"

var (
	probed = netip.MustParseAddr("192.0.2.1")
	probes = http.Header{probeHeader: {probed.String()}}
)

func newPeers(c *config.ClientIP) *peers {
	p := &peers{}
	if c == nil || c.Strategy == "" || keyfunc.Strategy(c.Strategy) == keyfunc.RemoteAddr {
		return p
	}
	trust := keyfunc.Trust{
		Strategy: keyfunc.Strategy(c.Strategy), Count: c.Count, Header: c.Header, TrustedProxies: c.TrustedProxies, TrustUnix: c.TrustUnix,
		AllowTrustAll: c.AllowTrustAll,
	}
	client, err := keyfunc.NewClientIP(trust)
	if err != nil {
		return p // never: the document is in force
	}
	p.strategy, p.header, p.client = trust.Strategy, http.CanonicalHeaderKey(c.Header), client
	if trust.Strategy == keyfunc.XForwardedForCount && len(trust.TrustedProxies) == 0 {
		return p // any peer is believed
	}
	trust.Strategy, trust.Count, trust.Header = keyfunc.SingleHeader, 0, probeHeader
	p.probe, _ = keyfunc.NewClientIP(trust)
	return p
}

// believe reports whether the sender of r is one of the proxies in front.
func (p *peers) believe(r *http.Request) bool {
	switch {
	case p.client == nil:
		return false
	case p.probe == nil:
		return true
	}
	addr, err := p.probe.Resolve(&http.Request{RemoteAddr: r.RemoteAddr, Header: probes})
	return err == nil && addr == probed
}

// forward writes the fields that tell the upstream of the way a request has come. What a sender says who is not believed
// is dropped, so that an upstream which believes this proxy is not deceived by its clients.
func (p *peers) forward(r *httputil.ProxyRequest) {
	in, out := r.In.Header, r.Out.Header
	if !p.believe(r.In) {
		p.drop(out)
		p.drop(r.Out.Trailer)
		r.SetXForwarded()
		return
	}
	p.drop(r.Out.Trailer)
	switch p.strategy {
	case keyfunc.XForwardedFor, keyfunc.XForwardedForCount:
		out["X-Forwarded-For"] = in["X-Forwarded-For"]
	default: // its X-Forwarded-For may be the client's own
		delete(out, "X-Forwarded-For")
		if addr, err := p.client.Resolve(r.In); err == nil && addr != peerOf(r.In) {
			out["X-Forwarded-For"] = []string{addr.String()}
		}
	}
	r.SetXForwarded()
	for _, name := range []string{"X-Forwarded-Host", "X-Forwarded-Proto"} {
		if lines := in[name]; len(lines) > 0 {
			out[name] = lines
		}
	}
	if p.strategy == keyfunc.Forwarded {
		out["Forwarded"] = []string{strings.Join(append(append([]string(nil), in["Forwarded"]...), element(r.In)), ", ")}
	}
}

// clientFields are those in which proxies and networks of delivery name the client's address.
var clientFields = []string{"X-Real-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "X-Client-Ip", "X-Cluster-Client-Ip"}

// drop removes all that tells of the way. Many an upstream reads - and _ in a name as the same.
func (p *peers) drop(h http.Header) {
	for name := range h {
		plain := name
		if strings.IndexByte(name, '_') >= 0 {
			plain = http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
		}
		if plain == "Forwarded" || strings.HasPrefix(plain, "X-Forwarded-") || slices.Contains(clientFields, plain) || p.header != "" && plain == p.header {
			delete(h, name)
		}
	}
}

func peerOf(r *http.Request) netip.Addr {
	p, _ := netip.ParseAddrPort(r.RemoteAddr)
	return p.Addr().Unmap().WithZone("")
}

// element is what this proxy adds to Forwarded (RFC 7239).
func element(r *http.Request) string {
	peer := "unknown"
	if addr := peerOf(r); addr.Is4() {
		peer = addr.String()
	} else if addr.IsValid() {
		peer = `"[` + addr.String() + `]"`
	}
	proto := "http"
	if r.TLS != nil {
		proto = "https"
	}
	return "for=" + peer + ";proto=" + proto
}

const degradedField = "X-Ratelimit-Degraded"

// forwardMode tells the upstream that a request proceeds degraded, as it is there that something can be left out. What a
// client says of that is dropped, also where '_' stands for '-'.
func forwardMode(r *httputil.ProxyRequest) {
	h := r.Out.Header
	for name := range h {
		if http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-")) == degradedField {
			delete(h, name)
		}
	}
	if info, ok := degrade.FromContext(r.In.Context()); ok {
		h[degradedField] = []string{info.Mode}
	}
}
