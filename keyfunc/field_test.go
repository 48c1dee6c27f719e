package keyfunc_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// from makes a request of the given peer with the given header lines.
func from(t *testing.T, peer string, trust keyfunc.Trust, lines ...string) *keyfunc.Request {
	t.Helper()
	c, err := keyfunc.NewClientIP(trust)
	require.NoError(t, err)
	r := request(lines...)
	req := r.Request
	req.RemoteAddr = peer
	return wrap(req, nil, c)
}

// TestFieldFaults holds faults that were seen in the field in other limiters, by the id of their case.
func TestFieldFaults(t *testing.T) {
	xff := func(proxies ...string) keyfunc.Trust {
		return keyfunc.Trust{Strategy: keyfunc.XForwardedFor, TrustedProxies: proxies}
	}
	ip := keyfunc.IP()
	route := func(method, path, pattern string) *keyfunc.Request {
		return wrap(httptest.NewRequest(method, path, nil), &fake{route: pattern}, nil)
	}

	t.Run("SPF-02", func(t *testing.T) {
		r := from(t, "127.0.0.1:80", xff("127.0.0.1", "192.168.2.1"),
			"X-Forwarded-For: 11.11.11.11, 123.123.123.123, 192.168.2.1, 127.0.0.1")
		requireKey(t, "ip=123.123.123.123", r, ip)
	})
	t.Run("SPF-03", func(t *testing.T) {
		trust := keyfunc.Trust{Strategy: keyfunc.SingleHeader, Header: "X-Real-IP", TrustedProxies: []string{"10.0.0.1"}}
		r := from(t, "10.0.0.1:80", trust, "X-Forwarded-For: 6.6.6.6", "X-Real-Ip: 203.0.113.7")
		requireKey(t, "ip=203.0.113.7", r, ip)
	})
	t.Run("SPF-07", func(t *testing.T) {
		trust := keyfunc.Trust{Strategy: keyfunc.SingleHeader, Header: "X-Real-IP", TrustedProxies: []string{"8.8.8.8"}}
		requireKey(t, "ip=1.1.1.1", from(t, "8.8.8.8:80", trust, "X-Real-Ip: 1.1.1.1"), ip)
		requireKey(t, "ip=9.9.9.9", from(t, "9.9.9.9:80", trust, "X-Real-Ip: 8.8.8.8"), ip)
	})
	t.Run("SPF-08", func(t *testing.T) {
		r := from(t, "10.0.0.9:80", xff("10.0.0.9"), "X-Forwarded-For: 6.6.6.6, 192.168.4.4")
		requireKey(t, "ip=192.168.4.4", r, ip)
	})
	t.Run("SPF-09", func(t *testing.T) {
		// The key does not depend on another middleware having rewritten the address before.
		seen := map[string]bool{}
		for _, client := range []string{"203.0.113.1", "203.0.113.2", "203.0.113.3"} {
			key, err := keyText(from(t, "10.0.0.9:80", xff("10.0.0.9"), "X-Forwarded-For: "+client), ip)
			require.NoError(t, err)
			seen[key] = true
		}
		require.Len(t, seen, 3)
	})
	t.Run("SPF-10", func(t *testing.T) {
		r := from(t, "10.0.0.2:80", xff("10.0.0.1", "10.0.0.2"), "X-Forwarded-For: 203.0.113.7, 10.0.0.1")
		requireKey(t, "ip=203.0.113.7", r, ip)
	})

	t.Run("IP-01", func(t *testing.T) {
		wide := keyfunc.IP(keyfunc.IPv6Prefix(56))
		for entry, want := range map[string]string{
			"::ffff:1.2.3.4":               "ip=1.2.3.4",
			"::ffff:102:304":               "ip=1.2.3.4",
			"2001:db8:1234:5678::1.2.3.4":  "ip=2001:db8:1234:5600::/56",
			"64:ff9b::1.2.3.4":             "ip=64:ff9b::/56",
			"0:0:0:0:0:FFFF:0102:0304%abc": "ip=1.2.3.4",
		} {
			requireKey(t, want, from(t, "10.0.0.9:80", xff("10.0.0.9"), "X-Forwarded-For: "+entry), wide)
		}
	})
	t.Run("IP-03", func(t *testing.T) {
		for _, peer := range []string{"[2001:db8:1:2::1]:9", "[2001:db8:1:2::64]:9", "[2001:db8:1:2:3:4:5:6%eth0]:9"} {
			requireKey(t, "ip=2001:db8:1:2::/64", from(t, peer, keyfunc.Trust{}), ip)
		}
		requireKey(t, "ip=fe80::/64", from(t, "fe80::1%eth0", keyfunc.Trust{}), ip)
		for _, peer := range []string{"fe80::1%", "[fe80::1%]:80", "[fe80::1", "fe80::1]", "[]:80", ":80", "%eth0"} {
			_, err := keyText(from(t, peer, keyfunc.Trust{}), ip)
			require.ErrorIs(t, err, keyfunc.ErrNoKey, peer)
		}
	})
	t.Run("IP-04", func(t *testing.T) {
		nat := keyfunc.Trust{NAT64Prefixes: []string{"64:ff9b::/96"}}
		requireKey(t, "ip=8.8.8.8", from(t, "[64:ff9b::808:808]:9", nat), ip)
		requireKey(t, "ip=9.9.9.9", from(t, "[64:ff9b::909:909]:9", nat), ip)
		requireKey(t, "ip=64:ff9b::/64", from(t, "[64:ff9b::909:909]:9", keyfunc.Trust{}), ip)
	})
	t.Run("IP-06", func(t *testing.T) {
		trust := keyfunc.Trust{Strategy: keyfunc.XForwardedFor, TrustUnix: true}
		requireKey(t, "ip=203.0.113.7", from(t, "@", trust, "X-Forwarded-For: 203.0.113.7"), ip)
		for _, remote := range []string{"", "@", "@name", "/run/x.sock"} {
			_, err := keyText(from(t, remote, trust), ip)
			require.ErrorIs(t, err, keyfunc.ErrNoKey)
			require.ErrorIs(t, err, keyfunc.ErrNoClientIP)
			_, err = keyText(from(t, remote, keyfunc.Trust{}), ip)
			require.ErrorIs(t, err, keyfunc.ErrNoPeer)
		}
	})
	t.Run("IP-07", func(t *testing.T) {
		_, err := keyText(from(t, "@", keyfunc.Trust{}), ip)
		require.ErrorIs(t, err, keyfunc.ErrNoKey)
	})
	t.Run("IP-08", func(t *testing.T) {
		requireKey(t, "ip=10.0.0.9", from(t, "10.0.0.9:80", xff("10.0.0.9")), ip)
	})

	t.Run("KEY-03", func(t *testing.T) {
		bad := func(r *keyfunc.Request) (keyfunc.Key, error) { return r.Key("User-ID", ""), nil }
		require.ErrorIs(t, keyfunc.Check(bad), limiter.ErrInvalid)
	})
	t.Run("KEY-05", func(t *testing.T) {
		f := keyfunc.First(keyfunc.Header("X-Api-Key"), keyfunc.IP())
		requireKey(t, "ip=192.0.2.1", request(), f)
		requireKey(t, "x_api_key=k", request("X-Api-Key: k"), f)
	})
	t.Run("KEY-06", func(t *testing.T) {
		// Before authentication there is no user, and no anonymous bucket in its place.
		nobody := keyfunc.User(func(*keyfunc.Request) string { return "" })
		_, err := keyText(request(), nobody)
		require.ErrorIs(t, err, keyfunc.ErrNoKey)
	})
	t.Run("KEY-07", func(t *testing.T) {
		verified := keyfunc.User(func(*keyfunc.Request) string { return "alice" })
		requireKey(t, "user=alice", request("X-Api-Key: 1"), verified)
		requireKey(t, "user=alice", request("X-Api-Key: 2"), verified)
	})
	t.Run("KEY-08", func(t *testing.T) {
		const pattern = "/users/validate-password"
		for _, path := range []string{pattern, "/users//validate-password"} {
			requireKey(t, "route=POST%20"+pattern, route("POST", path, pattern), keyfunc.Route())
		}
	})
	t.Run("KEY-09", func(t *testing.T) {
		for _, path := range []string{"/lang", "/LANG", "/lang/"} {
			requireKey(t, "route=GET%20/lang", route("GET", path, "/lang"), keyfunc.Route())
		}
	})
	t.Run("KEY-11", func(t *testing.T) {
		for _, path := range []string{"/recovery/verify/1", "/recovery/verify/2"} {
			want := "route=GET%20/recovery/verify/%7Bcode%7D"
			requireKey(t, want, route("GET", path, "GET /recovery/verify/{code}"), keyfunc.Route())
		}
	})
	t.Run("KEY-12", func(t *testing.T) {
		id, err := keyText(request(), ip)
		require.NoError(t, err)
		a, b := limiter.Key{Space: "a", ID: id}, limiter.Key{Space: "b", ID: id}
		require.NotEqual(t, a.Render("p", ""), b.Render("p", ""))
	})
	t.Run("KEY-14", func(t *testing.T) {
		long := strings.Repeat("a", 1<<20) + "@example.com"
		f := keyfunc.User(func(*keyfunc.Request) string { return long })
		key, err := keyText(request(), f)
		require.NoError(t, err)
		require.Len(t, key, len("user=#")+43)
	})

	for _, id := range []string{"MTH-01", "MTH-02"} { // unknown paths are one key, and they are counted
		t.Run(id, func(t *testing.T) {
			for _, path := range []string{"/nonsense", "/wp-login.php", "//"} {
				r := wrap(&http.Request{Method: "GET", URL: httptest.NewRequest("GET", "/", nil).URL, Pattern: "", RequestURI: path},
					nil, nil)
				requireKey(t, "route=GET%20-", r, keyfunc.Route())
			}
		})
	}
	for _, id := range []string{"MTH-03", "MTH-05"} { // HEAD follows GET
		t.Run(id, func(t *testing.T) {
			requireKey(t, "route=GET%20/v1/x", route("HEAD", "/v1/x", "/v1/x"), keyfunc.Route())
			requireKey(t, "route=GET%20-", route("HEAD", "/v1/nonsense", ""), keyfunc.Route())
		})
	}
}

