package config_test

import (
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/middleware"
)

// many is a document of n policies that all have a chain, and what stands before them.
func many(n int, before, chain string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "version: 1\n%s\npolicies:\n", before)
	for k := range n {
		fmt.Fprintf(&b, "- {name: p%d, key: ip, limit: 1/s, degrade: %s}\n", k, chain)
	}
	return b.String()
}

// heap is what reading a document has cost and what is left of it, in bytes.
func heap(f func() any) (allocated, held int) {
	var before, after, end runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	x := f()
	runtime.ReadMemStats(&after)
	runtime.GC()
	runtime.ReadMemStats(&end)
	runtime.KeepAlive(x)
	return int(after.TotalAlloc - before.TotalAlloc), int(end.HeapAlloc) - int(before.HeapAlloc)
}

// What aliases multiply is bounded by its bytes, not by its number alone: texts, names, and the paths that names are part of.
func TestBytesOfAliases(t *testing.T) {
	size := 400_000
	if testing.Short() || raceEnabled {
		size /= 8
	}
	body := strings.Repeat("x", size)
	callers := "{" + numbered("c%d: 1/s,\n ", size/4) + "z: 1/s}"
	for name, text := range map[string]string{
		"one text":      many(300, "x-a: &a {static: {contents: [{type: text/plain, body: "+body+"}]}}", "*a"),
		"many texts":    many(150, "x-b: &b "+body+"\nx-a: &a {static: {contents: ["+numbered("{type: text/a%d, body: *b}, ", 600)+"{type: text/x, body: *b}]}}", "*a"),
		"one name":      many(300, "x-a: &a {static: {headers: {"+body+": x}, contents: [{type: text/plain, body: x}]}}", "*a"),
		"long paths":    "version: 1\npolicies:\n- {name: a, key: ip, limit: 1/s, overrides: {" + body + ": " + callers + "}}\n",
		"long lists":    "version: 1\npolicies:\n- {name: a, key: ip, limit: 1/s, degrade: {shed: {routes: {" + body + ": [" + fill("a,\n ", 30_000) + "a]}}}}\n",
		"aliased paths": "version: 1\nx-a: &a {" + numbered("c%d: 1/s,\n ", 50_000) + "z: 1/s}\npolicies:\n" + numbered("- {name: a%d, key: ip, limit: 1/s, overrides: {"+strings.Repeat("x", 2000)+": *a}}\n", 50_000),
		"often named":   "version: 1\nx-a: &a " + callers + "\npolicies:\n" + fill("- {name: a, overrides: {ip: *a}, plans: {from: x, limits: *a}}\n", 20_000),
	} {
		var found config.Findings
		allocated, held := heap(func() any {
			var doc *config.Document
			doc, found = config.Parse([]byte(text))
			return doc
		})
		require.Contains(t, strings.Join(ids(found), ","), "too_large", name)
		require.Less(t, allocated, 1<<30, name)
		require.Less(t, held, 200<<20, name)
	}
	_, found := config.Parse([]byte(many(6_000_000/size, "x-a: &a {static: {contents: [{type: text/plain, body: "+body+"}]}}", "*a")))
	require.Empty(t, found, "what people write fits")
}

// The caches of a document are few enough, and hold no more together than it says.
func TestCachesTogether(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"within":            {many(64, "", "cache"), nil},
		"above 4 GiB":       {many(65, "", "cache"), []string{"policies conflict"}},
		"small ones":        {many(1000, "", "{cache: {max_bytes: 65536, max_page: 1000}}"), nil},
		"too many":          {many(1001, "", "{cache: {max_bytes: 65536, max_page: 1000}}"), []string{"policies[1000].degrade[0].cache too_large"}},
		"above what it had": {many(2, "max_cache_bytes: 100000000", "cache"), []string{"max_cache_bytes conflict"}},
		"as much as it had": {many(2, "max_cache_bytes: 134217728", "cache"), nil},
		"one large one":     {many(1, "max_cache_bytes: 10000000000", "{cache: {max_bytes: 10000000000}}"), nil},
		"aliases":           {many(600, "x-a: &a ["+fill("cache, ", 100)+"cache]", "*a"), []string{"policies[66].degrade[10].cache too_large"}},
	} {
		_, found := config.Build(parsed(t, c.text), chainDeps(t))
		require.Equal(t, c.want, ids(found), name)
		for _, f := range found {
			require.Regexp(t, `^6[0-9] caches may hold 4\d{9} bytes together, above 4294967296$|^2 caches may hold 134217728 bytes together, above 100000000$|^more than 1000 caches$`, f.Message)
		}
	}
	d := chainDeps(t)
	store := degrade.NewMemoryStore(1 << 20)
	d.Copies = func(string) degrade.Store { return store }
	built(t, d, many(65, "", "cache"))
}

