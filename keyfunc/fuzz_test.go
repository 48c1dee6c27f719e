package keyfunc_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/keyfunc"
)

var (
	fuzzProxy  = netip.MustParseAddr("10.0.0.1")
	fuzzClient = netip.MustParseAddr("203.0.113.7")
)

func fuzzTrust(f *testing.F, s keyfunc.Strategy) *keyfunc.ClientIP {
	f.Helper()
	c, err := keyfunc.NewClientIP(keyfunc.Trust{Strategy: s, TrustedProxies: []string{"10.0.0.0/8"}})
	require.NoError(f, err)
	return c
}

// FuzzHop holds the reading of a hop against package netip: what is accepted is one valid, specified address, unmapped
// and without zone, and exactly what a slower reading by splitting makes of the text.
func FuzzHop(f *testing.F) {
	for _, s := range []string{
		"203.0.113.9:40112", "203.0.113.9", "[2001:db8::1]:443", "[2001:db8::1]", "2001:db8::1", "fe80::1%eth0",
		"[::ffff:1.2.3.4]:80", "::", "0.0.0.0:1", "1.2.3.4:", "1.2.3.4:99999", "01.2.3.4", "1.2.3", "1.2.3.4.5", "@", "", " 1.2.3.4 ",
		"[1.2.3.4]", "[::1", "::1]", "[::1]x", "[::1]:", "[::1%]", "1.2.3.4%x", "%", "::1%%", "::ffff:1.2.3.4%x",
	} {
		f.Add(s)
	}
	c := fuzzTrust(f, keyfunc.RemoteAddr)
	f.Fuzz(func(t *testing.T, s string) {
		addr, err := c.Resolve(&http.Request{RemoteAddr: s})
		want, ok := slowHop(s)
		if !ok {
			require.ErrorIs(t, err, keyfunc.ErrNoPeer)
			require.False(t, addr.IsValid())
			return
		}
		require.NoError(t, err)
		require.Equal(t, want, addr)
		require.True(t, addr.IsValid() && !addr.IsUnspecified() && !addr.Is4In6() && addr.Zone() == "")
	})
}

// slowHop reads a hop the obvious way.
func slowHop(s string) (netip.Addr, bool) {
	s = strings.Trim(s, " \t")
	if len(s) > 64 {
		return netip.Addr{}, false
	}
	host, port, hasPort, v6 := s, "", false, false
	if strings.HasPrefix(s, "[") {
		inside, after, ok := strings.Cut(s[1:], "]")
		if !ok || after != "" && after[0] != ':' {
			return netip.Addr{}, false
		}
		host, v6, hasPort = inside, true, after != ""
		port = strings.TrimPrefix(after, ":")
	} else if strings.Count(s, ":") == 1 {
		host, port, hasPort = strings.Cut(s, ":")
		if strings.Contains(host, "%") {
			return netip.Addr{}, false
		}
	}
	if hasPort {
		if port == "" || len(port) > 5 || strings.Trim(port, "0123456789") != "" || len(port) == 5 && port > "65535" {
			return netip.Addr{}, false
		}
	}
	host, zone, hasZone := strings.Cut(host, "%")
	addr, err := netip.ParseAddr(host)
	if err != nil || hasZone && zone == "" || (v6 || hasZone) && addr.Is4() {
		return netip.Addr{}, false
	}
	addr = addr.Unmap()
	return addr, !addr.IsUnspecified()
}

// checkWalk holds any answer about headers by a trusted peer to its shape: an error leaves a hop of ours, and without an
// error there is an address.
func checkWalk(t *testing.T, addr netip.Addr, err error) {
	t.Helper()
	require.True(t, addr.IsValid() && !addr.IsUnspecified() && !addr.Is4In6() && addr.Zone() == "")
	if err != nil {
		require.ErrorIs(t, err, keyfunc.ErrInvalidForwarded)
		require.True(t, netip.MustParsePrefix("10.0.0.0/8").Contains(addr))
	}
}