// TestPeerFlaws shows that flaws found in the sources of other limiters are absent here, by their row in that list.
func TestPeerFlaws(t *testing.T) {
	t.Run("10 an unparseable peer is no key", func(t *testing.T) {
		for _, remote := range []string{"@", "pipe", "<nil>", "bufconn", "1.2.3", "1.2.3.4.5:1", "[1.2.3.4]:1"} {
			_, err := keyText(from(t, remote, keyfunc.Trust{}), keyfunc.IP())
			require.ErrorIs(t, err, keyfunc.ErrNoKey, remote)
		}
		requireKey(t, "ip=fe80::/64", from(t, "[fe80::1%eth0]:80", keyfunc.Trust{}), keyfunc.IP())
	})
	t.Run("14 the order of parts is that of the configuration", func(t *testing.T) {
		f := keyfunc.Join(keyfunc.Header("X-B"), keyfunc.Header("X-A"), keyfunc.Header("X-C"))
		for range 50 {
			requireKey(t, "x_b=2|x_a=1|x_c=3", request("X-A: 1", "X-B: 2", "X-C: 3"), f)
		}
	})
	t.Run("15 an absent header does not pass silently", func(t *testing.T) {
		_, err := keyText(request(), keyfunc.Header("X-Api-Key"))
		require.ErrorIs(t, err, keyfunc.ErrNoKey)
	})
	t.Run("39 IPv6 is not cut at its first colon", func(t *testing.T) {
		trust := keyfunc.Trust{Strategy: keyfunc.SingleHeader, Header: "X-Real-IP", TrustedProxies: []string{"10.0.0.1"}}
		r := from(t, "10.0.0.1:80", trust, "X-Real-Ip: 2001:db8:1:2::5")
		requireKey(t, "ip=2001:db8:1:2::/64", r, keyfunc.IP())
	})
	t.Run("48 all lines, no empty key, and the IPv6 network in every strategy", func(t *testing.T) {
		trust := keyfunc.Trust{Strategy: keyfunc.XForwardedForCount, Count: 2}
		r := from(t, "10.0.0.1:80", trust, "X-Forwarded-For: 1.1.1.1, 2001:db8:1:2::5", "X-Forwarded-For: 10.0.0.7")
		requireKey(t, "ip=2001:db8:1:2::/64", r, keyfunc.IP())
		requireKey(t, "ip=10.0.0.1", from(t, "10.0.0.1:80", trust, "X-Forwarded-For: 1.1.1.1"), keyfunc.IP())
	})
	t.Run("49 nobody is trusted by default, all lines count, nothing falls through", func(t *testing.T) {
		r := from(t, "198.51.100.1:80", keyfunc.Trust{}, "X-Forwarded-For: 1.1.1.1", "X-Real-Ip: 2.2.2.2")
		requireKey(t, "ip=198.51.100.1", r, keyfunc.IP())
		trust := keyfunc.Trust{Strategy: keyfunc.XForwardedFor, TrustedProxies: []string{"10.0.0.1"}}
		r = from(t, "10.0.0.1:80", trust, "X-Forwarded-For: 1.1.1.1", "X-Forwarded-For: 203.0.113.7")
		requireKey(t, "ip=203.0.113.7", r, keyfunc.IP())
		r = from(t, "10.0.0.1:80", trust, "X-Forwarded-For: nonsense", "X-Real-Ip: 2.2.2.2")
		requireKey(t, "ip=10.0.0.1", r, keyfunc.IP())
		require.ErrorIs(t, r.Fallback(), keyfunc.ErrInvalidForwarded)
	})
}
