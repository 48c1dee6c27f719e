package keyfunc_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

func constant(kind, value string) keyfunc.Func {
	return func(r *keyfunc.Request) (keyfunc.Key, error) { return r.Key(kind, value), nil }
}

func TestJoin(t *testing.T) {
	a, b, c := constant("a", "1"), constant("b", "2"), constant("c", "3")
	nobody := keyfunc.User(func(*keyfunc.Request) string { return "" })
	// messy makes keys it does not return, and kept returns one that was made before.
	messy := func(r *keyfunc.Request) (keyfunc.Key, error) {
		k := r.Key("m", "4")
		r.Key("scrap", "x")
		return k, nil
	}
	r := request()
	before := r.Key("k", "5")
	kept := func(*keyfunc.Request) (keyfunc.Key, error) { return before, nil }
	for _, tc := range []struct {
		want string
		f    keyfunc.Func
	}{
		{"a=1", keyfunc.Join(a)},
		{"a=1|b=2|c=3", keyfunc.Join(a, b, c)},
		{"c=3|b=2|a=1", keyfunc.Join(c, b, a)},
		{"a=1|b=2|c=3", keyfunc.Join(keyfunc.Join(a, b), keyfunc.Join(c))},
		{"a=1|ip=192.0.2.1", keyfunc.Join(a, keyfunc.First(nobody, keyfunc.IP()))},
		{"m=4|a=1", keyfunc.Join(messy, a)},
		{"a=1|m=4|b=2", keyfunc.Join(a, messy, b)},
		{"a=1|k=5", keyfunc.Join(a, kept)},
		{"k=5|a=1", keyfunc.Join(kept, a)},
		{"ip=192.0.2.1|a=1", keyfunc.Join(keyfunc.IP(), a)},
		{"a=1|ip=192.0.2.1", keyfunc.Join(a, keyfunc.IP())},
	} {
		requireKey(t, tc.want, r, tc.f)
		requireKey(t, tc.want, r, tc.f) // and again, now that some keys are remembered
	}
	require.Equal(t, "k=5", before.String())

	_, err := keyText(r, keyfunc.Join(a, nobody, b))
	require.ErrorIs(t, err, keyfunc.ErrNoKey)
	for name, f := range map[string]keyfunc.Func{
		"nothing":   keyfunc.Join(),
		"nil":       keyfunc.Join(a, nil),
		"same kind": keyfunc.Join(a, b, constant("a", "3")),
		"nested":    keyfunc.Join(keyfunc.Join(a, b), keyfunc.Join(c, b)),
		"bad kind":  keyfunc.Join(a, constant("B", "2")),
	} {
		_, err := keyText(r, f)
		require.ErrorIs(t, err, limiter.ErrInvalid, name)
		require.ErrorIs(t, keyfunc.Check(f), limiter.ErrInvalid, name)
	}
}

func TestJoinCopiesItsArguments(t *testing.T) {
	funcs := []keyfunc.Func{constant("a", "1"), constant("b", "2")}
	f := keyfunc.Join(funcs...)
	funcs[0] = constant("x", "9")
	requireKey(t, "a=1|b=2", request(), f)
}

func TestFirst(t *testing.T) {
	user := keyfunc.User(func(r *keyfunc.Request) string { return r.Header.Get("X-User") })
	f := keyfunc.First(user, keyfunc.IP())
	requireKey(t, "user=alice", request("X-User: alice"), f)
	requireKey(t, "ip=192.0.2.1", request(), f)
	// A user who is called like an address is not that address.
	requireKey(t, "user=192.0.2.1", request("X-User: 192.0.2.1"), f)

	_, err := keyText(request(), keyfunc.First(user, keyfunc.Header("X-None")))
	require.ErrorIs(t, err, keyfunc.ErrNoKey)

	own := errors.New("database away")
	failing := func(*keyfunc.Request) (keyfunc.Key, error) { return keyfunc.Key{}, own }
	_, err = keyText(request(), keyfunc.First(failing, keyfunc.IP()))
	require.ErrorIs(t, err, own)
	skipping := func(*keyfunc.Request) (keyfunc.Key, error) { return keyfunc.Key{}, keyfunc.ErrSkip }
	_, err = keyText(request(), keyfunc.First(skipping, keyfunc.IP()))
	require.ErrorIs(t, err, keyfunc.ErrSkip)
	for _, f := range []keyfunc.Func{keyfunc.First(), keyfunc.First(nil), keyfunc.First(constant("A", ""), keyfunc.IP())} {
		_, err = keyText(request(), f)
		require.ErrorIs(t, err, limiter.ErrInvalid)
	}
}

