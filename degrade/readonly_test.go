package degrade_test

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// matchedRoute is a framework that has matched a route.
type matchedRoute string

func (r matchedRoute) Route() string          { return string(r) }
func (matchedRoute) Param(string) string      { return "" }
func (matchedRoute) Value(string) (any, bool) { return nil, false }

// guarded is a request as a guard hands it on; fields are pairs.
func guarded(t require.TestingT, method, target, route string, fields ...string) *keyfunc.Request {
	req, err := http.NewRequest(method, "http://a.example"+target, nil)
	require.NoError(t, err)
	for k := 0; k < len(fields); k += 2 {
		req.Header.Add(fields[k], fields[k+1])
	}
	r := new(keyfunc.Request)
	r.Reset(req, matchedRoute(route), nil)
	return r
}

// countedBudget is a budget of n units that counts how often it is asked.
type countedBudget struct{ n, asked int }

func (p *countedBudget) take(context.Context, string, limiter.Limit) (limiter.Decision, error) {
	p.asked++
	return limiter.Decision{Allowed: p.asked <= p.n}, nil
}

// denyRead asks h in a budget as a guard does.
func denyRead(h degrade.Handler, r *keyfunc.Request, d *degrade.Denial) degrade.Outcome {
	d.Request, d.Mode = r, degrade.ModeOf(h)
	return degrade.Within(limiter.PerMinute(1), h).Degrade(httptest.NewRecorder(), r.Request, d)
}

func anyRequest(*keyfunc.Request) bool { return true }

func panics(*keyfunc.Request) bool { panic("boom") }

