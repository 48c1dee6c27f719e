package prom_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/adapters/stdhttp"
	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/internal/promtest"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/observe/prom"
)

const (
	soon = 30 * time.Second // it is there in a fraction; a busy machine may take longer
	tick = 20 * time.Millisecond
)

// away is a limiter whose store never answers.
type away struct{}

func (away) Allow(context.Context, limiter.Key, limiter.Limit, int) (limiter.Decision, error) {
	return limiter.Decision{}, fmt.Errorf("%w: away", limiter.ErrUnavailable)
}

func (away) Refund(context.Context, time.Time, *limiter.Take) error { return nil }

// service is a guarded server, and what Prometheus reads of it at /metrics.
type service struct {
	*httptest.Server
	metrics *prom.Observer
}

func newService(t *testing.T) service {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	metrics, err := prom.New(registry)
	require.NoError(t, err)
	on := func(path string) spillway.Match { return spillway.Match{Routes: []string{path}} }
	static := degrade.Func(func(w http.ResponseWriter, _ *http.Request, d *degrade.Denial) degrade.Outcome {
		d.Mode = "static"
		w.WriteHeader(http.StatusNonAuthoritativeInfo)
		return degrade.Done
	})
	guard, err := spillway.New(spillway.Config{
		Observer: metrics, Logger: slog.New(slog.DiscardHandler),
		Policies: []spillway.Policy{
			{Name: "wide", Match: on("/wide"), Key: keyfunc.IP(), Limit: limiter.PerHour(1000)},
			{Name: "tight", Match: on("/tight"), Key: keyfunc.Global(), Limit: limiter.PerHour(8)},
			{Name: "shadow", Match: on("/shadow"), Key: keyfunc.IP(), Limit: limiter.PerHour(3), Shadow: true},
			{Name: "soft", Match: on("/soft"), Key: keyfunc.IP(), Limit: limiter.PerHour(2), Degrade: static},
			{Name: "keyed", Match: on("/keyed"), Key: keyfunc.Header("X-Api-Key"), Limit: limiter.PerHour(1000)},
			{Name: "open", Match: on("/open"), Key: keyfunc.IP(), Limit: limiter.PerHour(1), Limiter: away{}, InFlight: 100},
			// Both refuse, and one substitute is served.
			{Name: "first", Match: on("/pair"), Key: keyfunc.IP(), Limit: limiter.PerHour(2), Degrade: static},
			{Name: "second", Match: on("/pair"), Key: keyfunc.Global(), Limit: limiter.PerHour(2), Degrade: static},
			{Name: "shaky", Match: on("/shaky"), Key: func(*keyfunc.Request) (keyfunc.Key, error) { panic("shaky") }, Limit: limiter.PerHour(1)},
		},
	})
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("/", stdhttp.Middleware(guard)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	s := service{httptest.NewServer(mux), metrics}
	t.Cleanup(s.Close)
	return s
}

// ask makes n requests and returns how many got each status.
func (s service) ask(t *testing.T, path string, n int) map[int]int {
	t.Helper()
	statuses := map[int]int{}
	for range n {
		answer, err := s.Client().Get(s.URL + path)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		statuses[answer.StatusCode]++
	}
	return statuses
}

// emit tells the observer of what comes from stores, sources of policies and adaptive limits: the n-th time.
func (s service) emit(n int) {
	for i := range 1000 {
		e := limiter.Event{Kind: limiter.EventStore, Name: "redis", Op: "take", N: 1, Duration: 2 * time.Millisecond}
		if i < 30 {
			e.Duration, e.Err, e.Reason = 30*time.Millisecond, errors.New("late"), "timeout"
		}
		s.metrics.Observe(e)
		s.metrics.Observe(limiter.Event{Kind: limiter.EventStore, Name: "redis", Op: "refund", N: 1, Duration: 400 * time.Microsecond})
	}
	for _, e := range []limiter.Event{
		{Kind: limiter.EventBreaker, Name: "redis", State: limiter.BreakerOpen, Err: errors.New("late")},
		{Kind: limiter.EventMemory, Name: "second", Keys: 70, Overflow: int64(5 * n)},
		{Kind: limiter.EventReload, Name: "file", Hash: "0a1b2c", Reason: limiter.ReasonOK},
		{Kind: limiter.EventReload, Name: "file", Hash: "3d4e5f", Reason: limiter.ReasonInvalid, Err: errors.New("no such field")},
		{Kind: limiter.EventLease, Policy: "wide", Keys: 4, Leases: &limiter.Leases{
			Units: 100, Staleness: time.Second, Local: 100, Calls: 5, Granted: 50, Returned: 1, Stranded: 20, Late: 2, LateBound: 3,
		}},
		{Kind: limiter.EventAdapt, Policy: "wide", Decision: limiter.Decision{Limit: limiter.PerSecond(25)}, Reason: "cpu"},
	} {
		s.metrics.Observe(e)
	}
}

// Prometheus itself scrapes a service, and knows what happened there; the queries and rules that are shipped work on it.
func TestPrometheus(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	s := newService(t)
	server := promtest.Start(t, promtest.Config{File: "../files/prometheus.yml", Targets: []string{s.Listener.Addr().String()}})
	server.AwaitScrapes(1) // series begin at 0

	// In two waves: a rate is seen between scrapes.
	for n := 1; n <= 2; n++ {
		require.Equal(t, map[int]int{200: 250}, s.ask(t, "/wide", 250))
		tight := s.ask(t, "/tight", 10)
		require.Equal(t, map[int]map[int]int{1: {200: 8, 429: 2}, 2: {429: 10}}[n], tight)
		require.Equal(t, map[int]int{200: 5}, s.ask(t, "/shadow", 5))
		soft := s.ask(t, "/soft", 6)
		require.Equal(t, map[int]map[int]int{1: {200: 2, 203: 4}, 2: {203: 6}}[n], soft)
		require.Equal(t, map[int]map[int]int{1: {200: 2, 203: 4}, 2: {203: 6}}[n], s.ask(t, "/pair", 6))
		require.Equal(t, map[int]int{503: 3}, s.ask(t, "/shaky", 3))
		require.Equal(t, map[int]int{403: 3}, s.ask(t, "/keyed", 3))
		require.Equal(t, map[int]int{200: 30}, s.ask(t, "/open", 30))
		s.emit(n)
		server.AwaitScrapes(2)
	}

	t.Run("counts are exact", func(t *testing.T) { countsAreExact(t, server) })
	t.Run("quantiles", func(t *testing.T) { quantiles(t, server) })
	t.Run("dashboard", func(t *testing.T) { dashboardWorks(t, server) })
	t.Run("rules", func(t *testing.T) { rulesWork(t, server) })
	t.Run("promtool finds nothing to say", func(t *testing.T) {
		answer, err := s.Client().Get(s.URL + "/metrics")
		require.NoError(t, err)
		defer func() { _ = answer.Body.Close() }()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		out, err := promtest.Promtool(t, strings.NewReader(string(text)), "check", "metrics")
		require.NoError(t, err, out)
		require.Empty(t, out)
	})
}

// one is the value of a query that has one.
func one(t *testing.T, server *promtest.Server, query string) float64 {
	t.Helper()
	samples, err := server.Query(query)
	require.NoError(t, err)
	require.Len(t, samples, 1, query)
	return samples[0].Value
}

func countsAreExact(t *testing.T, server *promtest.Server) {
	for query, want := range map[string]float64{
		`requests_total{policy="wide",type="allowed",via="memory"}`:          500,
		`requests_total{policy="wide",type="blocked",via="memory"}`:          0,
		`requests_total{policy="tight",type="allowed",via="memory"}`:         8,
		`requests_total{policy="tight",type="blocked",via="memory"}`:         12,
		`requests_total{policy="shadow",type="allowed",via="memory"}`:        3,
		`requests_total{policy="shadow",type="shadow_blocked",via="memory"}`: 7,
		`requests_total{policy="soft",type="allowed",via="memory"}`:          2,
		`requests_total{policy="soft",type="blocked",via="memory"}`:          10,
		`rejected_total{policy="tight",reason="quota"}`:                      12,
		`rejected_total{policy="soft",reason="quota"}`:                       10,
		`rejected_total{policy="shadow",reason="quota"}`:                     0,
		`rejected_total{policy="keyed",reason="no_key"}`:                     6,
		`rejected_total{policy="open",reason="unavailable"}`:                 0,
		`degraded_total{policy="soft",mode="static"}`:                        10,
		`rejected_total{policy="first",reason="quota"}`:                      10,
		`rejected_total{policy="second",reason="quota"}`:                     10,
		`degraded_total{policy="first",mode="static"}`:                       10,
		`degraded_total{policy="second",mode="static"}`:                      10,
		`errors_total{policy="shaky",cause="panic"}`:                         6,
		`errors_total{policy="",cause="panic"}`:                              6,
		`errors_total{policy="open",cause="unavailable"}`:                    60,
		`errors_total{policy="keyed",cause="no_key"}`:                        6,
		`errors_total{policy="",cause="timeout"}`:                            60,
		`errors_total{policy="",cause="refused"}`:                            0,
		`remaining_ratio_count{policy="tight"}`:                              20,
		`remaining_ratio_bucket{policy="tight",le="0.1"}`:                    13, // 12 refused, and the last one admitted
		`quota_used{policy="tight"} > bool 7.5`:                              1,
		`store_duration_seconds_count{op="take"}`:                            2000,
		`store_duration_seconds_bucket{op="take",le="0.025"}`:                1940,
		`breaker_state{limiter="redis"}`:                                     2,
		`memory_overflow_total`:                                              10,
		`memory_keys >= bool 70`:                                             1,
		`config_info{hash="0a1b2c"}`:                                         1,
		`config_info{hash="3d4e5f"}`:                                         0,
		`config_reloads_total{result="ok"}`:                                  2,
		`config_reloads_total{result="invalid"}`:                             2,
		`leases_held{policy="wide"}`:                                         4,
		`adaptive_limit{policy="wide"}`:                                      25,
		`adaptive_reason{policy="wide",reason="cpu"}`:                        1,
	} {
		require.Equal(t, want, one(t, server, "rate_limit_"+query), query)
	}
	// And nothing beside. What could not be decided is no decision, with a bound on requests in flight either.
	require.Equal(t, 566.0, one(t, server, `sum(rate_limit_requests_total)`))
	require.Equal(t, 54.0, one(t, server, `sum(rate_limit_rejected_total)`))
	require.Equal(t, 138.0, one(t, server, `sum(rate_limit_errors_total)`))
}

func quantiles(t *testing.T, server *promtest.Server) {
	at := func(q float64, op string) float64 {
		return one(t, server, fmt.Sprintf(`histogram_quantile(%g, rate(rate_limit_store_duration_seconds_bucket{op=%q}[5m]))`, q, op))
	}
	// 97 in 100 took 2 ms and 3 took 30 ms.
	require.InDelta(t, 0.002, at(.5, "take"), 0.001)
	require.InDelta(t, 0.030, at(.99, "take"), 0.020)
	require.Greater(t, at(.99, "take"), 0.025)
	require.InDelta(t, 0.0004, at(.99, "refund"), 0.0002)
}

// panel is what a query of a dashboard is drawn in.
type panel struct {
	ID          int
	Title       string
	Type        string
	Description string
	GridPos     struct{ X, Y, W, H int }
	Datasource  struct{ UID string }
	FieldConfig struct {
		Defaults struct{ Unit string }
	}
	Targets []struct {
		Expr         string
		LegendFormat string
		Datasource   struct{ UID string }
	}
}

var (
	variables = strings.NewReplacer("$job", ".*", "$instance", ".*", "$policy", ".*", "$__rate_interval", "5m")
	legend    = regexp.MustCompile(`\{\{(\w+)\}\}`)
	values    = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)
	units     = []string{"reqps", "ops", "percentunit", "s", "short", "none"}
)

