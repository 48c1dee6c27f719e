package keyfunc_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

func TestKeyNeverNamesStrangersAlike(t *testing.T) {
	r := request()
	for name, tc := range map[string]struct {
		key  keyfunc.Key
		want error
	}{
		"zero":                                 {keyfunc.Key{}, keyfunc.ErrNoKey},
		"empty value":                          {r.Key("user", ""), keyfunc.ErrNoKey},
		"empty kind":                           {r.Key("", "x"), limiter.ErrInvalid},
		"upper case":                           {r.Key("User", "x"), limiter.ErrInvalid},
		"digit first":                          {r.Key("1st", "x"), limiter.ErrInvalid},
		"too long":                             {r.Key("abcdefghijklmnopq", "x"), limiter.ErrInvalid},
		"equals":                               {r.Key("a=b", "x"), limiter.ErrInvalid},
		"bad and empty, so that Check sees it": {r.Key("User", ""), limiter.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			require.True(t, tc.key.IsZero())
			require.ErrorIs(t, tc.key.Err(), tc.want)
			require.Empty(t, tc.key.String())
			require.Empty(t, tc.key.In("whatever"))
			_, err := r.Resolve(func(*keyfunc.Request) (keyfunc.Key, error) { return tc.key, nil })
			require.ErrorIs(t, err, tc.want)
		})
	}
	ok := r.Key("abcdefghijklmno0", "x")
	require.False(t, ok.IsZero())
	require.NoError(t, ok.Err())
}

func TestKeyOfAnotherRequestIsRefused(t *testing.T) {
	r := request()
	kept := r.Key("user", "alice")
	f := func(*keyfunc.Request) (keyfunc.Key, error) { return kept, nil }
	requireKey(t, "user=alice", r, f)

	_, err := request().Resolve(f)
	require.ErrorIs(t, err, limiter.ErrInvalid, "a key of another Request")

	r.Reset(r.Request, nil, nil)
	r.Key("user", "mallory")
	_, err = r.Resolve(f)
	require.ErrorIs(t, err, limiter.ErrInvalid, "a key of an earlier request")
	require.Empty(t, kept.String())
}

func TestFreeze(t *testing.T) {
	r := request()
	require.Empty(t, r.Freeze())
	a := r.Key("user", "alice")
	frozen := r.Freeze()
	b := r.Key("tenant", "acme")
	require.Equal(t, "user=alice", a.In(frozen))
	require.Equal(t, "tenant=acme", b.In(frozen), "made after the text was frozen")
	require.Equal(t, "tenant=acme", b.In(r.Freeze()))
	r.Reset(nil, nil, nil)
	require.Equal(t, "user=alice", frozen, "immutable")
}

func TestResetDropsLargeBuffers(t *testing.T) {
	r := request()
	for range 100 {
		r.Key("user", strings.Repeat("x", 128))
	}
	r.Reset(r.Request, nil, nil)
	requireKey(t, "user=alice", r, constant("user", "alice"))
}

func TestResetAndKeysDoNotAllocate(t *testing.T) {
	req := httptest.NewRequest(http.MethodGet, "/?q=1", nil)
	req.Header.Set("X-Api-Key", "abc def")
	fw := &fake{route: "/users/:id", params: map[string]string{"id": "7"}, values: map[string]any{"user": "alice", "n": 7}}
	trust, err := keyfunc.NewClientIP(keyfunc.Trust{})
	require.NoError(t, err)
	f := keyfunc.Join(keyfunc.IP(), keyfunc.Route(), keyfunc.Header("X-Api-Key"), keyfunc.Query("q"),
		keyfunc.Param("id"), keyfunc.Value("user"), keyfunc.Value("n"), keyfunc.Global(),
		keyfunc.HMAC([]byte(vectorSecret), keyfunc.Tenant(func(*keyfunc.Request) string { return "acme" })))
	r := new(keyfunc.Request)
	allocs := testing.AllocsPerRun(100, func() {
		r.Reset(req, fw, trust)
		_, err = r.Resolve(f)
	})
	require.NoError(t, err)
	if !raceEnabled { // the race detector makes sync.Pool forget at random
		require.LessOrEqual(t, allocs, 1.0) // nine parts of a Join are a slice on the heap
	}
	text, err := keyText(r, f)
	require.NoError(t, err)
	require.Equal(t, "ip=192.0.2.1|route=GET%20/users/:id|x_api_key=abc%20def|q=1|id=7|user=alice|n=7|all=-|"+
		"tenant=$", text[:strings.Index(text, "$")+1])
}

func TestRoute(t *testing.T) {
	for _, tc := range []struct{ pattern, want string }{
		{"", ""},
		{"/users/:id", "/users/:id"},
		{"GET /users/{id}", "/users/{id}"},
		{"GET \t /users/{id}", "/users/{id}"},
		{"POST a.example/x", "a.example/x"},
		{"a.example/x", "a.example/x"},
		{"a.example/x y", "a.example/x y"},
		{"/a b/c", "/a b/c"},
		{"PURGE /cache/", "/cache/"},
		{"*", "*"},
	} {
		fw := &fake{route: tc.pattern}
		r := wrap(httptest.NewRequest("GET", "/", nil), fw, nil)
		require.Zero(t, fw.asked, "nobody has asked yet")
		require.Equal(t, tc.want, r.Route())
		require.Equal(t, tc.want, r.Route())
		require.Equal(t, 1, fw.asked)

		req := httptest.NewRequest("GET", "/", nil)
		req.Pattern = tc.pattern
		require.Equal(t, tc.want, wrap(req, nil, nil).Route())
	}
}

