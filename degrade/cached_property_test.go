package degrade_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
)

// caller is who asks, as the model sees it: a partition, else nobody or somebody with credentials.
type caller struct {
	partition   string
	credentials []string
}

func (c caller) anonymous() bool { return c.partition == "" && len(c.credentials) == 0 }

// given is one response of the origin, and what was asked. Its body is its number.
type given struct {
	caller
	address  string
	varies   []string          // the fields it depends on
	values   map[string]string // of the request
	public   bool
	storable bool // as far as the response goes
	speaks   bool // the response may not be stored and takes copies away
	at       time.Time
	fresh    time.Duration // -1: not said
}

// The model knows of each response what the draw has put into it, and parses nothing. A copy that is served has to be of a
// response that may be, and of the newest such; and what was just stored is served.
func TestCachedProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keyed := rapid.Bool().Draw(t, "by the policy's key")
		rapid.SyncTest(t, func(t *rapid.T) { cachedRun(t, keyed) })
	})
}

// cachedRun tells callers by a Partition or, keyed, by the policy's key and their credentials.
func cachedRun(t *rapid.T, keyed bool) {
	cfg := degrade.PagesConfig{Partition: byIdentity, IgnoreCookies: []string{"_ga"}}
	if keyed {
		cfg.Partition = nil
	}
	p := degrade.NewPages(cfg)
	h := degrade.Cached(p)
	var all []given
	wrote := false
	lastWrite := map[string]time.Time{}
	callers := rapid.SampledFrom([]caller{
		{},
		{},
		{partition: "alice"},
		{partition: "bob"},
		{credentials: []string{"Authorization: Bearer 1"}},
		{credentials: []string{"Cookie: sid=1"}},
		{credentials: []string{"Cookie: _ga=1; sid=1"}},
		{partition: "alice", credentials: []string{"Authorization: Bearer 2"}},
		{partition: "alice", credentials: []string{"Authorization: Bearer 2", "Cookie: sid=1"}},
	})
	varied := []string{"Accept", "Accept-Language", "X-Tenant"}
	type visit struct {
		caller
		site   *site
		target string
		values map[string]string
		fields []string
	}
	draw := func() visit {
		v := visit{caller: callers.Draw(t, "caller"), values: map[string]string{}}
		v.site = &site{h: h, policy: rapid.SampledFrom([]string{"p", "q"}).Draw(t, "policy")}
		v.site.route = rapid.SampledFrom([]cacheRoute{"/", "/{x}"}).Draw(t, "route")
		v.target = rapid.SampledFrom([]string{
			"http://a.example/x", "http://A.example/x", "http://a.example/x?q", "http://b.example/x", "http://a.example/%78",
		}).Draw(t, "target")
		v.fields = slices.Clone(v.credentials)
		if v.partition != "" {
			v.fields = append(v.fields, "X-Identity: "+v.partition)
		} else if v.anonymous() && rapid.Bool().Draw(t, "analytics") {
			v.fields = append(v.fields, "Cookie: _ga=7")
		}
		for _, name := range varied {
			if value := rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, name); value != "" {
				v.values[name] = value
				v.fields = append(v.fields, name+": "+value)
			}
		}
		if keyed {
			v.site.key = keyfunc.Join(keyfunc.Func(byIdentity), keyfunc.Global())
			if v.partition != "" {
				v.partition += fmt.Sprintf("%q", v.credentials)
			}
		}
		return v
	}
	address := func(v visit) string {
		return v.site.policy + " " + string(v.site.route) + " " + strings.Replace(v.target, "A.", "a.", 1)
	}
	path := func(v visit) string { return strings.NewReplacer("A.", "a.", "?q", "", "%78", "x").Replace(v.target) }
	respond := func(v visit) {
		g := given{caller: v.caller, address: address(v), values: v.values, at: time.Now(), fresh: -1, storable: true}
		var fields []string
		status, control := 200, []string{}
		if rapid.IntRange(0, 2).Draw(t, "public") == 0 {
			g.public, control = true, append(control, rapid.SampledFrom([]string{"public", "Public"}).Draw(t, "spelling"))
		}
		if n := rapid.IntRange(-1, 90).Draw(t, "max-age"); n >= 0 {
			g.fresh, control = time.Duration(n)*time.Second, append(control, "max-age="+strconv.Itoa(n))
		}
		if rapid.IntRange(0, 4).Draw(t, "forbids") == 0 {
			g.storable = false
			what := rapid.SampledFrom([]string{
				"no-store", "private", `private="x"`, "no-cache", "must-revalidate", "proxy-revalidate", "s-maxage=60", ";", "Set-Cookie", "Vary", "404", "500", "302",
			}).Draw(t, "what")
			g.speaks = what != "500"
			switch what {
			case "Set-Cookie":
				fields = append(fields, "Set-Cookie: sid=2")
			case "Vary":
				fields = append(fields, "Vary: *")
			case "404", "500", "302":
				status, _ = strconv.Atoi(what)
			default:
				control = append(control, what)
			}
		}
		for _, name := range varied {
			if rapid.IntRange(0, 3).Draw(t, "varies") == 0 {
				g.varies = append(g.varies, name)
				fields = append(fields, "Vary: "+strings.ToLower(name))
			}
		}
		for _, d := range rapid.Permutation(control).Draw(t, "order") {
			if n := len(fields); n > 0 && strings.HasPrefix(fields[n-1], "Cache-Control") && rapid.Bool().Draw(t, "joined") {
				fields[n-1] += " , " + d
			} else {
				fields = append(fields, "Cache-Control: "+d)
			}
		}
		if rapid.IntRange(0, 9).Draw(t, "broken") == 0 {
			g.storable = false // nor does it take anything away but by its header
			fields = append(fields, "Content-Length: 99")
		}
		all = append(all, g)
		v.site.origin = func(w http.ResponseWriter, _ *http.Request) {
			setFields(w.Header(), fields)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, strconv.Itoa(len(all)-1))
		}
		v.site.allow(fetch(v.target, v.fields...))
	}
	refused := func(v visit) {
		rec := v.site.refuse(fetch(v.target, v.fields...))
		now := time.Now()
		matches := func(g given) bool {
			ok := g.address == address(v)
			for _, name := range g.varies {
				ok = ok && g.values[name] == v.values[name]
			}
			return ok
		}
		mine := func(g given) bool {
			return g.public || g.partition == v.partition && (g.partition != "" || g.anonymous() && v.anonymous())
		}
		lives := func(g given) bool { return now.Sub(g.at) <= max(g.fresh, 0)+time.Minute }
		if rec == nil {
			// The newest of this address, if it is for this request, must be there. Fields that older ones depend on count too.
			for k := len(all) - 1; k >= 0; k-- {
				if all[k].address != address(v) {
					continue
				}
				g := all[k]
				keeps := g.public || g.partition != "" || g.anonymous()
				require.False(t, !wrote && g.storable && keeps && mine(g) && maps.Equal(g.values, v.values) && lives(g), "%+v was not served to %+v", g, v)
				break
			}
			return
		}
		require.Equal(t, 200, rec.Code)
		k, err := strconv.Atoi(rec.Body.String())
		require.NoError(t, err)
		g := all[k]
		what := fmt.Sprintf("%+v to %+v", g, v)
		require.True(t, g.storable, what)
		require.True(t, mine(g), what)
		require.True(t, matches(g), what)
		require.True(t, lives(g), what)
		require.True(t, g.at.After(lastWrite[path(v)]), what)
		require.Empty(t, rec.Header()["Set-Cookie"])
		require.Equal(t, []string{strconv.Itoa(int(now.Sub(g.at) / time.Second))}, rec.Header()["Age"], what)
		for _, later := range all[k+1:] {
			if later.address != g.address {
				continue
			}
			// Nothing later speaks against it: by the same caller, or by anybody if it was for everybody.
			sameClass := later.partition == v.partition && (v.partition != "" || later.anonymous() == v.anonymous())
			require.False(t, later.speaks && sameClass && (g.public || mine(later)), "%s, after %+v", what, later)
			require.False(t, g.public && !later.public && !later.anonymous() && later.speaks, "%s, after %+v", what, later)
			// Nor is there a newer one for just this request, of the same kind.
			require.False(t, later.storable && mine(later) && maps.Equal(later.values, v.values) && later.public == g.public && later.anonymous() == g.anonymous() &&
				later.partition == g.partition && (later.public || later.partition != "" || later.anonymous()), "%s, after %+v", what, later)
		}
	}
	t.Repeat(map[string]func(*rapid.T){
		"allowed": func(rt *rapid.T) { t = rt; respond(draw()) },
		"again": func(rt *rapid.T) {
			t = rt
			v := draw()
			respond(v)
			refused(v)
		},
		"refused": func(rt *rapid.T) { t = rt; refused(draw()) },
		"written": func(rt *rapid.T) {
			t = rt
			if rapid.IntRange(0, 9).Draw(t, "rarely") > 0 {
				return
			}
			v := draw()
			v.site.origin = answers(200, "")
			v.site.allow(cacheRequest("POST", v.target, v.fields...))
			wrote, lastWrite[path(v)] = true, time.Now()
			letPass(time.Millisecond)
		},
		"later": func(rt *rapid.T) {
			t = rt
			letPass(time.Duration(rapid.IntRange(1, 40_000).Draw(t, "ms")) * time.Millisecond)
		},
	})
}

// letPass lets time pass in the bubble of a draw.
func letPass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
