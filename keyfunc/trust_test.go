package keyfunc_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// codes collects the codes of everything wrong with t.
func codes(t keyfunc.Trust) (all []string) {
	_, err := keyfunc.NewClientIP(t)
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			all = append(all, e.(*keyfunc.TrustError).Code)
		}
	}
	return all
}

func TestTrustRefuses(t *testing.T) {
	type trust = keyfunc.Trust
	for _, tc := range []struct {
		trust trust
		codes []string
	}{
		{trust{}, nil},
		{trust{Strategy: "X-Forwarded-For"}, []string{"bad_strategy"}},
		{trust{OnKeyError: "ignore"}, []string{"bad_on_key_error"}},
		{trust{Strategy: keyfunc.XForwardedForCount}, []string{"bad_count"}},
		{trust{Strategy: keyfunc.XForwardedForCount, Count: -1}, []string{"bad_count"}},
		{trust{Strategy: keyfunc.XForwardedForCount, Count: 101}, []string{"bad_count"}},
		{trust{Strategy: keyfunc.XForwardedForCount, Count: 100}, nil},
		{trust{Strategy: keyfunc.XForwardedFor, Count: 2}, []string{"bad_count"}},
		{trust{Strategy: keyfunc.SingleHeader}, []string{"bad_header"}},
		{trust{Strategy: keyfunc.SingleHeader, Header: "a b"}, []string{"bad_header"}},
		{trust{Strategy: keyfunc.SingleHeader, Header: "x-forwarded-FOR"}, []string{"bad_header"}},
		{trust{Strategy: keyfunc.SingleHeader, Header: "forwarded"}, []string{"bad_header"}},
		{trust{Strategy: keyfunc.SingleHeader, Header: "Host"}, []string{"bad_header"}},
		{trust{Header: "X-Real-IP"}, []string{"bad_header"}},
		{trust{IPv4Prefix: 7}, []string{"bad_prefix"}},
		{trust{IPv4Prefix: 33}, []string{"bad_prefix"}},
		{trust{IPv4Prefix: 8, IPv6Prefix: 32}, nil},
		{trust{IPv6Prefix: 31}, []string{"bad_prefix"}},
		{trust{IPv6Prefix: 129}, []string{"bad_prefix"}},
		{trust{IPv6Prefix: -64}, []string{"bad_prefix"}},
		{trust{NAT64Prefixes: []string{"64:ff9b::/97"}}, []string{"bad_prefix"}},
		{trust{NAT64Prefixes: []string{"10.0.0.0/32"}}, []string{"bad_prefix"}},
		{trust{NAT64Prefixes: []string{"64:ff9b::"}}, []string{"bad_prefix"}},
		{trust{TrustedProxies: []string{"0.0.0.0/0"}}, []string{"trust_all"}},
		{trust{TrustedProxies: []string{"::/0", "::ffff:0:0/96"}}, []string{"trust_all", "trust_all"}},
		{trust{TrustedProxies: []string{"::/0", "0.0.0.0/0"}, AllowTrustAll: true}, nil},
		{
			trust{TrustedProxies: []string{"", "10.0.0.0/33", "fe80::1%eth0", " 10.0.0.1", "10.0.0.01", "10.0.0.0-10.0.0.9"}},
			strings.Fields(strings.Repeat("bad_trusted_proxy ", 6)),
		},
		{
			trust{Strategy: "x", Count: 1, Header: "h", IPv6Prefix: 1, TrustedProxies: []string{"y"}, OnKeyError: "z"},
			[]string{"bad_strategy", "bad_on_key_error", "bad_count", "bad_header", "bad_prefix", "bad_trusted_proxy"},
		},
	} {
		require.Equal(t, tc.codes, codes(tc.trust), "%+v", tc.trust)
		c, err := keyfunc.NewClientIP(tc.trust)
		if tc.codes == nil {
			require.NoError(t, err)
			require.NotNil(t, c)
			continue
		}
		require.ErrorIs(t, err, limiter.ErrInvalid)
		require.Nil(t, c)
		var te *keyfunc.TrustError
		require.ErrorAs(t, err, &te)
		require.Contains(t, err.Error(), te.Field)
	}
}

