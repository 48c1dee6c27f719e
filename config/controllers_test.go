package config_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/adaptive"
	"github.com/spillway-go/spillway/middleware"
)

// isClosed tells a controller that has been closed.
func isClosed(c *adaptive.Controller) bool { return c.State().Fallback == adaptive.FallbackClosed }

// moving is a document of two adaptive policies.
func moving(a, b string) string {
	return "version: 1\npolicies:\n- {name: a, key: ip, adaptive: " + a + "}\n- {name: b, key: ip, limit: 100/s, mode: local, adaptive: " + b + "}\n"
}

// idle is an application whose processors have nothing to do.
func idle(t testing.TB) config.Deps {
	d := chainDeps(t)
	d.Adaptive = func(c *adaptive.Config) { c.CPUSource = func() (float64, bool) { return 0.1, true } }
	return d
}

// A controller lives on where the settings of its policy stay, is closed where they do not, and learns nothing from documents
// that are refused.
func TestControllersLiveOn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		source := &fake{}
		source.write(moving("{max: 500}", "{target: rate}"))
		f := following(t, source, idle(t))
		now := func(want ...*adaptive.Controller) []*adaptive.Controller {
			require.Equal(t, 200, code(f))
			all := f.Controllers().All()
			require.Len(t, all, 2)
			for k, c := range want {
				require.Equal(t, c == all[k], c != nil, "%d", k)
				require.False(t, isClosed(all[k]))
			}
			return all
		}
		write := func(text string) {
			source.write(text)
			later(2 * time.Second)
		}
		first := now()
		require.Positive(t, first[0].Bound())
		later(10 * time.Second)

		write("# the same\n" + moving("{max: 500}", "{target: rate}"))
		now(first[0], first[1])
		write(strings.Replace(moving("{max: 500}", "{target: rate, max: 200/s, min: 20/s}"), "100/s", "200/s", 1))
		second := now(first[0], nil)
		require.True(t, isClosed(first[1]))
		write(moving("{max: 500}", "{target: rate, max: 100/s, min: 10/s}")) // the same shares of another limit
		now(first[0], second[1])

		write(moving("{max: 400}", "{target: nonsense}"))
		now(first[0], second[1])
		write(moving("{max: 400}", "{target: rate, max: 100/s, min: 10/s}") + "- {name: c, key: who, limit: 1/s}\n")
		require.Error(t, f.Status().Err)
		now(first[0], second[1])

		write(moving("{max: 400}", "{target: rate, max: 100/s, min: 10/s}"))
		require.NoError(t, f.Status().Err)
		third := now()
		require.True(t, isClosed(first[0]))
		require.Contains(t, third, second[1])

		write("version: 1\n")
		require.Empty(t, f.Controllers().All())
		for _, c := range append(third, second...) {
			require.True(t, isClosed(c))
		}
		write(moving("{max: 400}", "{target: rate}"))
		now()
	}) // in which nothing runs any more
}

// Nothing runs behind a Follower that was closed without following, and not behind one that was told not to close.
func TestFollowerCloses(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	source := &fake{}
	source.write(moving("{max: 500}", "{target: rate}"))
	f, err := config.Open(t.Context(), source, idle(t))
	require.NoError(t, err)
	require.Equal(t, 200, code(f))
	all := f.Controllers().All()
	require.NoError(t, f.Close())
	require.NoError(t, f.Close())
	require.True(t, isClosed(all[0]) && isClosed(all[1]))
	require.Equal(t, 200, code(f), "fixed limits are in force")

	d := idle(t)
	d.Controllers = new(config.Controllers)
	f, err = config.Open(t.Context(), source, d)
	require.NoError(t, err)
	require.Equal(t, 200, code(f))
	require.NoError(t, f.Close())
	require.False(t, isClosed(d.Controllers.All()[0]))
	require.NoError(t, d.Controllers.Close())

	source.write(moving("{max: 500}", "{target: x}"))
	_, err = config.Open(t.Context(), source, idle(t))
	require.Error(t, err)
	goleak.VerifyNone(t, leaks)
}