func TestRouteKeyMethods(t *testing.T) {
	for method, want := range map[string]string{
		"": "GET", "GET": "GET", "HEAD": "GET", "POST": "POST", "PUT": "PUT", "PATCH": "PATCH", "DELETE": "DELETE",
		"CONNECT": "CONNECT", "OPTIONS": "OPTIONS", "TRACE": "TRACE",
		"get": "OTHER", "FOO": "OTHER", "GET ": "OTHER", "QUERY": "OTHER",
	} {
		req := httptest.NewRequest("GET", "/", nil)
		req.Method = method
		req.Header.Set("X-Http-Method-Override", "DELETE")
		requireKey(t, "route="+want+"%20/x", wrap(req, &fake{route: "/x"}, nil), keyfunc.Route())
	}
}

// stringContext has values under plain strings, as some frameworks leave them.
type stringContext struct {
	context.Context
	values map[string]string
}

func (c stringContext) Value(key any) any {
	if name, ok := key.(string); ok {
		if v, ok := c.values[name]; ok {
			return v
		}
	}
	return c.Context.Value(key)
}

func TestParamAndValue(t *testing.T) {
	req := httptest.NewRequest("GET", "/", nil)
	req.SetPathValue("id", "7")
	req = req.WithContext(stringContext{req.Context(), map[string]string{"user": "bob"}})
	bare := wrap(req, nil, nil)
	require.Equal(t, "7", bare.Param("id"))
	requireKey(t, "id=7", bare, keyfunc.Param("id"))
	requireKey(t, "user=bob", bare, keyfunc.Value("user"))

	fw := &fake{params: map[string]string{"id": "8"}, values: map[string]any{
		"user": "alice", "int": -5, "int32": int32(-1), "uint": uint(3), "int64": int64(1) << 62, "uint32": uint32(9), "uint64": ^uint64(0), "float": 1.0, "bool": true,
		"nil": nil, "slice": []string{"a"}, "empty": "",
	}}
	r := wrap(req, fw, nil)
	require.Equal(t, "8", r.Param("id"))
	requireKey(t, "user=alice", r, keyfunc.Value("user"))
	requireKey(t, "int=-5", r, keyfunc.Value("int"))
	requireKey(t, "int64=4611686018427387904", r, keyfunc.Value("int64"))
	requireKey(t, "int32=-1", r, keyfunc.Value("int32"))
	requireKey(t, "uint=3", r, keyfunc.Value("uint"))
	requireKey(t, "uint32=9", r, keyfunc.Value("uint32"))
	requireKey(t, "uint64=18446744073709551615", r, keyfunc.Value("uint64"))
	for _, name := range []string{"float", "bool", "nil", "slice", "empty", "absent"} {
		_, err := keyText(r, keyfunc.Value(name))
		require.ErrorIs(t, err, keyfunc.ErrNoKey, name)
	}
	_, err := keyText(r, keyfunc.Param("absent"))
	require.ErrorIs(t, err, keyfunc.ErrNoKey)
}

func TestClientIPIsResolvedOncePerTrust(t *testing.T) {
	c, err := keyfunc.NewClientIP(keyfunc.Trust{Strategy: keyfunc.XForwardedFor, TrustedProxies: []string{"192.0.2.1"}})
	require.NoError(t, err)
	req := request("X-Forwarded-For: 203.0.113.7").Request
	r := wrap(req, nil, c)
	addr, err := r.ClientIP()
	require.NoError(t, err)
	require.Equal(t, "203.0.113.7", addr.String())
	req.RemoteAddr = "192.0.2.99:1" // what a middleware rewrites later does not change the answer
	requireKey(t, "ip=203.0.113.7", r, keyfunc.IP())
	requireKey(t, "ip=192.0.2.99", r, keyfunc.IP(keyfunc.TrustedBy(keyfunc.Trust{})))
	requireKey(t, "ip=203.0.113.0/24", r, keyfunc.IP(keyfunc.IPv4Prefix(24)))
	requireKey(t, "ip=203.0.113.7", r, keyfunc.IP())
}

func TestFallbackIsNoClientAddress(t *testing.T) {
	c, err := keyfunc.NewClientIP(keyfunc.Trust{Strategy: keyfunc.XForwardedFor, TrustedProxies: []string{"192.0.2.0/24"}})
	require.NoError(t, err)
	r := wrap(request("X-Forwarded-For: garbage").Request, nil, c)
	addr, err := r.ClientIP()
	require.ErrorIs(t, err, keyfunc.ErrInvalidForwarded)
	require.False(t, addr.IsValid(), "a list of exempt addresses must not match the proxy")
	require.NoError(t, r.Fallback(), "no key was made yet")
	requireKey(t, "ip=192.0.2.1", r, keyfunc.IP())
	require.Equal(t, keyfunc.ErrInvalidForwarded, r.Fallback())
	r.Reset(r.Request, nil, nil)
	require.NoError(t, r.Fallback())
	nearest, err := c.Resolve(r.Request)
	require.ErrorIs(t, err, keyfunc.ErrInvalidForwarded)
	require.Equal(t, "192.0.2.1", nearest.String())
}

func TestResolvePassesErrorsOn(t *testing.T) {
	own := errors.New("database away")
	k, err := request().Resolve(func(r *keyfunc.Request) (keyfunc.Key, error) { return r.Key("user", "x"), own })
	require.ErrorIs(t, err, own)
	require.True(t, k.IsZero())
}