func TestTrustWarnings(t *testing.T) {
	for _, tc := range []struct {
		trust keyfunc.Trust
		want  []string
	}{
		{keyfunc.Trust{}, nil},
		{keyfunc.Trust{Strategy: keyfunc.XForwardedFor}, []string{"never read"}},
		{keyfunc.Trust{Strategy: keyfunc.Forwarded}, []string{"never read"}},
		{keyfunc.Trust{Strategy: keyfunc.XForwardedForCount, Count: 1}, []string{"connect directly"}},
		{keyfunc.Trust{Strategy: keyfunc.XForwardedFor, TrustUnix: true}, []string{"unix socket"}},
		{keyfunc.Trust{TrustedProxies: []string{"10.0.0.1"}}, []string{"no effect"}},
		{keyfunc.Trust{TrustUnix: true}, []string{"no effect"}},
		{
			keyfunc.Trust{Strategy: keyfunc.XForwardedFor, TrustedProxies: []string{"10.0.0.0/8", "10.0.0.0/7", "fd00::/16", "fc00::/7"}},
			[]string{"TrustedProxies[1]: 10.0.0.0/7", "TrustedProxies[3]: fc00::/7"},
		},
	} {
		c, err := keyfunc.NewClientIP(tc.trust)
		require.NoError(t, err)
		require.Len(t, c.Warnings(), len(tc.want), "%v", c.Warnings())
		for i, want := range tc.want {
			require.Contains(t, c.Warnings()[i], want)
		}
	}
}

func TestTrustedRanges(t *testing.T) {
	proxies := []string{
		"10.0.0.0/8", "10.1.0.0/16", "10.1.0.0/16", "192.0.2.7", "192.0.2.9", "198.51.100.128/25", "fd00::/8", "fd12::1",
		"2001:db8::8/125", "::ffff:172.16.0.0/108", "255.255.255.255", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
	}
	c, err := keyfunc.NewClientIP(keyfunc.Trust{Strategy: keyfunc.XForwardedFor, TrustedProxies: proxies})
	require.NoError(t, err)
	for peer, trusted := range map[string]bool{
		"10.0.0.0": true, "10.255.255.255": true, "9.255.255.255": false, "11.0.0.0": false,
		"192.0.2.6": false, "192.0.2.7": true, "192.0.2.8": false, "192.0.2.9": true, "192.0.2.10": false,
		"198.51.100.127": false, "198.51.100.128": true, "198.51.100.255": true,
		"172.16.0.1": true, "172.31.255.255": true, "172.32.0.0": false, "255.255.255.255": true, "255.255.255.254": false,
		"fcff::": false, "fd00::": true, "fdff:ffff::1": true, "fe00::": false,
		"2001:db8::7": false, "2001:db8::8": true, "2001:db8::f": true, "2001:db8::10": false,
		"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff": true, "1.1.1.1": false, "::1": false,
	} {
		r := request("X-Forwarded-For: 203.0.113.7")
		r.RemoteAddr = peer
		addr, err := c.Resolve(r.Request)
		require.NoError(t, err)
		require.Equal(t, trusted, addr == netip.MustParseAddr("203.0.113.7"), peer)
	}
}

func TestNetwork(t *testing.T) {
	c, err := keyfunc.NewClientIP(keyfunc.Trust{IPv4Prefix: 24, IPv6Prefix: 48, NAT64Prefixes: []string{
		"64:ff9b::/96", "2001:db8:1::/48", "2001:db8:200::/40", "2002:db9::/32", "2001:db8:a:bb00::/56", "2001:db8:c:d::/64",
	}})
	require.NoError(t, err)
	for addr, want := range map[string]string{
		"203.0.113.9":              "203.0.113.0/24",
		"::ffff:203.0.113.9":       "203.0.113.0/24",
		"2001:db9:5:6::7":          "2001:db9:5::/48",
		"2001:db9:5:6::7%eth0":     "2001:db9:5::/48",
		"64:ff9b::192.0.2.33":      "192.0.2.0/24", // the examples of RFC 6052 section 2.4, and the other lengths
		"64:ff9b::":                "64:ff9b::/48", // 0.0.0.0 is nobody
		"2001:db8:1:c000:2:2100::": "192.0.2.0/24",
		"2001:db8:2c0:2:21::":      "192.0.2.0/24",
		"2002:db9:c000:221::":      "192.0.2.0/24",
		"2001:db8:a:bbc0:0:221::":  "192.0.2.0/24",
		"2001:db8:c:d:c0:2:2100:0": "192.0.2.0/24",
	} {
		require.Equal(t, want, c.Network(netip.MustParseAddr(addr)).String(), addr)
	}
}