func TestReadOnlyReads(t *testing.T) {
	routes := func(patterns ...string) degrade.ReadOnlyConfig { return degrade.ReadOnlyConfig{ReadRoutes: patterns} }
	for name, c := range map[string]struct {
		cfg    degrade.ReadOnlyConfig
		method string
		target string
		route  string
		fields []string
		read   bool
	}{
		"GET":             {method: "GET", read: true},
		"HEAD":            {method: "HEAD", read: true},
		"OPTIONS":         {method: "OPTIONS", read: true},
		"POST":            {method: "POST"},
		"PUT":             {method: "PUT"},
		"PATCH":           {method: "PATCH"},
		"DELETE":          {method: "DELETE"},
		"TRACE":           {method: "TRACE"},
		"CONNECT":         {method: "CONNECT", cfg: routes("/")},
		"QUERY":           {method: "QUERY"},
		"lower case":      {method: "get"},
		"upgrade":         {method: "GET", fields: []string{"Connection", "upgrade", "Upgrade", "websocket"}},
		"upgrade, empty":  {method: "GET", fields: []string{"Upgrade", ""}},
		"upgrade, routed": {method: "GET", cfg: routes("GET /"), fields: []string{"Upgrade", "websocket"}},
		"upgrade, told":   {method: "GET", cfg: degrade.ReadOnlyConfig{Reads: anyRequest}, fields: []string{"Upgrade", "websocket"}, read: true},

		"override":             {method: "GET", fields: []string{"X-HTTP-Method-Override", "DELETE"}},
		"override, lower case": {method: "POST", target: "/search", cfg: routes("POST /search"), fields: []string{"x-http-method", "delete"}},
		"override, second":     {method: "GET", fields: []string{"X-Method-Override", "GET", "X-Method-Override", "PUT"}},
		"override, told":       {method: "POST", cfg: degrade.ReadOnlyConfig{Reads: anyRequest}, fields: []string{"X-HTTP-Method-Override", "PATCH"}},
		"override, harmless":   {method: "GET", fields: []string{"X-HTTP-Method-Override", " get "}, read: true},
		"override to a read":   {method: "POST", fields: []string{"X-HTTP-Method-Override", "GET"}},

		"told":                  {method: "POST", cfg: degrade.ReadOnlyConfig{Reads: anyRequest}, read: true},
		"told otherwise":        {method: "GET", cfg: degrade.ReadOnlyConfig{Writes: anyRequest}},
		"told both":             {method: "GET", cfg: degrade.ReadOnlyConfig{Writes: anyRequest, Reads: anyRequest, ReadRoutes: []string{"/"}}},
		"reads panics":          {method: "POST", cfg: degrade.ReadOnlyConfig{Reads: panics}},
		"reads is not asked":    {method: "GET", cfg: degrade.ReadOnlyConfig{Reads: panics}, read: true},
		"writes panics":         {method: "GET", cfg: degrade.ReadOnlyConfig{Writes: panics, Reads: anyRequest}},
		"writes panics, routed": {method: "POST", cfg: degrade.ReadOnlyConfig{Writes: panics, ReadRoutes: []string{"/"}}},

		"route":               {method: "POST", target: "/search", cfg: routes("POST /search"), read: true},
		"another method":      {method: "PUT", target: "/search", cfg: routes("POST /search")},
		"any method":          {method: "DELETE", target: "/search", cfg: routes("/search"), read: true},
		"second":              {method: "POST", target: "/login", cfg: routes("POST /search", "POST /login"), read: true},
		"overlapping":         {method: "POST", target: "/a/b", cfg: routes("POST /{x}/b", "POST /a/{y}"), read: true},
		"longer":              {method: "POST", target: "/search/x", cfg: routes("POST /search")},
		"query":               {method: "POST", target: "/search?x=/delete", cfg: routes("POST /search"), read: true},
		"below":               {method: "POST", target: "/search/a/b", cfg: routes("POST /search/"), read: true},
		"below, nothing":      {method: "POST", target: "/search", cfg: routes("POST /search/")},
		"two, one below":      {method: "POST", target: "/a/b", cfg: routes("POST /a/", "POST /a/b/"), read: true},
		"parameter":           {method: "POST", target: "/a/7/find", cfg: routes("POST /a/{id}/find"), read: true},
		"parameter, UTF-8":    {method: "POST", target: "/a/%C3%A4%20b/find", cfg: routes("POST /a/{id}/find"), read: true},
		"parameter, no value": {method: "POST", target: "/a//find", cfg: routes("POST /a/{id}/find")},
		"host":                {method: "POST", target: "/search", cfg: routes("POST a.example/search"), read: true},
		"another host":        {method: "POST", target: "/search", cfg: routes("POST b.example/search")},
		"root":                {method: "POST", target: "/", cfg: routes("POST /{$}"), read: true},
		"not the root":        {method: "POST", target: "/x", cfg: routes("POST /{$}")},

		// What one router reads as a search may be a deletion to another.
		"dots":             {method: "POST", target: "/search/../delete", cfg: routes("POST /search/")},
		"dots to a search": {method: "POST", target: "/delete/../search", cfg: routes("POST /search")},
		"doubled slash":    {method: "POST", target: "//search", cfg: routes("POST /search")},
		"escaped dots":     {method: "POST", target: "/search/%2e%2e/delete", cfg: routes("POST /search/")},
		"escaped slash":    {method: "POST", target: "/search/..%2Fdelete", cfg: routes("POST /search/")},
		"escaped letter":   {method: "POST", target: "/se%61rch", cfg: routes("POST /search")},
		"clean by route":   {method: "POST", target: "/se%61rch", route: "/search", cfg: routes("POST /search"), read: true},

		"by route of Gin":       {method: "POST", target: "/v//a/7/find", route: "/a/:id/find", cfg: routes("POST /a/{x}/find"), read: true},
		"by route of Echo":      {method: "POST", target: "/v//a/7", route: "/a/*", cfg: routes("POST /a/"), read: true},
		"by route of ServeMux":  {method: "POST", target: "/v//a/7", route: "/a/{id}", cfg: routes("POST /a/{x}"), read: true},
		"route, other literal":  {method: "POST", target: "/v//a/7", route: "/a/:id", cfg: routes("POST /a/7")},
		"route, other method":   {method: "PUT", target: "/v//a/7", route: "/a/:id", cfg: routes("POST /a/{x}")},
		"route below is more":   {method: "POST", target: "/v//a/7", route: "/a/*rest", cfg: routes("POST /a/{x}", "POST /a/{$}")},
		"route is everything":   {method: "POST", target: "/v//a/7", route: "/", cfg: routes("POST /a/", "POST /{x}", "POST /{$}")},
		"no route":              {method: "POST", target: "/v//a/7", cfg: routes("POST /")},
		"route with no pattern": {method: "POST", target: "/v//a/7", route: "/a/:id"},
	} {
		t.Run(name, func(t *testing.T) {
			target := c.target
			if target == "" {
				target = "/x"
			}
			budget := &countedBudget{n: 1}
			d := &degrade.Denial{Key: limiter.Key{ID: "ip=192.0.2.1"}, Budget: budget.take}
			h := degrade.ReadOnly(c.cfg)
			require.NoError(t, degrade.Validate(degrade.Within(limiter.PerMinute(1), h)))
			out := denyRead(h, guarded(t, c.method, target, c.route, c.fields...), d)
			if c.read {
				require.Equal(t, degrade.Proceed, out)
				require.Equal(t, 1, budget.asked)
				require.Equal(t, degrade.ModeReadOnly, d.Mode)
			} else {
				require.Equal(t, degrade.Refuse, out)
				require.Zero(t, budget.asked)
			}
			require.Equal(t, !c.read, d.ReadOnly)
			require.Equal(t, degrade.Quota, d.Cause)
		})
	}
}

