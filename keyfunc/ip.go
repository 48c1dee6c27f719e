package keyfunc

import (
	"errors"
	"fmt"
	"net/netip"
)

// IPOption changes one thing of [IP].
type IPOption struct{ apply func(*ipOptions) }

type ipOptions struct {
	v4, v6 *int
	trust  *Trust
}

// IPv6Prefix counts IPv6 clients by networks of n bits, 32…128. A host moves freely within a /64, the default; homes
// and businesses get a /56 or /48, so a second policy at 48 with a larger quota is worth having.
func IPv6Prefix(n int) IPOption { return IPOption{func(o *ipOptions) { o.v6 = &n }} }

// IPv4Prefix counts IPv4 clients by networks of n bits, 8…32. The default is 32, single addresses.
func IPv4Prefix(n int) IPOption { return IPOption{func(o *ipOptions) { o.v4 = &n }} }

// TrustedBy finds the client address by t instead of the guard's [Trust].
func TrustedBy(t Trust) IPOption { return IPOption{func(o *ipOptions) { o.trust = &t }} }

// IP is the key ip=ADDRESS of the client: an IPv4 address, or an IPv6 network such as 2001:db8:1:2::/64. Who the client
// is says the guard's [Trust]; by default it is the peer of the connection, and no header is read.
//
// Where the address cannot be told, the OnKeyError of the trust decides: [NearestHop] counts by the last hop that was
// verified, and has no key if there is none; [DenyRequest] has no key; [AllowRequest] returns [ErrSkip]. An error that
// wraps [ErrNoKey] wraps the cause as well. Options out of their range make a function that returns an error wrapping
// [limiter.ErrInvalid]. It does not allocate.
func IP(opts ...IPOption) Func {
	var o ipOptions
	for _, opt := range opts {
		if opt.apply != nil {
			opt.apply(&o)
		}
	}
	var errs []error
	var v4, v6 uint8
	if o.v4 != nil {
		v4 = prefixBits(&errs, "IPv4Prefix", *o.v4, minIPv4Prefix, 32)
	}
	if o.v6 != nil {
		v6 = prefixBits(&errs, "IPv6Prefix", *o.v6, minIPv6Prefix, 128)
	}
	var own *ClientIP
	if o.trust != nil {
		var err error
		if own, err = NewClientIP(*o.trust); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return fail(fmt.Errorf("keyfunc: IP: %w", errors.Join(errs...)))
	}
	return func(r *Request) (Key, error) {
		c := own
		if c == nil {
			c = r.trust
		}
		v4, v6 := v4, v6
		if v4 == 0 {
			v4 = c.v4
		}
		if v6 == 0 {
			v6 = c.v6
		}
		return r.ipKey(c, v4, v6)
	}
}

// ipKey makes the key of the client address as found by c, by networks of the given lengths.
func (r *Request) ipKey(c *ClientIP, v4, v6 uint8) (Key, error) {
	if at := &r.ip; at.by == c && at.v4 == v4 && at.v6 == v6 && r.mac == nil && r.probe == nil {
		return at.key, nil
	}
	if v4 == 32 && c.peerOnly && r.mac == nil && r.probe == nil {
		// The usual case: the text of the peer's IPv4 address is the text of the key.
		if n := peerIPv4(r.RemoteAddr); n > 0 {
			lo := len(r.buf)
			r.buf = append(append(r.buf, "ip="...), r.RemoteAddr[:n]...)
			return r.remember(c, v4, v6, lo), nil
		}
	}
	addr, err := r.client(c)
	if err != nil {
		switch {
		case c.onKeyError == AllowRequest:
			return Key{}, ErrSkip
		case c.onKeyError == DenyRequest || !addr.IsValid():
			return Key{}, noKeyBecause(err)
		case r.ipProblem == nil:
			r.ipProblem = err
		}
	}
	if r.mac != nil || r.probe != nil {
		r.raw = c.appendNetwork(r.raw[:0], addr, v4, v6)
		return makeKey(r, "ip", r.raw), nil
	}
	lo := len(r.buf)
	r.buf = c.appendNetwork(append(r.buf, "ip="...), addr, v4, v6) // nothing in an address needs escaping
	return r.remember(c, v4, v6, lo), nil
}

// remember makes the key of a client address from lo on, and keeps it for the next policy. It is written field by field: a
// literal would be made elsewhere first, and to copy what has just been written takes longer than to write it.
func (r *Request) remember(c *ClientIP, v4, v6 uint8, lo int) Key {
	at := &r.ip
	at.by, at.v4, at.v6 = c, v4, v6
	at.key.r, at.key.lo, at.key.hi, at.key.gen = r, uint32(lo), uint32(len(r.buf)), r.gen
	return r.since(lo)
}

// appendNetwork appends the network addr is counted by, the address alone if it is a network of one.
func (c *ClientIP) appendNetwork(dst []byte, addr netip.Addr, v4, v6 uint8) []byte {
	if v4 == 32 && addr.Is4() {
		return addr.AppendTo(dst)
	}
	net := c.network(addr, v4, v6)
	if net.IsSingleIP() {
		return net.Addr().AppendTo(dst)
	}
	return net.AppendTo(dst)
}

// noKeyBecause wraps ErrNoKey and the cause. The errors are made once: a flood of broken headers must not allocate.
func noKeyBecause(cause error) error {
	for i := range ipErrors {
		if errors.Is(cause, ipErrors[i].cause) {
			return ipErrors[i].noKey
		}
	}
	return ErrNoKey
}

var ipErrors = func() (all []struct{ cause, noKey error }) {
	for _, cause := range []error{ErrNoPeer, ErrNoClientIP, ErrInvalidForwarded, ErrTooFewHops} {
		all = append(all, struct{ cause, noKey error }{cause, fmt.Errorf("%w: %w", ErrNoKey, cause)})
	}
	return all
}()
