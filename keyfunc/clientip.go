package keyfunc

import (
	"errors"
	"net/http"
	"net/netip"
	"net/textproto"
)

// Errors of [ClientIP.Resolve] and [Request.ClientIP].
var (
	// ErrNoPeer means that the RemoteAddr of the request is no address, as on a unix socket that is not trusted.
	ErrNoPeer = errors.New("keyfunc: no peer address")
	// ErrNoClientIP means that a trusted unix socket sent no client address.
	ErrNoClientIP = errors.New("keyfunc: no client address")
	// ErrInvalidForwarded means that a trusted proxy passed on something that is not an address where one belongs.
	ErrInvalidForwarded = errors.New("keyfunc: invalid forwarded address")
	// ErrTooFewHops means that X-Forwarded-For has fewer entries than there are said to be proxies.
	ErrTooFewHops = errors.New("keyfunc: too few forwarded hops")
)

// ClientIP finds the client address of requests, as a [Trust] says. It is immutable and safe for concurrent use; new
// settings are a new ClientIP.
type ClientIP struct {
	strategy   Strategy
	peerOnly   bool // the strategy is RemoteAddr
	count      int
	header     string
	trusted    []addrRange // sorted and disjoint
	trustUnix  bool
	v4, v6     uint8
	nat64      []netip.Prefix
	onKeyError OnKeyError
	warnings   []string
}

// byPeer is the zero Trust.
var byPeer = &ClientIP{strategy: RemoteAddr, peerOnly: true, onKeyError: NearestHop, v4: 32, v6: 64}

// Warnings returns what is allowed but probably not meant, to be logged at start: a strategy that reads headers without
// trusted proxies, trusted proxies without such a strategy, trusted ranges shorter than /8 (IPv4) or /16 (IPv6).
func (c *ClientIP) Warnings() []string { return append([]string(nil), c.warnings...) }

// Resolve returns the client address of req, never IPv4-mapped and without a zone. On an error ([ErrNoPeer],
// [ErrNoClientIP], [ErrInvalidForwarded], [ErrTooFewHops]) the address is the nearest verified hop, which is a proxy and
// not the client, or the zero Addr if there is none.
//
// It reads the peer and at most one header, that from its end, only as far as it must. At most 100 hops of 64 bytes are
// looked at; the next is [ErrInvalidForwarded]. It does not allocate, save for a malformed IPv6 address and for backslashes
// in Forwarded.
func (c *ClientIP) Resolve(req *http.Request) (netip.Addr, error) {
	addr, _, err := c.resolve(req)
	return addr, err
}

// resolve is Resolve, and reports whether a peer that is no trusted proxy sent the header that the strategy reads.
func (c *ClientIP) resolve(req *http.Request) (addr netip.Addr, ignored bool, err error) {
	peer, ok := parseHop(req.RemoteAddr, false)
	switch {
	case !ok:
		if !c.trustUnix || c.strategy == RemoteAddr || !unixPeer(req.RemoteAddr) {
			return netip.Addr{}, false, ErrNoPeer
		}
	case c.strategy == RemoteAddr:
		return peer, false, nil
	case !c.trustsPeer(peer):
		return peer, len(req.Header[c.field()]) > 0, nil
	}
	lines := req.Header[c.field()]
	switch c.strategy {
	case XForwardedForCount:
		addr, err = c.countHops(lines, peer)
	case Forwarded:
		addr, err = c.walk(hops{lines: lines, window: maxForwardedElement}, parseForwarded, peer)
	case SingleHeader:
		addr, err = single(lines, peer)
	default:
		addr, err = c.walk(hops{lines: lines, window: maxHopElement}, parsePlainHop, peer)
	}
	return addr, false, err
}

// field returns the canonical name of the header that the strategy reads.
func (c *ClientIP) field() string {
	switch c.strategy {
	case Forwarded:
		return "Forwarded"
	case SingleHeader:
		return c.header
	}
	return "X-Forwarded-For"
}

// Network returns the network that a client of this address is counted by: the address itself, its network if the prefix
// is shorter, or those of the IPv4 address inside where a NAT64 prefix holds it.
func (c *ClientIP) Network(addr netip.Addr) netip.Prefix {
	return c.network(addr.Unmap().WithZone(""), c.v4, c.v6)
}