func TestHMAC(t *testing.T) {
	secret := []byte(vectorSecret)
	bob := constant("user", "bob@example.com")
	f := keyfunc.HMAC(secret, bob)
	requireKey(t, "user=$QHaJax8oBY2n-TlPMn-c7A", request(), f)
	secret[0] ^= 1
	requireKey(t, "user=$QHaJax8oBY2n-TlPMn-c7A", request(), f)
	other := keyfunc.HMAC([]byte("another secret of its own"), bob)
	requireKey(t, "user=$QHaJax8oBY2n-TlPMn-c7A", request(), keyfunc.HMAC([]byte("another secret of its own"), f))

	r := request()
	long := strings.Repeat("x", 5000)
	plain, err := keyText(r, keyfunc.IP()) // remembered in the clear
	require.NoError(t, err)
	keyed, err := keyText(r, keyfunc.Join(keyfunc.HMAC([]byte(vectorSecret), keyfunc.Join(keyfunc.IP(), bob, constant("l", long))),
		constant("a", "clear")))
	require.NoError(t, err)
	parts, err := split(keyed)
	require.NoError(t, err)
	require.Len(t, parts, 4)
	for i, kind := range []string{"ip", "user", "l"} {
		require.Equal(t, kind, parts[i].kind)
		require.Len(t, parts[i].value, 23)
		require.Equal(t, byte('$'), parts[i].value[0])
	}
	require.Equal(t, "$QHaJax8oBY2n-TlPMn-c7A", parts[1].value)
	require.Equal(t, "clear", parts[3].value)
	requireKey(t, plain, r, keyfunc.IP())
	differs, err := keyText(r, other)
	require.NoError(t, err)
	require.NotEqual(t, "user=$QHaJax8oBY2n-TlPMn-c7A", differs)

	_, err = keyText(r, keyfunc.HMAC([]byte(vectorSecret), constant("user", "")))
	require.ErrorIs(t, err, keyfunc.ErrNoKey)
	made := r.Key("user", "bob@example.com")
	leaky := func(*keyfunc.Request) (keyfunc.Key, error) { return made, nil }
	for name, f := range map[string]keyfunc.Func{
		"short secret": keyfunc.HMAC([]byte("0123456789abcde"), bob),
		"nil":          keyfunc.HMAC([]byte(vectorSecret), nil),
		"leaky":        keyfunc.HMAC([]byte(vectorSecret), leaky),
	} {
		_, err = keyText(r, f)
		require.ErrorIs(t, err, limiter.ErrInvalid, name)
	}
}

func TestHMACEndsWithAPanic(t *testing.T) {
	r := request()
	f := keyfunc.HMAC([]byte(vectorSecret), func(*keyfunc.Request) (keyfunc.Key, error) { panic("no") })
	require.Panics(t, func() { _, _ = r.Resolve(f) })
	requireKey(t, "user=bob", r, constant("user", "bob"))
}

func TestCheck(t *testing.T) {
	panics := keyfunc.User(func(*keyfunc.Request) string { panic("no session") })
	panicsToo := func(*keyfunc.Request) (keyfunc.Key, error) { panic("no session") }
	nobody := keyfunc.Tenant(func(*keyfunc.Request) string { return "" })
	badIP := keyfunc.IP(keyfunc.IPv6Prefix(16))
	for name, f := range map[string]keyfunc.Func{
		"panic":                        panics,
		"panic in a Func":              panicsToo,
		"no key":                       nobody,
		"other error":                  func(*keyfunc.Request) (keyfunc.Key, error) { return keyfunc.Key{}, errors.New("away") },
		"skip":                         func(*keyfunc.Request) (keyfunc.Key, error) { return keyfunc.Key{}, keyfunc.ErrSkip },
		"alternatives of one kind":     keyfunc.First(keyfunc.Join(nobody, keyfunc.IP()), keyfunc.IP()),
		"everything":                   keyfunc.Join(nobody, keyfunc.Route(), keyfunc.First(panics, keyfunc.IP()), keyfunc.Global()),
		"keyed":                        keyfunc.HMAC([]byte(vectorSecret), keyfunc.Join(keyfunc.IP(), nobody)),
		"headers, cookies and queries": keyfunc.Join(keyfunc.Header("A"), keyfunc.Cookie("b"), keyfunc.Query("c"), keyfunc.Param("d"), keyfunc.Value("e")),
	} {
		require.NoError(t, keyfunc.Check(f), name)
	}
	for name, f := range map[string]keyfunc.Func{
		"nil":                       nil,
		"range":                     badIP,
		"after a part without key":  keyfunc.Join(nobody, badIP),
		"after a panic":             keyfunc.Join(panics, panicsToo, badIP),
		"after a part with a key":   keyfunc.First(keyfunc.IP(), badIP),
		"in HMAC":                   keyfunc.HMAC([]byte(vectorSecret), keyfunc.First(nobody, badIP)),
		"nil user":                  keyfunc.User(nil),
		"nil tenant":                keyfunc.First(keyfunc.IP(), keyfunc.Tenant(nil)),
		"kind twice for some":       keyfunc.Join(keyfunc.First(nobody, keyfunc.IP()), keyfunc.IP()),
		"kind twice for others":     keyfunc.Join(keyfunc.First(nobody, keyfunc.IP()), nobody),
		"kind twice in spite of it": keyfunc.Join(panics, panics),
		"names of one kind":         keyfunc.Join(keyfunc.Header("X-Id"), keyfunc.Query("x_id")),
	} {
		require.ErrorIs(t, keyfunc.Check(f), limiter.ErrInvalid, name)
	}
}