// A write is the service's to refuse where the limit is everybody's, whatever the guard has made of the cause.
func TestReadOnlyCause(t *testing.T) {
	for id, want := range map[string]degrade.Cause{
		"all=-":                      degrade.Capacity,
		"all=-|route=POST%20/x":      degrade.Capacity,
		"route=POST%20/x":            degrade.Capacity,
		"ip=192.0.2.1":               degrade.Quota,
		"all=-|ip=192.0.2.1":         degrade.Quota,
		"ip=192.0.2.1|all=-":         degrade.Quota,
		"ip=192.0.2.1|route=GET%20/": degrade.Quota,
		"all=x":                      degrade.Quota,
		"":                           degrade.Quota,
	} {
		for _, before := range []degrade.Cause{degrade.Quota, degrade.Capacity} {
			d := &degrade.Denial{Key: limiter.Key{ID: id}, Cause: before}
			require.Equal(t, degrade.Refuse, denyRead(degrade.ReadOnly(), guarded(t, "POST", "/", ""), d))
			require.Equal(t, max(want, before), d.Cause, id)
		}
	}
	r := guarded(t, "POST", "/x", "/x")
	key, err := keyfunc.Join(keyfunc.Global(), keyfunc.Route())(r)
	require.NoError(t, err)
	d := &degrade.Denial{Key: limiter.Key{ID: key.String()}}
	denyRead(degrade.ReadOnly(), r, d)
	require.Equal(t, degrade.Capacity, d.Cause, key.String())
}

// What has served reads is the budget, and who is over it may be served by the next in the chain. Writes are nobody's.
func TestReadOnlyBudget(t *testing.T) {
	budget := &countedBudget{n: 1000}
	var behind int
	next := degrade.Func(func(http.ResponseWriter, *http.Request, *degrade.Denial) degrade.Outcome {
		behind++
		return degrade.Done
	})
	h := degrade.First(degrade.Within(limiter.PerMinute(1), degrade.ReadOnly()), next)
	got := map[degrade.Outcome]int{}
	for k := range 100_000 {
		method := "GET"
		if k%2 == 0 {
			method = "POST"
		}
		r := guarded(t, method, "/", "")
		got[h.Degrade(httptest.NewRecorder(), r.Request, &degrade.Denial{Request: r, Budget: budget.take})]++
	}
	require.Equal(t, map[degrade.Outcome]int{degrade.Proceed: 1000, degrade.Refuse: 50_000, degrade.Done: 49_000}, got)
	require.Equal(t, 50_000, budget.asked)
	require.Equal(t, 49_000, behind)
	failing := &degrade.Denial{Budget: func(context.Context, string, limiter.Limit) (limiter.Decision, error) {
		return limiter.Decision{Allowed: true}, errors.New("away")
	}}
	require.Equal(t, degrade.Skip, denyRead(degrade.ReadOnly(), guarded(t, "GET", "/", ""), failing))
	require.Equal(t, degrade.Skip, denyRead(degrade.ReadOnly(), guarded(t, "GET", "/", ""), new(degrade.Denial)), "outside of a guard there is no budget")
}