func dashboardWorks(t *testing.T, server *promtest.Server) {
	text, err := os.ReadFile("../files/dashboard.json")
	require.NoError(t, err)
	var dashboard struct {
		ID          any
		Panels      []panel
		Annotations struct{ List []struct{ Expr string } }
		Templating  struct {
			List []struct {
				Name, Type, Definition string
				Query                  any
			}
		}
	}
	require.NoError(t, json.Unmarshal(text, &dashboard))
	require.Nil(t, dashboard.ID, "the id of a Grafana")
	require.Equal(t, "datasource", dashboard.Templating.List[0].Type)

	ids, taken, asked := map[int]bool{}, map[[2]int]string{}, ""
	for _, p := range dashboard.Panels {
		require.False(t, ids[p.ID], p.Title)
		ids[p.ID] = true
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				require.Empty(t, taken[[2]int{x, y}], "%s is on top of it", p.Title)
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		require.NotEmpty(t, p.Targets, p.Title)
		require.Regexp(t, `\.$`, p.Description, p.Title)
		require.Contains(t, units, p.FieldConfig.Defaults.Unit, p.Title)
		require.Equal(t, "${datasource}", p.Datasource.UID, p.Title)
		for _, q := range p.Targets {
			require.Equal(t, "${datasource}", q.Datasource.UID, p.Title)
			samples := ask(t, server, q.Expr)
			require.NotEmpty(t, samples, "%s: %s", p.Title, q.Expr)
			for _, m := range legend.FindAllStringSubmatch(q.LegendFormat, -1) {
				require.Contains(t, samples[0].Labels, m[1], "%s: %s", p.Title, q.LegendFormat)
			}
			asked += q.Expr
		}
	}
	for _, v := range dashboard.Templating.List[1:] {
		m := values.FindStringSubmatch(v.Definition)
		require.NotNil(t, m, v.Name)
		require.Equal(t, v.Definition, v.Query.(map[string]any)["query"], v.Name)
		require.NotEmpty(t, ask(t, server, fmt.Sprintf("count by (%s) (%s)", m[2], m[1])), v.Name)
		require.Equal(t, v.Name, m[2])
	}
	for _, a := range dashboard.Annotations.List {
		if a.Expr != "" {
			_, err := server.Query(variables.Replace(a.Expr))
			require.NoError(t, err)
		}
	}
	for _, name := range names {
		require.Contains(t, asked, name, "every metric is shown")
	}
}