func TestLongLists(t *testing.T) {
	const ours = "10.0.0.1"
	resolve := func(value string) (netip.Addr, error) {
		return mustClient(t, keyfunc.Trust{Strategy: keyfunc.XForwardedFor, TrustedProxies: []string{ours}}).
			Resolve(from(t, ours+":1", keyfunc.Trust{}, "X-Forwarded-For: "+value).Request)
	}
	client, proxy := netip.MustParseAddr("203.0.113.7"), netip.MustParseAddr(ours)
	addr, err := resolve("203.0.113.7" + strings.Repeat(", "+ours, 99))
	require.NoError(t, err)
	require.Equal(t, client, addr)
	addr, err = resolve("203.0.113.7" + strings.Repeat(", "+ours, 100))
	require.ErrorIs(t, err, keyfunc.ErrInvalidForwarded)
	require.Equal(t, proxy, addr)
	addr, err = resolve("203.0.113.7" + strings.Repeat(", ,", 300))
	require.NoError(t, err)
	require.Equal(t, client, addr)
	for _, value := range []string{strings.Repeat(",", 5000), strings.Repeat(" ", 5000), strings.Repeat("1", 65), "203.0.113.7" + strings.Repeat(" ", 300)} {
		addr, err = resolve(value)
		require.ErrorIs(t, err, keyfunc.ErrInvalidForwarded)
		require.Equal(t, proxy, addr)
	}
}

func TestCountAndSingleHeader(t *testing.T) {
	count := mustClient(t, keyfunc.Trust{Strategy: keyfunc.XForwardedForCount, Count: 2, TrustUnix: true})
	single := mustClient(t, keyfunc.Trust{Strategy: keyfunc.SingleHeader, Header: "x-real-ip", TrustUnix: true, TrustedProxies: []string{"10.0.0.1"}})
	for _, tc := range []struct {
		by     *keyfunc.ClientIP
		remote string
		lines  []string
		want   string // the client, or the fallback
		err    error
	}{
		{count, "10.0.0.1:1", []string{"X-Forwarded-For: 1.1.1.1,203.0.113.7,,garbage,"}, "203.0.113.7", nil},
		{count, "10.0.0.1:1", []string{"X-Forwarded-For: garbage, 203.0.113.7"}, "10.0.0.1", keyfunc.ErrInvalidForwarded},
		{count, "10.0.0.1:1", []string{"X-Forwarded-For: 203.0.113.7:x1, 1.1.1.1"}, "10.0.0.1", keyfunc.ErrInvalidForwarded},
		{count, "10.0.0.1:1", []string{"X-Forwarded-For: 203.0.113.7, " + strings.Repeat("x", 300)}, "10.0.0.1", keyfunc.ErrInvalidForwarded},
		{count, "10.0.0.1:1", []string{"X-Forwarded-For: ,,203.0.113.7, ,"}, "10.0.0.1", keyfunc.ErrTooFewHops},
		{count, "@", []string{"X-Forwarded-For: 203.0.113.7"}, "invalid IP", keyfunc.ErrTooFewHops},
		{count, "pipe", []string{"X-Forwarded-For: 203.0.113.7, 1.1.1.1"}, "invalid IP", keyfunc.ErrNoPeer},
		{single, "10.0.0.1:1", []string{"X-Real-Ip: [2001:db8::1]:80"}, "2001:db8::1", nil},
		{single, "10.0.0.1:1", []string{"X-Real-Ip: \t"}, "10.0.0.1", nil},
		{single, "10.0.0.1:1", []string{"X-Real-Ip: ", "X-Real-Ip: "}, "10.0.0.1", keyfunc.ErrInvalidForwarded},
		{single, "@", nil, "invalid IP", keyfunc.ErrNoClientIP},
		{single, "@", []string{"X-Real-Ip: "}, "invalid IP", keyfunc.ErrNoClientIP},
		{single, "@", []string{"X-Real-Ip: x"}, "invalid IP", keyfunc.ErrInvalidForwarded},
		{single, "10.0.0.2:1", []string{"X-Real-Ip: 1.1.1.1"}, "10.0.0.2", nil},
	} {
		r := request(tc.lines...)
		r.RemoteAddr = tc.remote
		addr, err := tc.by.Resolve(r.Request)
		require.Equal(t, tc.err, err, "%+v", tc)
		require.Equal(t, tc.want, addr.String(), "%+v", tc)
	}
}