// FuzzXFF is the invariant of the walk: whatever a client sends, in the line a proxy appends to or in lines of its own,
// the entry of the proxy decides.
func FuzzXFF(f *testing.F) {
	for _, s := range []string{"1.1.1.1", "1.1.1.1, 10.0.0.2", "garbage", "", ",,,", "\"", "unknown", "10.0.0.2", strings.Repeat("10.0.0.3,", 200)} {
		f.Add(s, s)
	}
	c := fuzzTrust(f, keyfunc.XForwardedFor)
	f.Fuzz(func(t *testing.T, line, left string) {
		resolve := func(lines ...string) (netip.Addr, error) {
			return c.Resolve(&http.Request{RemoteAddr: "10.0.0.1:80", Header: http.Header{"X-Forwarded-For": lines}})
		}
		for _, lines := range [][]string{
			{left + ", 203.0.113.7"}, {line, left + ",203.0.113.7"}, {line, left, "203.0.113.7, 10.0.0.2"}, {left + ",203.0.113.7", "10.9.9.9:1"},
		} {
			addr, err := resolve(lines...)
			require.NoError(t, err)
			require.Equal(t, fuzzClient, addr)
		}
		addr, err := resolve(line, left)
		checkWalk(t, addr, err)

		one, err := keyfunc.NewClientIP(keyfunc.Trust{Strategy: keyfunc.XForwardedForCount, Count: 1})
		require.NoError(t, err)
		addr, err = one.Resolve(&http.Request{RemoteAddr: "10.0.0.1:80", Header: http.Header{"X-Forwarded-For": {line, left + ",203.0.113.7"}}})
		require.NoError(t, err)
		require.Equal(t, fuzzClient, addr)

		single, err := keyfunc.NewClientIP(keyfunc.Trust{
			Strategy: keyfunc.SingleHeader, Header: "X-Real-IP", TrustedProxies: []string{"10.0.0.0/8"},
		})
		require.NoError(t, err)
		addr, err = single.Resolve(&http.Request{RemoteAddr: "10.0.0.1:80", Header: http.Header{"X-Real-Ip": {line, left}}})
		require.ErrorIs(t, err, keyfunc.ErrInvalidForwarded)
		require.Equal(t, fuzzProxy, addr)
	})
}

