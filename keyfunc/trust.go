package keyfunc

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spillway-go/spillway/limiter"
)

// Strategy is where the client address is read. Each reads one thing and never falls through to another.
type Strategy string

// Strategies of [Trust].
const (
	// RemoteAddr takes the peer of the connection and reads no header. The empty Strategy is RemoteAddr.
	RemoteAddr Strategy = "remote_addr"
	// XForwardedFor walks X-Forwarded-For from the right to the first address outside Trust.TrustedProxies.
	XForwardedFor Strategy = "xff"
	// XForwardedForCount takes the Trust.Count-th entry of X-Forwarded-For from the right. With no TrustedProxies any peer
	// is believed; then only the network keeps strangers from connecting directly.
	XForwardedForCount Strategy = "xff_count"
	// Forwarded walks the Forwarded header (RFC 7239) as XForwardedFor walks its own.
	Forwarded Strategy = "forwarded"
	// SingleHeader takes the one address in Trust.Header, such as X-Real-IP or CF-Connecting-IP.
	SingleHeader Strategy = "header"
)

// OnKeyError is what becomes of a request whose client address cannot be told.
type OnKeyError string

// Choices of [Trust].
const (
	// NearestHop counts by the last hop that was verified: the requests share the quota of that proxy. Without such a hop
	// there is no key. The empty OnKeyError is NearestHop.
	NearestHop OnKeyError = "nearest"
	// DenyRequest makes no key; the policy says what becomes of requests without one.
	DenyRequest OnKeyError = "deny"
	// AllowRequest lets the request pass the policy uncounted, see [ErrSkip]. It is for trials: any sender can cause it.
	AllowRequest OnKeyError = "allow"
)

// Trust says whom to believe about the client address. The zero Trust believes nobody: the client is the peer of the
// connection. Behind proxies, list their addresses, and nothing else: a client that shares a trusted network, a private
// one for example, can pass for anybody.
type Trust struct {
	Strategy       Strategy   // where the address is read; default RemoteAddr
	Count          int        // XForwardedForCount: how many proxies append to the header, 1…100; else 0
	Header         string     // SingleHeader: its name; neither X-Forwarded-For nor Forwarded nor Host; else ""
	TrustedProxies []string   // addresses and CIDRs of the proxies; host bits are masked, mapped IPv4 is IPv4
	TrustUnix      bool       // also believe peers of a unix socket, whose RemoteAddr is "", @name or a path
	IPv6Prefix     int        // clients are counted by networks of so many bits, 32…128; 0 is 64
	IPv4Prefix     int        // likewise, 8…32; 0 is 32
	NAT64Prefixes  []string   // translation prefixes (RFC 6052) such as 64:ff9b::/96: clients in them are counted by the IPv4 address inside
	OnKeyError     OnKeyError // what to do if the address cannot be told; default NearestHop
	AllowTrustAll  bool       // accept 0.0.0.0/0 and ::/0 as trusted: every sender can then pass for anybody
}

// Bounds of Trust.
const (
	minIPv4Prefix  = 8
	minIPv6Prefix  = 32 // shorter would put whole providers into one bucket
	maxProxies     = 100
	wideIPv4Prefix = 8 // shorter trusted ranges are warned of
	wideIPv6Prefix = 16
)

// A TrustError is one thing wrong with a [Trust]. It wraps [limiter.ErrInvalid].
type TrustError struct {
	Code  string // trust_all, bad_trusted_proxy, bad_prefix, bad_count, bad_header, bad_strategy or bad_on_key_error
	Field string // of Trust, with the index where it is a list, such as "TrustedProxies[2]"
	Value string // what stands there
	Want  string // what should
}

// Error returns field, value, what is wanted and the code.
func (e *TrustError) Error() string {
	return fmt.Sprintf("keyfunc: Trust.%s is %q: %s (%s)", e.Field, e.Value, e.Want, e.Code)
}

// Unwrap returns [limiter.ErrInvalid].
func (e *TrustError) Unwrap() error { return limiter.ErrInvalid }