func mustClient(t *testing.T, trust keyfunc.Trust) *keyfunc.ClientIP {
	t.Helper()
	c, err := keyfunc.NewClientIP(trust)
	require.NoError(t, err)
	return c
}

func TestForwardedElements(t *testing.T) {
	c := mustClient(t, keyfunc.Trust{Strategy: keyfunc.Forwarded, TrustedProxies: []string{"10.0.0.1"}, IPv6Prefix: 128})
	for element, want := range map[string]string{
		`for=203.0.113.7`:                   "203.0.113.7",
		`FOR=203.0.113.7`:                   "203.0.113.7",
		`;;for=203.0.113.7;`:                "203.0.113.7",
		`by=_x;for=203.0.113.7;host="a:80"`: "203.0.113.7",
		`by=10.0.0.1:80;for=203.0.113.7`:    "203.0.113.7",
		`for=203.0.113.7:80`:                "203.0.113.7",
		`for=203.0.113.7:_p`:                "203.0.113.7",
		`for="203.0.113.7:_p.-_9"`:          "203.0.113.7",
		`for="[2001:db8::1]"`:               "2001:db8::1",
		`for="[2001:db8::1]:_x"`:            "2001:db8::1",
		`for="[::ffff:203.0.113.7]:65535"`:  "203.0.113.7",
		`for="203.0.113.\7"`:                "203.0.113.7",
		`x="\"\\;";for=203.0.113.7`:         "203.0.113.7",
		`for=unknown`:                       "",
		`for=_hidden`:                       "",
		`for="_hidden"`:                     "",
		`for=`:                              "",
		`for=""`:                            "",
		`for`:                               "",
		`;`:                                 "",
		`=203.0.113.7`:                      "",
		`for=[2001:db8::1]`:                 "",
		`for=2001:db8::1`:                   "",
		`for=::ffff:203.0.113.7`:            "",
		`for="203.0.113.7`:                  "",
		`for="203.0.113.7\"`:                "",
		`for=203.0.113.7"`:                  "",
		`for="203.0.113.7"x`:                "",
		`for="203.0.113.7" ;proto=http`:     "",
		`for= 203.0.113.7`:                  "",
		`for =203.0.113.7`:                  "",
		`for=203.0.113.7;for=203.0.113.8`:   "",
		`for=203.0.113.7;FOR="203.0.113.7"`: "",
		`for=203.0.113.7;proto`:             "",
		`for=203.0.113.7 proto=http`:        "",
		`for="203.0.113.7:_"`:               "",
		`for="203.0.113.7:"`:                "",
		`for="203.0.113.7:65536"`:           "",
		`for="203.0.113.7:+80"`:             "",
		`for='203.0.113.7'`:                 "",
		"for=\"203.0.113.7\x00\"":           "",
		"x=\"\x01\";for=203.0.113.7":        "",
		"x=\"\\\x01\";for=203.0.113.7":      "",
		`x=` + strings.Repeat("a", 1200) + `;for=203.0.113.7`: "",
	} {
		req := from(t, "10.0.0.1:1", keyfunc.Trust{}).Request
		req.Header["Forwarded"] = []string{"for=6.6.6.6, " + element}
		addr, err := c.Resolve(req)
		if want == "" {
			require.ErrorIs(t, err, keyfunc.ErrInvalidForwarded, element)
			require.Equal(t, "10.0.0.1", addr.String())
			continue
		}
		require.NoError(t, err, element)
		require.Equal(t, want, addr.String(), element)
	}
}