// ask returns the samples of a dashboard's query that are numbers.
func ask(t *testing.T, server *promtest.Server, expr string) []promtest.Sample {
	t.Helper()
	expr = variables.Replace(expr)
	require.NotContains(t, expr, "$")
	samples, err := server.Query(expr)
	require.NoError(t, err)
	return slices.DeleteFunc(samples, func(s promtest.Sample) bool { return math.IsNaN(s.Value) })
}

func rulesWork(t *testing.T, server *promtest.Server) {
	var rules []promtest.Rule
	require.Eventually(t, func() bool {
		var err error
		rules, err = server.Rules()
		return err == nil && !slices.ContainsFunc(rules, func(r promtest.Rule) bool { return r.Health == "unknown" })
	}, soon, tick, "rules are evaluated")
	alerts := 0
	for _, r := range rules {
		require.Equal(t, "ok", r.Health, "%s: %s", r.Name, r.LastError)
		_, err := server.Query(r.Query)
		require.NoError(t, err, r.Name)
		if r.Type == "alerting" {
			alerts++
			require.GreaterOrEqual(t, r.Duration, 60.0, r.Name)
			require.NotEqual(t, "firing", r.State, r.Name)
			continue
		}
		require.Eventually(t, func() bool {
			samples, err := server.Query(r.Name)
			return err == nil && len(samples) > 0
		}, soon, tick, "%s is recorded", r.Name)
	}
	require.GreaterOrEqual(t, alerts, 14)
	for _, policy := range []string{"wide", "tight", "shadow", "soft", "first", "second", "shaky", "keyed", "open"} {
		require.Eventually(t, func() bool {
			samples, err := server.Query(fmt.Sprintf("policy:rate_limit_asked:rate5m{policy=%q} > 0", policy))
			return err == nil && len(samples) == 1
		}, soon, tick, policy)
	}
	// All that the policies of a pair refuse is served, in both.
	for _, policy := range []string{"first", "second"} {
		require.Zero(t, one(t, server, fmt.Sprintf(`rate_limit_rejected_total{policy=%[1]q,reason="quota"}
			- on (policy) rate_limit_degraded_total{policy=%[1]q}`, policy)))
	}
	// What is wrong in these minutes is seen at once, and waits for its time.
	for _, name := range []string{
		"SpillwayBreakerOpen", "SpillwayStoreErrors", "SpillwayUndecided", "SpillwayPanic", "SpillwayReloadFailed",
	} {
		require.Eventually(t, func() bool {
			samples, err := server.Query(fmt.Sprintf(`ALERTS{alertname=%q, alertstate="pending"}`, name))
			return err == nil && len(samples) > 0
		}, soon, tick, name)
	}
}