func (c *ClientIP) network(addr netip.Addr, v4, v6 uint8) netip.Prefix {
	for _, p := range c.nat64 {
		if p.Contains(addr) {
			if in := embeddedIPv4(addr, p.Bits()); !in.IsUnspecified() {
				addr = in
			}
			break
		}
	}
	bits := int(v6)
	if addr.Is4() {
		bits = int(v4)
	}
	p, _ := addr.Prefix(bits)
	return p
}

// embeddedIPv4 returns the IPv4 address after a NAT64 prefix of the given length (RFC 6052 section 2.2). Bits 64 to 71
// are no part of it.
func embeddedIPv4(addr netip.Addr, bits int) netip.Addr {
	b := addr.As16()
	var v4 [4]byte
	i := bits / 8
	for j := range v4 {
		if i == 8 {
			i++
		}
		v4[j] = b[i]
		i++
	}
	return netip.AddrFrom4(v4)
}

// trusts tells whether addr is a proxy of ours.
func (c *ClientIP) trusts(addr netip.Addr) bool {
	lo, hi := 0, len(c.trusted) // the last range that begins at or before addr is just below hi
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if c.trusted[mid].lo.Compare(addr) <= 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo > 0 && addr.Compare(c.trusted[lo-1].hi) <= 0
}

func (c *ClientIP) trustsPeer(peer netip.Addr) bool {
	return c.strategy == XForwardedForCount && len(c.trusted) == 0 || c.trusts(peer)
}

// walk goes through hops from the right to the first that is not trusted. Whatever stands left of that one was written
// by a stranger and is not read.
func (c *ClientIP) walk(list hops, parse func(string) (netip.Addr, bool), peer netip.Addr) (netip.Addr, error) {
	verified, rightmost := peer, netip.Addr{}
	for {
		element, state := list.next()
		if state == listEnd {
			break
		}
		addr, ok := netip.Addr{}, false
		if state == listElement {
			addr, ok = parse(element)
		}
		if !ok {
			return verified, ErrInvalidForwarded
		}
		if !c.trusts(addr) {
			return addr, nil
		}
		verified = addr
		if !rightmost.IsValid() {
			rightmost = addr
		}
	}
	switch {
	case rightmost.IsValid(): // written by the peer itself; anything further left an internal client could have forged
		return rightmost, nil
	case peer.IsValid():
		return peer, nil
	}
	return netip.Addr{}, ErrNoClientIP
}

// countHops takes the count-th entry from the right.
func (c *ClientIP) countHops(lines []string, peer netip.Addr) (netip.Addr, error) {
	list := hops{lines: lines, window: maxHopElement}
	for n := 1; ; n++ {
		element, state := list.next()
		switch {
		case state == listEnd:
			return peer, ErrTooFewHops
		case state == listBroken:
			return peer, ErrInvalidForwarded
		case n < c.count:
			continue
		}
		addr, ok := parseHop(element, false)
		if !ok {
			return peer, ErrInvalidForwarded
		}
		return addr, nil
	}
}

// single takes the address of a header that may occur once. Of two lines one may be the client's own, and which one a
// proxy adds or replaces is not for us to guess.
func single(lines []string, peer netip.Addr) (netip.Addr, error) {
	if len(lines) == 0 || len(lines) == 1 && trimBlanks(lines[0]) == "" {
		if !peer.IsValid() {
			return peer, ErrNoClientIP
		}
		return peer, nil
	}
	if len(lines) == 1 {
		if addr, ok := parseHop(lines[0], false); ok {
			return addr, nil
		}
	}
	return peer, ErrInvalidForwarded
}

// unixPeer tells whether a RemoteAddr is that of a unix socket: net/http gives "" or "@" for an unnamed client, "@name"
// and a path for named ones.
func unixPeer(remote string) bool {
	return remote == "" || remote[0] == '@' || remote[0] == '/'
}

func canonicalHeader(name string) string { return textproto.CanonicalMIMEHeaderKey(name) }