// A fixed answer that is written once is held once, whoever names it, and so is a file. Those of all may have so many bytes.
func TestBodiesAreShared(t *testing.T) {
	body := strings.Repeat("x", 100_000)
	cfg := built(t, chainDeps(t), many(80, "x-a: &a {static: {limit: 5/s, contents: [{type: text/plain, body: "+body+"}]}}", "*a"))
	first := degrade.Find[degrade.Spender](cfg.Policies[0].Degrade)
	for _, p := range cfg.Policies {
		require.Equal(t, first[len(first)-1], degrade.Find[degrade.Spender](p.Degrade)[len(first)-1])
	}

	d, read := chainDeps(t), 0
	d.Files = counted{fstest.MapFS{"a.txt": {Data: []byte(body)}}, &read}
	built(t, d, many(100, "", "{static: {contents: [{type: text/plain, file: a.txt}]}}"))
	each := read
	built(t, d, many(1, "", "{static: {contents: [{type: text/plain, file: a.txt}]}}"))
	require.Equal(t, 2*each, read)

	d.Files = fstest.MapFS{"a.txt": {Data: make([]byte, 1<<20)}}
	var b strings.Builder
	for k := range 70 {
		fmt.Fprintf(&b, "- {name: p%d, key: ip, limit: 1/s, degrade: {static: {headers: {X-A: a%[1]d}, contents: [{type: text/plain, file: a.txt}]}}}\n", k)
	}
	_, found := config.Build(parsed(t, "version: 1\npolicies:\n"+b.String()), d)
	require.Len(t, found, 6)
	require.Contains(t, found[0].Message, "the files of all contents have more than 67108864 bytes together")
	require.Equal(t, "policies[64].degrade[0].static", found[0].Path)
}

type counted struct {
	fs.FS
	opened *int
}

func (c counted) Open(name string) (fs.File, error) { *c.opened++; return c.FS.Open(name) }

// What serves requests needs a number.
func TestNoBudget(t *testing.T) {
	for _, name := range []string{"cache", "read_only", "flag"} {
		_, found := config.Build(parsed(t, "version: 1\npolicies: [{name: a, key: ip, limit: 1/d, degrade: {"+name+": {limit: unlimited}}}]"), chainDeps(t))
		require.Equal(t, []string{"policies[0].degrade[0]." + name + ".limit conflict"}, ids(found))
	}
	built(t, chainDeps(t), "version: 1\npolicies: [{name: a, key: ip, limit: 1/d, degrade: {redirect: {to: /wait, limit: unlimited}}}]")
}

// What any key of the document reads tells callers apart in every cache of it.
func TestKeysTellCopiesApart(t *testing.T) {
	who := func(r *http.Request) string {
		return r.Header.Get("X-Customer") + r.URL.Query().Get("key")
	}
	for name, keys := range map[string]string{
		"a key":       "{name: b, match: {routes: [/elsewhere]}, key: header:X-Customer, limit: 9/s}",
		"of several":  "{name: b, match: {routes: [/elsewhere]}, key: [ip, 'header:x-customer'], limit: 9/s}",
		"first":       "{name: b, match: {routes: [/elsewhere]}, key: 'first(user, header:X-Customer)', limit: 9/s}",
		"a digest":    "{name: b, match: {routes: [/elsewhere]}, key: 'hmac(header:X-Customer)', limit: 9/s}",
		"a plan":      "{name: b, match: {routes: [/elsewhere]}, key: ip, limit: 9/s, plans: {from: header:X-Customer, limits: {gold: 9/s}}}",
		"a partition": "{name: b, match: {routes: [/elsewhere]}, key: ip, limit: 9/s, degrade: {cache: {partition: header:X-Customer}}}",
		"shed by":     "{name: b, match: {routes: [/elsewhere]}, key: ip, limit: 9/s, degrade: {shed: {by: header:X-Customer}}}",
		"registered":  "",
		"its source":  "",
	} {
		d := chainDeps(t)
		switch name {
		case "registered":
			d.Credentials = []string{"x-customer"}
		case "its source":
			d.Credentials = []string{"header:X-Customer"}
		}
		g, err := middleware.New(built(t, d, "version: 1\nkey_secret: 0123456789abcdef\npolicies: [{name: a, key: global, limit: 1/d, degrade: cache}, "+keys+"]"))
		require.NoError(t, err, name)
		seen := func(customer string) string {
			r := httptest.NewRequest("GET", "/account", nil)
			r.Header.Set("X-Customer", customer)
			w := httptest.NewRecorder()
			g.Serve(w, r, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "of "+who(r)) }))
			return w.Body.String()
		}
		require.Equal(t, "of alice", seen("alice"), name)
		require.NotContains(t, seen("bob"), "alice", name)
	}
}

// A cache that leaves out what a key reads is a finding.
func TestCachesThatMix(t *testing.T) {
	for chain, want := range map[string][]string{
		"cache":                                 nil,
		"{cache: {query: [key, q]}}":            nil,
		"{cache: {query: [q]}}":                 {"policies[0].degrade[0].cache.query conflict"},
		"{cache: {query: []}}":                  {"policies[0].degrade[0].cache.query conflict"},
		"{cache: {ignore_cookies: [_ga]}}":      nil,
		"{cache: {ignore_cookies: [_ga, sid]}}": {"policies[0].degrade[0].cache.ignore_cookies[1] conflict"},
	} {
		text := "version: 1\npolicies: [{name: a, key: ip, limit: 1/d, degrade: " + chain + "}, "
		_, found := config.Build(parsed(t, text+"{name: b, key: 'first(query:key, cookie:sid)', stage: identity, limit: 9/s}]"), chainDeps(t))
		require.Equal(t, want, ids(found), chain)
		d := chainDeps(t)
		d.Credentials = []string{"query:key", "cookie:sid"}
		_, found = config.Build(parsed(t, text+"{name: b, key: ip, limit: 9/s}]"), d)
		require.Equal(t, want, ids(found), chain)
	}
}