// Whoever builds by hand keeps controllers by hand.
func TestControllersByHand(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	d := idle(t)
	d.Controllers = new(config.Controllers)
	cfg := built(t, d, moving("{max: 500}", "{target: rate}"))
	g, err := middleware.New(cfg)
	require.NoError(t, err)
	serve := func() {
		g.Serve(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	}
	serve()
	d.Controllers.Keep(cfg)
	again := built(t, d, moving("{max: 500}", "{target: rate, fixed: 50/s}"))
	require.Same(t, cfg.Policies[0].Adaptive, again.Policies[0].Adaptive)
	require.NotSame(t, cfg.Policies[1].Adaptive, again.Policies[1].Adaptive)
	require.Len(t, d.Controllers.All(), 3)
	require.NoError(t, g.Reconfigure(again))
	d.Controllers.Keep(again)
	require.True(t, isClosed(cfg.Policies[1].Adaptive.(*adaptive.Controller)))
	serve()
	require.NoError(t, d.Controllers.Close())
	require.NoError(t, d.Controllers.Close())
	late := built(t, d, moving("{max: 300}", "{target: rate}"))
	require.True(t, isClosed(late.Policies[0].Adaptive.(*adaptive.Controller)), "what nobody would close is")

	d.Controllers = nil
	alone := built(t, d, moving("{max: 500}", "{target: rate}"))
	require.NoError(t, alone.Policies[0].Adaptive.(*adaptive.Controller).Close())
	goleak.VerifyNone(t, leaks)
}

// A document decides: what the service bears is refused beyond its bound, and a schedule moves the limit of a guard.
func TestMovesInForce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		source := &fake{}
		source.write("version: 1\npolicies:\n- {name: a, key: ip, adaptive: {min: 1, max: 1}}\n- {name: b, key: global, limit: 8/d fixed_window, schedule: [{when: 00:00-12:00, scale: 0.25}]}\n")
		f := following(t, source, idle(t))
		status, inner := 0, 0
		w := httptest.NewRecorder()
		f.Guard().Serve(w, httptest.NewRequest("GET", "/", nil), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inner = code(f) }))
		status = w.Code
		require.Equal(t, []int{200, 503}, []int{status, inner}, "one is in service")
		require.Equal(t, "00:00:00", time.Now().UTC().Format(time.TimeOnly))
		require.Equal(t, 200, code(f))
		require.Equal(t, 503, code(f), "2 of 8, which the nominal limit would not have refused")
		later(12 * time.Hour)
		require.Equal(t, 200, code(f))
	})
}

// Aliases make many rules of few: they count as often as they are named, over all policies.
func TestRulesOfAllPolicies(t *testing.T) {
	var doc strings.Builder
	doc.WriteString("version: 1\nx-s: &s\n")
	for k := range 1000 {
		fmt.Fprintf(&doc, "  - {when: \"%02d:%02d-24:00\", scale: 2}\n", k/60, k%60)
	}
	doc.WriteString("policies:\n")
	policies := func(n int) string {
		text := doc.String()
		for k := range n {
			text += fmt.Sprintf("  - {name: p%d, key: ip, limit: 10/s, schedule: *s}\n", k)
		}
		return text
	}
	most := adaptive.MaxRules / 1000
	parse := func(text string) config.Findings {
		d, found := config.Parse([]byte(text))
		require.NoError(t, found.Err())
		_, found = config.Build(d, chainDeps(t))
		return found
	}
	require.NoError(t, parse(policies(most)).Err())
	found := parse(policies(most + 3))
	require.Len(t, found, 1)
	require.Equal(t, config.TooLarge, found[0].ID)
	require.Equal(t, fmt.Sprintf("policies[%d].schedule", most), found[0].Path)
}

// Whatever a controller tells may end all of them, and put a new version into force.
func TestControllersFromTheirObserver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		d := idle(t)
		d.Controllers = new(config.Controllers)
		var guard atomic.Pointer[middleware.Guard]
		var next middleware.Config
		var kept, closed atomic.Int32
		d.Observer = limiter.ObserverFunc(func(e limiter.Event) {
			g := guard.Load()
			if e.Kind != limiter.EventAdapt || g == nil {
				return
			}
			if kept.Add(1) == 1 {
				if g.Reconfigure(next) == nil {
					d.Controllers.Keep(next)
				}
				return
			}
			if d.Controllers.Close() == nil {
				closed.Add(1)
			}
		})
		first := built(t, d, moving("{max: 500}", "{target: rate}"))
		next = built(t, d, moving("{max: 400}", "{target: rate, min: 20/s}"))
		g, err := middleware.New(first)
		require.NoError(t, err)
		guard.Store(g)
		for range 100 {
			g.Serve(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			later(50 * time.Millisecond)
		}
		require.Positive(t, closed.Load())
		require.True(t, isClosed(first.Policies[0].Adaptive.(*adaptive.Controller)))
		require.True(t, isClosed(next.Policies[0].Adaptive.(*adaptive.Controller)))
	}) // in which nothing runs any more
}

var _ limiter.Controller = (*adaptive.Controller)(nil)
