package keyfunc_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

func TestHeader(t *testing.T) {
	f := keyfunc.Header("x-API-key")
	requireKey(t, "x_api_key=abc", request("X-Api-Key: abc"), f)
	requireKey(t, "x_api_key=a%2C%20b", request("X-Api-Key: \t a, b "), f)
	for name, lines := range map[string][]string{
		"absent":           nil,
		"empty":            {"X-Api-Key: "},
		"blank":            {"X-Api-Key:  \t"},
		"two lines":        {"X-Api-Key: a", "X-Api-Key: b"},
		"two equal lines":  {"X-Api-Key: a", "X-Api-Key: a"},
		"a line and none":  {"X-Api-Key: a", "X-Api-Key: "},
		"underscore":       {"X_Api_Key: a"},
		"another spelling": {"Xapikey: a"},
	} {
		_, err := keyText(request(lines...), f)
		require.ErrorIs(t, err, keyfunc.ErrNoKey, name)
	}
	for _, name := range []string{"", "host", "a b", "a:", "naïve", "x\n"} {
		require.ErrorIs(t, keyfunc.Check(keyfunc.Header(name)), limiter.ErrInvalid, name)
	}
}

func TestCookie(t *testing.T) {
	f := keyfunc.Cookie("sid")
	requireKey(t, "sid=abc", request("Cookie: theme=dark; sid=abc"), f)
	requireKey(t, "sid=abc", request("Cookie: theme=dark", "Cookie: sid=abc; x=y"), f)
	for name, lines := range map[string][]string{
		"absent":       nil,
		"empty":        {"Cookie: sid="},
		"twice":        {"Cookie: sid=a; sid=b"},
		"in two lines": {"Cookie: sid=a", "Cookie: sid=b"},
		"other case":   {"Cookie: SID=a"},
	} {
		_, err := keyText(request(lines...), f)
		require.ErrorIs(t, err, keyfunc.ErrNoKey, name)
	}
	for _, name := range []string{"", "a b", "a=b"} {
		require.ErrorIs(t, keyfunc.Check(keyfunc.Cookie(name)), limiter.ErrInvalid, name)
	}
}

func TestQuery(t *testing.T) {
	f := keyfunc.Query("id")
	query := func(raw string) *keyfunc.Request {
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		req.URL.RawQuery = raw
		return wrap(req, nil, nil)
	}
	for raw, want := range map[string]string{
		"id=7": "7", "a=b&id=7&c": "7", "i%64=7": "7", "id=%37": "7", "id=a+b": "a%20b", "id=a%2Bb": "a%2Bb",
		"&&id=7&": "7", "id=a=b": "a%3Db", "x=%zz&id=7": "7", "x;id=8&id=7": "7", "ID=8&id=7": "7", "%zz=1&id=7": "7",
	} {
		r := query(raw)
		requireKey(t, "id="+want, r, f)
		require.Len(t, r.URL.Query()["id"], 1, "net/http reads the same")
	}
	for _, raw := range []string{"", "id", "id=", "id=1&id=2", "id=1&i%64=2", "id=1&id=1", "id=%zz", "id=1&id=%zz", "id=&id=1", "id=1;", "ID=1"} {
		_, err := keyText(query(raw), f)
		require.ErrorIs(t, err, keyfunc.ErrNoKey, raw)
	}
	r := wrap(&http.Request{}, nil, nil)
	_, err := keyText(r, f)
	require.ErrorIs(t, err, keyfunc.ErrNoKey)
	for _, f := range []keyfunc.Func{keyfunc.Query(""), keyfunc.Param(""), keyfunc.Value("")} {
		require.ErrorIs(t, keyfunc.Check(f), limiter.ErrInvalid)
	}
}

func TestGlobal(t *testing.T) { requireKey(t, "all=-", request(), keyfunc.Global()) }

func TestEncode(t *testing.T) {
	for _, value := range []string{"a", "a|b=c", strings.Repeat("x", 129), "\x00"} {
		text, err := keyfunc.Encode("user", value)
		require.NoError(t, err)
		requireKey(t, text, request(), constant("user", value))
	}
	_, err := keyfunc.Encode("user", "")
	require.ErrorIs(t, err, keyfunc.ErrNoKey)
	_, err = keyfunc.Encode("User", "a")
	require.ErrorIs(t, err, limiter.ErrInvalid)
}

func TestKindOf(t *testing.T) {
	for name, want := range map[string]string{
		"id": "id", "X-Api-Key": "x_api_key", "x_api-KEY": "x_api_key", "abcdefghijklmnop": "abcdefghijklmnop",
	} {
		require.Equal(t, want, keyfunc.KindOf(name))
	}
	hashed := regexp.MustCompile(`^h_[0-9a-f]{8}$`)
	for _, name := range []string{"", "abcdefghijklmnopq", "1st", "_id", "a.b", "naïve", "a b"} {
		require.Regexp(t, hashed, keyfunc.KindOf(name))
		require.False(t, request().Key(keyfunc.KindOf(name), "x").IsZero())
	}
	require.Equal(t, keyfunc.KindOf("X-Very-Long-Header-Name"), keyfunc.KindOf("x-very-long-header-name"))
	require.NotEqual(t, keyfunc.KindOf("X-Very-Long-Header-Name"), keyfunc.KindOf("X-Very-Long-Header-Nami"))
	// SHA-256 of x_very_long_header_name
	require.Equal(t, "h_802a7ef3", keyfunc.KindOf("X-Very-Long-Header-Name"))
}

func TestValidName(t *testing.T) {
	for _, s := range []string{"a", "0", "api", "A.b_c-D", strings.Repeat("a", 64)} {
		require.True(t, keyfunc.ValidName(s), s)
	}
	for _, s := range []string{"", ".a", "-a", "_a", "a:b", "a{b", "a}b", "a b", "ä", "a\n", strings.Repeat("a", 65)} {
		require.False(t, keyfunc.ValidName(s), s)
	}
}
