package degrade_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/limiter"
)

func TestStaticValidate(t *testing.T) {
	of := func(c ...degrade.Content) degrade.StaticConfig { return degrade.StaticConfig{Contents: c} }
	one := func(mime, language string) degrade.Content {
		return degrade.Content{Type: mime, Language: language, Body: []byte("x")}
	}
	with := func(name string, lines ...string) degrade.StaticConfig {
		return degrade.StaticConfig{Status: 200, Header: http.Header{name: lines}}
	}
	cached := func(status int, control string) degrade.StaticConfig {
		return degrade.StaticConfig{Status: status, CacheControl: control, Contents: plainText("x")}
	}
	for name, c := range map[string]struct {
		cfg  degrade.StaticConfig
		want []string
	}{
		"content":             {of(one("application/json", "")), nil},
		"with a charset":      {of(one("text/html; charset=GBK", "zh-Hans")), nil},
		"languages":           {of(one("text/html", ""), one("text/html", "en"), one("text/html", "zh-CN"), one("text/plain", "en")), nil},
		"status alone":        {degrade.StaticConfig{Status: 204}, nil},
		"as long as it may":   {of(degrade.Content{Type: "a/b", Body: make([]byte, degrade.MaxContent)}), nil},
		"stored for a moment": {cached(503, "public, max-age=5"), nil},
		"429 not stored":      {cached(429, "private, no-store"), nil},
		"empty field":         {with("X-A", ""), nil},
		"lowest":              {degrade.StaticConfig{Status: 200}, nil},
		"highest":             {degrade.StaticConfig{Status: 599}, nil},

		"nothing":             {degrade.StaticConfig{}, []string{"neither Status nor Contents"}},
		"informational":       {degrade.StaticConfig{Status: 103}, []string{"Status: 103, want 200…599"}},
		"too high":            {degrade.StaticConfig{Status: 600}, []string{"Status: 600"}},
		"negative":            {degrade.StaticConfig{Status: -1}, []string{"Status: -1"}},
		"204 with a body":     {degrade.StaticConfig{Status: 204, Contents: plainText("x")}, []string{"Status: 204 has no body"}},
		"205 with a body":     {degrade.StaticConfig{Status: 205, Contents: plainText("x")}, []string{"Status: 205 has no body"}},
		"304 with a body":     {degrade.StaticConfig{Status: 304, Contents: plainText("x")}, []string{"Status: 304 has no body"}},
		"no type":             {of(one("", "")), []string{`Contents[0]: Type: "" is no media type`}},
		"half a type":         {of(one("html", "")), []string{`Type: "html" is no media type`}},
		"half a type and /":   {of(one("text/", "")), []string{`Type: "text/" is no media type`}},
		"wildcard":            {of(one("text/*", "")), []string{`Type: "text/*" is no media type`}},
		"bad parameter":       {of(one("text/html; charset", "")), []string{`Type: "text/html; charset" is no media type`}},
		"two lines of a type": {of(one("text/html\r\nX-A: 1", "")), []string{`is no media type`}},
		"language":            {of(one("text/html", "english, please")), []string{`Contents[0]: Language: "english, please"`}},
		"twice":               {of(one("text/html", ""), one("a/b", ""), one("TEXT/html;a=b", "")), []string{"Contents[2]: text/html without a language is"}},
		"language twice":      {of(one("text/html", "zh-cn"), one("text/html", "zh-CN")), []string{"Contents[1]: text/html in zh-CN is there twice"}},
		"neither body nor":    {of(degrade.Content{Type: "text/html"}), []string{"Contents[0]: neither Body nor File"}},
		"body and file":       {of(degrade.Content{Type: "text/html", Body: []byte("x"), File: "a"}), []string{"Contents[0]: Body and File"}},
		"file of no FS":       {of(degrade.Content{Type: "text/html", File: "a"}), []string{`Contents[0]: File: "a", and no FS`}},
		"too long":            {of(degrade.Content{Type: "a/b", Body: make([]byte, 1<<20+1)}), []string{"Contents[0]: longer than 1048576 bytes"}},
		"429 stored":          {cached(429, "max-age=5"), []string{"CacheControl: \"max-age=5\": a 429 is never to be stored"}},
		"maybe 429 stored":    {cached(0, "private"), []string{"a 429 is never to be stored"}},
		"not quite no-store":  {cached(0, "x-no-store, no-storey"), []string{"a 429 is never to be stored"}},
		"split cache control": {cached(200, "public\r\nSet-Cookie: a=b"), []string{"is no value of a field"}},
		"no name":             {with("", "1"), []string{`Header: "" is no name of a field`}},
		"name with a blank":   {with("X A", "1"), []string{`Header: "X A" is no name`}},
		"name with a colon":   {with("Trailer:X", "1"), []string{`Header: "Trailer:X" is no name`}},
		"name of two lines":   {with("X-A\n", "1"), []string{`is no name`}},
		"split value":         {with("X-A", "1", "2\r\nSet-Cookie: a=b"), []string{`Header: X-A: "2\r\nSet-Cookie: a=b" is no value of a field`}},
		"zero byte":           {with("X-A", "\x00"), []string{`Header: X-A: "\x00" is no value`}},
		"two spellings":       {degrade.StaticConfig{Status: 200, Header: http.Header{"X-A": nil, "x-a": nil}}, []string{`"X-A" and "x-a" are one field`}},
		"draft field":         {with("RateLimit", "1"), []string{"Header: Ratelimit is of the limit"}},
		"policy field":        {with("ratelimit-policy", "1"), []string{"Header: Ratelimit-Policy is of the limit"}},
		"conventional field":  {with("X-RateLimit-Reset", "1"), []string{"Header: X-Ratelimit-Reset is of the limit"}},
		"everything at once": {
			degrade.StaticConfig{
				Status: 999, Header: http.Header{"Set-Cookie": {"a"}}, CacheControl: "\n",
				Contents: []degrade.Content{{Type: "x", Language: "?", Body: make([]byte, degrade.MaxContent+1)}, {Type: "a/b", Language: "??"}},
			},
			[]string{"Status: 999", "Set-Cookie", "CacheControl", "Contents[0]: Type", "Contents[0]: longer", "Contents[1]: neither", "Contents[1]: Language"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := degrade.Static(c.cfg)
			err := degrade.Validate(h)
			if c.want == nil {
				require.NoError(t, err)
				require.Equal(t, degrade.Done, ask(h, &degrade.Denial{Status: 429}))
				return
			}
			require.ErrorIs(t, err, limiter.ErrInvalid)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
			for line := range strings.SplitSeq(err.Error(), "\n") {
				require.True(t, strings.HasPrefix(line, "degrade: Static: limiter: invalid: "), line)
			}
			require.Equal(t, degrade.Skip, ask(h, &degrade.Denial{Status: 429}), "nothing wrong is served")
		})
	}
}

func TestStaticFieldsThatAreNotSet(t *testing.T) {
	for _, name := range []string{
		"content-type", "Content-Language", "Content-Length", "Content-Encoding", "Content-Range", "Cache-Control", "X-Content-Type-Options",
		"Set-Cookie", "Set-Cookie2", "Date", "Age", "Cache-Status", "Connection", "Keep-Alive", "Proxy-Connection",
		"TE", "Trailer", "Transfer-Encoding", "Upgrade", "Retry-After",
	} {
		err := degrade.Validate(degrade.Static(degrade.StaticConfig{Status: 200, Header: http.Header{name: {"1"}}}))
		require.ErrorContains(t, err, "Header: "+http.CanonicalHeaderKey(name)+" is ")
		require.ErrorContains(t, err, "and not to be set")
	}
}