// A panic is reported once, and a write all the same.
func TestReadOnlyReportsPanics(t *testing.T) {
	var seen []any
	d := &degrade.Denial{Contain: func(p any) bool { seen = append(seen, p); return true }}
	require.Equal(t, degrade.Refuse, denyRead(degrade.ReadOnly(degrade.ReadOnlyConfig{Reads: panics}), guarded(t, "POST", "/", ""), d))
	require.Equal(t, []any{"boom"}, seen)
	require.True(t, d.ReadOnly)
}

// Without a guard the request itself is read.
func TestReadOnlyAlone(t *testing.T) {
	h := degrade.ReadOnly(degrade.ReadOnlyConfig{
		ReadRoutes: []string{"POST /search"},
		Reads:      func(r *keyfunc.Request) bool { return r.Header.Get("X-Read") != "" },
	})
	for want, r := range map[degrade.Outcome]*http.Request{
		degrade.Proceed: httptest.NewRequest("POST", "/search", nil),
		degrade.Refuse:  httptest.NewRequest("POST", "/delete", nil),
	} {
		require.Equal(t, want, h.Degrade(httptest.NewRecorder(), r, new(degrade.Denial)))
	}
}

// What a handler around this one has made of the request is not what would proceed.
func TestReadOnlyGoesByTheGuardsRequest(t *testing.T) {
	d := &degrade.Denial{Request: guarded(t, "DELETE", "/", ""), Budget: (&countedBudget{n: 1}).take}
	out := degrade.Within(limiter.PerMinute(1), degrade.ReadOnly()).Degrade(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), d)
	require.Equal(t, degrade.Refuse, out)
}

func TestReadOnlyValidate(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  []degrade.ReadOnlyConfig
		want []string
	}{
		"none":        {nil, nil},
		"zero":        {[]degrade.ReadOnlyConfig{{}}, nil},
		"two":         {[]degrade.ReadOnlyConfig{{}, {}}, []string{"2 configs"}},
		"latch":       {[]degrade.ReadOnlyConfig{{Latch: 1}}, nil},
		"latch, NaN":  {[]degrade.ReadOnlyConfig{{Latch: math.NaN()}}, []string{"Latch: NaN"}},
		"latch, big":  {[]degrade.ReadOnlyConfig{{Latch: 1.1}}, []string{"Latch: 1.1"}},
		"latch, less": {[]degrade.ReadOnlyConfig{{Latch: -0.1}}, []string{"Latch: -0.1"}},
		"all at once": {
			[]degrade.ReadOnlyConfig{{Latch: 2, ReadRoutes: []string{"", "post /x", "POST/x", "POST /x/:id", "/x/*", "POST /x", "/{a}/{a}"}}, {}},
			[]string{
				"2 configs", "Latch: 2", `route ""`, `"post /x": methods are in upper case`, `"POST" is read as a host`,
				`"POST /x/:id": write {name}`, `"/x/*": write`, `"/{a}/{a}"`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := degrade.ReadOnly(c.cfg...)
			require.Equal(t, degrade.ModeReadOnly, degrade.ModeOf(h))
			err := degrade.Validate(degrade.Within(limiter.PerMinute(1), h))
			if c.want == nil {
				require.NoError(t, err)
				require.ErrorContains(t, degrade.Validate(h), "needs a budget")
				return
			}
			require.ErrorIs(t, err, limiter.ErrInvalid)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
			require.NotContains(t, err.Error(), `"POST /x"`)
		})
	}
}

