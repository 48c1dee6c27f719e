package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/limitertest"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/middleware"
)

type halving struct{ why string }

func (h halving) Adjust(_ time.Time, l limiter.Limit) limiter.Limit { l.Rate /= 2; return l }
func (h halving) Explain(now time.Time, l limiter.Limit) (limiter.Limit, string) {
	return h.Adjust(now, l), h.why
}

type stringer struct{ limiter.Limiter }

func (stringer) String() string { return "primary" }

func TestOverview(t *testing.T) {
	store, err := memory.New(memory.Config{})
	require.NoError(t, err)
	defer store.Close()
	vary := limiter.NewVar(limiter.PerMinute(80))
	g := guardOf(t,
		policy{Name: "plain", Limit: vary, Limiter: store, InFlight: 3, Refund: func(int) bool { return false }},
		policy{Name: "moved", Stage: "later", Limit: limiter.PerMinute(80), Shadow: true, Limiter: stringer{store}, Adjust: []limiter.Adjuster{
			halving{"lunch"}, limiter.AdjusterFunc(func(_ time.Time, l limiter.Limit) limiter.Limit { l.Rate--; return l }), halving{},
		}},
		policy{Name: "bound", InFlight: 2, OnStoreError: middleware.FailClosed},
		policy{Name: "broken", Limit: limiter.PerMinute(7), Adjust: []limiter.Adjuster{
			limiter.AdjusterFunc(func(time.Time, limiter.Limit) limiter.Limit { panic("out of order") }),
		}},
	)
	require.NoError(t, vary.Set(limiter.PerMinute(90)))
	all := g.Overview()
	require.Len(t, all, 4)
	require.Equal(t, middleware.Overview{
		Policy: "plain", Stage: middleware.StageEdge, Limiter: "memory", Limit: limiter.PerMinute(90), Effective: limiter.PerMinute(90), InFlightOf: 3,
		Refunds: true,
	}, all[0])
	moved := limiter.PerMinute(80)
	moved.Rate = 19
	require.Equal(t, middleware.Overview{
		Policy: "moved", Stage: "later", Shadow: true, Limiter: "primary", Limit: limiter.PerMinute(80), Effective: moved, Why: []string{"lunch"},
	}, all[1])
	require.Equal(t, middleware.Overview{Policy: "bound", Stage: middleware.StageEdge, OnStoreError: middleware.FailClosed, InFlightOf: 2}, all[2])
	require.Equal(t, "limitertest", all[3].Limiter)
	require.Equal(t, []string{"an adjuster panics"}, all[3].Why)
	require.Equal(t, limiter.PerMinute(7), all[3].Effective)
}

func TestOverviewOfWhatIsInFlight(t *testing.T) {
	model := limitertest.NewModel()
	g := newGuard(t, config{Limiter: model, Policies: byIP(policy{Name: "p", InFlight: 3})})
	served := false
	g.Serve(httptest.NewRecorder(), request("GET", "/"), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		served = true
		require.Equal(t, 1, g.Overview()[0].InFlight)
	}))
	require.True(t, served)
	require.Zero(t, g.Overview()[0].InFlight)
}