// FuzzForwarded is the same for Forwarded: no quote a client opens swallows or splices what the proxy has appended.
func FuzzForwarded(f *testing.F) {
	for _, s := range []string{
		`for=1.1.1.1`, `for="1.1.1.1`, `for="[::1]:80";proto=http`, `for="a\"`, `for=1.1.1.1;by="x,y"`, `"`, `\`, ``, `;`, `for=unknown`,
		`for=10.0.0.2`, `for=10.0.0.2;for=1.1.1.1`, `FOR="10.0.0.\2"`, `host="`, `,",`,
	} {
		f.Add(s, s)
	}
	c := fuzzTrust(f, keyfunc.Forwarded)
	f.Fuzz(func(t *testing.T, line, left string) {
		resolve := func(lines ...string) (netip.Addr, error) {
			return c.Resolve(&http.Request{RemoteAddr: "10.0.0.1:80", Header: http.Header{"Forwarded": lines}})
		}
		for _, lines := range [][]string{
			{left + ", for=203.0.113.7"}, {line, left + `,for="203.0.113.7:1";proto=https`}, {left + ",for=203.0.113.7", "for=10.0.0.2"},
		} {
			addr, err := resolve(lines...)
			require.NoError(t, err)
			require.Equal(t, fuzzClient, addr)
		}
		addr, err := resolve(line, left)
		checkWalk(t, addr, err)
	})
}

// FuzzEncode is the invariant of the encoding: it can be read back, so it is injective; and what it writes are the bytes
// of the grammar alone, whatever the value.
func FuzzEncode(f *testing.F) {
	f.Add("user", "bob@example.com", "a|ip=1.2.3.4")
	f.Add("user", "", "\x00\xff")
	f.Add("User", strings.Repeat("a", 129), strings.Repeat("|", 43))
	f.Fuzz(func(t *testing.T, kind, value, other string) {
		a, errA := keyText(request(), constant(kind, value))
		switch {
		case !kindPattern.MatchString(kind):
			require.ErrorContains(t, errA, "kind")
			return
		case value == "":
			require.ErrorIs(t, errA, keyfunc.ErrNoKey)
			return
		}
		require.NoError(t, errA)
		require.Regexp(t, partPattern, a)
		parts, err := split(a)
		require.NoError(t, err)
		require.Len(t, parts, 1)
		require.Equal(t, kind, parts[0].kind)
		if encoded := a[len(kind)+1:]; encoded[0] == '#' {
			require.Greater(t, encodedLen(value), 128)
		} else {
			require.LessOrEqual(t, len(encoded), 128)
			require.Equal(t, value, parts[0].value)
		}
		b, errB := keyText(request(), constant(kind, other))
		require.Equal(t, value == other, errB == nil && a == b)
	})
}

func encodedLen(value string) (n int) {
	for i := range len(value) {
		n += 3
		if strings.IndexByte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~:/", value[i]) >= 0 {
			n -= 2
		}
	}
	return n
}

// TestEncodingIsInjective: two lists of parts give one text only if they are the same list, nested or not, and the text
// splits back into the list.
func TestEncodingIsInjective(t *testing.T) {
	kinds := rapid.SampledFrom([]string{"a", "b", "ip", "user", "user_id", "all", "abcdefghijklmno0"})
	// Few letters, framing ones among them, so that lists nearly meet.
	values := rapid.OneOf(
		rapid.StringOfN(rapid.RuneFrom([]rune("a1|={}%#$:-")), 1, 4, -1),
		rapid.StringOfN(rapid.RuneFrom([]rune("a|")), 40, 160, -1),
		rapid.Custom(func(t *rapid.T) string { return string(rapid.SliceOfN(rapid.Byte(), 1, 50).Draw(t, "bytes")) }),
	)
	lists := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) part {
		return part{kinds.Draw(t, "kind"), values.Draw(t, "value")}
	}), 1, 5, func(p part) string { return p.kind })
	rapid.Check(t, func(t *rapid.T) {
		a, b := lists.Draw(t, "a"), lists.Draw(t, "b")
		r := request()
		encode := func(list []part, nested bool) string {
			var funcs []keyfunc.Func
			for _, p := range list {
				funcs = append(funcs, constant(p.kind, p.value))
			}
			f := keyfunc.Join(funcs...)
			if n := len(funcs) / 2; nested && n > 0 {
				f = keyfunc.Join(keyfunc.Join(funcs[:n]...), keyfunc.Join(funcs[n:]...))
			}
			text, err := keyText(r, f)
			require.NoError(t, err)
			return text
		}
		textA, textB := encode(a, false), encode(b, false)
		require.Equal(t, textA, encode(a, true))
		require.Equal(t, equalParts(a, b), textA == textB)
		back, err := split(textA)
		require.NoError(t, err)
		require.Len(t, back, len(a))
		for i, p := range a {
			require.Equal(t, p.kind, back[i].kind)
			if encodedLen(p.value) <= 128 {
				require.Equal(t, p.value, back[i].value)
			}
		}
	})
}

func equalParts(a, b []part) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// FuzzSources: nothing a client writes into a header, cookie or query makes a panic, an empty key or one of two values.
func FuzzSources(f *testing.F) {
	f.Add("a", "b", "id=1&id=2")
	f.Add("sid=1; sid=2", "sid=3", "i%64=%zz")
	f.Fuzz(func(t *testing.T, first, second, query string) {
		r := request()
		r.Header["X-Id"] = []string{first}
		r.Header["Cookie"] = []string{first, second}
		r.URL.RawQuery = query
		for _, src := range []keyfunc.Func{keyfunc.Header("X-Id"), keyfunc.Cookie("sid"), keyfunc.Query("id")} {
			key, err := keyText(r, src)
			if err != nil {
				require.ErrorIs(t, err, keyfunc.ErrNoKey)
				continue
			}
			require.Regexp(t, partPattern, key)
		}
		if key, err := keyText(r, keyfunc.Query("id")); err == nil {
			got := r.URL.Query()["id"]
			require.Len(t, got, 1)
			requireKey(t, key, r, constant("id", got[0]))
		}
		r.Header["X-Id"] = []string{first, second}
		_, err := keyText(r, keyfunc.Header("X-Id"))
		require.ErrorIs(t, err, keyfunc.ErrNoKey)
	})
}