// NewClientIP checks and compiles t. The error joins a [*TrustError] for everything that is wrong.
func NewClientIP(t Trust) (*ClientIP, error) {
	var errs []error
	bad := func(code, field, value, want string) {
		errs = append(errs, &TrustError{Code: code, Field: field, Value: value, Want: want})
	}
	c := &ClientIP{strategy: t.Strategy, count: t.Count, onKeyError: t.OnKeyError, trustUnix: t.TrustUnix, v4: 32, v6: 64}

	switch t.Strategy {
	case "":
		c.strategy = RemoteAddr
	case RemoteAddr, XForwardedFor, XForwardedForCount, Forwarded, SingleHeader:
	default:
		bad("bad_strategy", "Strategy", string(t.Strategy), "want remote_addr, xff, xff_count, forwarded or header")
	}
	switch t.OnKeyError {
	case "":
		c.onKeyError = NearestHop
	case NearestHop, DenyRequest, AllowRequest:
	default:
		bad("bad_on_key_error", "OnKeyError", string(t.OnKeyError), "want nearest, deny or allow")
	}

	c.peerOnly = c.strategy == RemoteAddr

	// A count or a header without its strategy is a wish that would be ignored: the author believes in another setting.
	if t.Strategy == XForwardedForCount && (t.Count < 1 || t.Count > maxProxies) {
		bad("bad_count", "Count", fmt.Sprint(t.Count), "want 1…100 with strategy xff_count")
	} else if t.Strategy != XForwardedForCount && t.Count != 0 {
		bad("bad_count", "Count", fmt.Sprint(t.Count), "want 0 without strategy xff_count")
	}
	switch {
	case t.Strategy != SingleHeader && t.Header != "":
		bad("bad_header", "Header", t.Header, `want "" without strategy header`)
	case t.Strategy == SingleHeader && !validToken(t.Header):
		bad("bad_header", "Header", t.Header, "want a field name")
	case t.Strategy == SingleHeader:
		c.header = canonicalHeader(t.Header)
		if c.header == "X-Forwarded-For" || c.header == "Forwarded" {
			bad("bad_header", "Header", t.Header, "is a list; use strategy xff or forwarded")
		} else if c.header == "Host" {
			bad("bad_header", "Header", t.Header, "names no client")
		}
	}

	if t.IPv4Prefix != 0 {
		c.v4 = prefixBits(&errs, "IPv4Prefix", t.IPv4Prefix, minIPv4Prefix, 32)
	}
	if t.IPv6Prefix != 0 {
		c.v6 = prefixBits(&errs, "IPv6Prefix", t.IPv6Prefix, minIPv6Prefix, 128)
	}
	for i, s := range t.TrustedProxies {
		field := fmt.Sprintf("TrustedProxies[%d]", i)
		p, ok := parseRange(s)
		if !ok {
			bad("bad_trusted_proxy", field, s, "want an address or CIDR without zone")
			continue
		}
		if p.Bits() == 0 && !t.AllowTrustAll {
			bad("trust_all", field, s, "lets every sender pass for anybody; name the proxies, or set AllowTrustAll")
			continue
		}
		c.trusted = append(c.trusted, rangeOf(p))
		if wide := (p.Addr().Is4() && p.Bits() < wideIPv4Prefix) || (p.Addr().Is6() && p.Bits() < wideIPv6Prefix); wide {
			c.warnings = append(c.warnings, fmt.Sprintf("%s: %s is a very wide range of trusted proxies", field, p))
		}
	}
	c.trusted = merged(c.trusted)
	for i, s := range t.NAT64Prefixes {
		p, ok := parseRange(s)
		if !ok || !p.Addr().Is6() || !slices.Contains([]int{32, 40, 48, 56, 64, 96}, p.Bits()) {
			bad("bad_prefix", fmt.Sprintf("NAT64Prefixes[%d]", i), s, "want an IPv6 prefix of 32, 40, 48, 56, 64 or 96 bits")
			continue
		}
		c.nat64 = append(c.nat64, p)
	}

	switch {
	case c.strategy == XForwardedForCount && len(t.TrustedProxies) == 0:
		c.warnings = append(c.warnings, "TrustedProxies is empty: whoever can connect directly can pass for anybody")
	case c.strategy != RemoteAddr && len(t.TrustedProxies) == 0 && !t.TrustUnix:
		c.warnings = append(c.warnings, "TrustedProxies is empty: headers are never read, and clients behind a proxy share its key")
	case c.strategy != RemoteAddr && len(t.TrustedProxies) == 0:
		c.warnings = append(c.warnings, "TrustedProxies is empty: headers are read from peers of a unix socket alone")
	case c.strategy == RemoteAddr && (len(t.TrustedProxies) > 0 || t.TrustUnix):
		c.warnings = append(c.warnings, "the strategy is remote_addr: trusted proxies have no effect")
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return c, nil
}

// prefixBits checks a prefix length.
func prefixBits(errs *[]error, field string, n, lo, hi int) uint8 {
	if n < lo || n > hi {
		*errs = append(*errs, &TrustError{
			Code: "bad_prefix", Field: field, Value: fmt.Sprint(n), Want: fmt.Sprintf("want %d…%d", lo, hi),
		})
		return uint8(hi)
	}
	return uint8(n)
}

// parseRange reads an address or CIDR, masks it and turns mapped IPv4 into IPv4: hops are unmapped before they are
// compared, and netip matches no IPv4 address against a mapped prefix.
func parseRange(s string) (netip.Prefix, bool) {
	var p netip.Prefix
	if strings.IndexByte(s, '/') >= 0 {
		var err error
		if p, err = netip.ParsePrefix(s); err != nil {
			return p, false
		}
	} else {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			return p, false
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), true
}

// addrRange is a range of addresses, both ends included.
type addrRange struct{ lo, hi netip.Addr }

func rangeOf(p netip.Prefix) addrRange {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < 8*len(b); i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	hi, _ := netip.AddrFromSlice(b)
	return addrRange{p.Addr(), hi}
}

// merged sorts ranges and drops those inside another. Ranges of prefixes are nested or disjoint, so the rest is ordered
// at both ends. The published list of a CDN has thousands; a search takes a dozen steps.
func merged(all []addrRange) []addrRange {
	slices.SortFunc(all, func(a, b addrRange) int {
		if c := a.lo.Compare(b.lo); c != 0 {
			return c
		}
		return b.hi.Compare(a.hi)
	})
	kept := all[:0]
	for _, r := range all {
		if n := len(kept); n == 0 || kept[n-1].hi.Less(r.lo) {
			kept = append(kept, r)
		}
	}
	return kept
}