// A denied write never proceeds and never costs a read's allowance, whatever it looks like; a read always costs one unit.
func TestReadOnlyProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		method := rapid.SampledFrom([]string{"GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "TRACE", "CONNECT", "QUERY", "get"}).Draw(t, "method")
		segment := rapid.SampledFrom([]string{"search", "delete", "..", ".", "", "%2e%2e", "a%2Fb", "7"})
		target := "/" + strings.Join(rapid.SliceOfN(segment, 0, 4).Draw(t, "path"), "/")
		var fields []string
		for _, name := range []string{"Upgrade", "X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"} {
			if rapid.IntRange(0, 4).Draw(t, name) == 0 {
				fields = append(fields, name, rapid.SampledFrom([]string{"GET", "delete", "websocket", ""}).Draw(t, name+" value"))
			}
		}
		predicate := func(label string) (func(*keyfunc.Request) bool, string) {
			says := rapid.SampledFrom([]string{"none", "yes", "no", "panic"}).Draw(t, label)
			switch says {
			case "none":
				return nil, says
			case "panic":
				return panics, says
			}
			return func(*keyfunc.Request) bool { return says == "yes" }, says
		}
		cfg := degrade.ReadOnlyConfig{ReadRoutes: []string{"POST /search/"}}
		var reads, writes string
		cfg.Reads, reads = predicate("reads")
		cfg.Writes, writes = predicate("writes")
		if rapid.Bool().Draw(t, "latch") {
			cfg.Latch = 0.5
		}
		r := guarded(t, method, target, "", fields...)
		n := rapid.IntRange(0, 1).Draw(t, "budget")
		budget := &countedBudget{n: n}
		d := &degrade.Denial{Budget: budget.take, Contain: func(any) bool { return true }}
		chain := degrade.First(degrade.Within(limiter.PerMinute(1), degrade.ReadOnly(cfg)), returns(degrade.Proceed))
		require.NoError(t, degrade.Validate(chain))
		d.Request = r
		out := chain.Degrade(httptest.NewRecorder(), r.Request, d)

		upgrade, override := false, false
		for k := 0; k < len(fields); k += 2 {
			upgrade = upgrade || fields[k] == "Upgrade"
			override = override || fields[k] != "Upgrade" && fields[k+1] != "GET"
		}
		search := method == "POST" && strings.HasPrefix(target, "/search/") && !strings.Contains(target, "//") &&
			!strings.Contains(target, "/.") && !strings.Contains(target, "%")
		known := !upgrade && (method == "GET" || method == "HEAD" || method == "OPTIONS" || search)
		read := !override && writes != "yes" && writes != "panic" && (known || reads == "yes")
		if !read {
			require.Equal(t, degrade.Refuse, out)
			require.True(t, d.ReadOnly)
			require.Zero(t, budget.asked)
			return
		}
		require.Equal(t, 1, budget.asked)
		require.False(t, d.ReadOnly)
		require.Equal(t, degrade.Proceed, out)
		if n == 0 {
			require.Equal(t, degrade.ModeFunc, d.Mode, "the next one's turn")
		} else {
			require.Equal(t, degrade.ModeReadOnly, d.Mode)
		}
	})
}

func TestPathsOf(t *testing.T) {
	for route, want := range map[string][]string{
		"":                    nil,
		"x":                   nil,
		"/":                   {"/", "/{}/{}"},
		"/a":                  {"/a"},
		"/a/":                 {"/a/", "/a/{}/{}"},
		"/a/{$}":              {"/a/"},
		"/a/:id/b":            {"/a/{}/b"},
		"/a/{id}":             {"/a/{}"},
		"/a/{rest...}":        {"/a/", "/a/{}/{}"},
		"/a/*rest":            {"/a/", "/a/{}/{}"},
		"/a/*/b":              {"/a/", "/a/{}/{}"},
		"a.example/a":         {"/a"},
		"/v1/items:batch/:id": {"/v1/{}/{}"},
	} {
		require.Equal(t, want, degrade.PathsOf(route), route)
	}
}

// Spellings that programs behind CGI and WSGI read as a method override are one.
func TestReadOnlyFoldedOverride(t *testing.T) {
	for _, name := range []string{"X_HTTP_METHOD_OVERRIDE", "X_Http-Method", "X-Method_Override"} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header[name] = []string{"DELETE"}
		d := &degrade.Denial{}
		require.Equal(t, degrade.Refuse, degrade.ReadOnly().Degrade(httptest.NewRecorder(), r, d), name)
		require.True(t, d.ReadOnly)
		r.Header[name] = []string{"get"}
		require.Equal(t, degrade.Proceed, degrade.ReadOnly().Degrade(httptest.NewRecorder(), r, &degrade.Denial{}), name)
	}
}
