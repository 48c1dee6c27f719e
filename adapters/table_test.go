package adapters_test

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/degrade"
)

// step is one request of a case.
type step struct {
	do     string // METHOD target
	host   string
	peer   string // 192.0.2.1:1234 if empty
	header http.Header
	body   string
	wait   time.Duration // before

	status int
	fields map[string]string // ours; whatever is not here is not there
	answer string            // the body; "*": whatever
	took   time.Duration
	served bool // the handler ran
	gate   bool // nothing counts but that the handler did not run

	// bare is the status in mounts whose guard the request does not come by; 0: it comes by everywhere.
	bare int
	// noRoute and noMethod say which requests those are.
	noRoute, noMethod bool
}

// row is one case of the table: a guard, and what it makes of requests one after another.
type row struct {
	name   string
	config spillway.Config
	steps  []step
	skip   func(*http.Request) bool
	before http.HandlerFunc
	values map[string]any
	denied bool
	late   bool // only where the route is known
}

// fieldNames are the fields that a guard may set.
var fieldNames = []string{
	"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "RateLimit", "RateLimit-Policy", "Retry-After",
	"Cache-Control", "X-Content-Type-Options", "Access-Control-Expose-Headers",
}

func ours(h http.Header) map[string]string {
	out := map[string]string{}
	for _, name := range fieldNames {
		// http.Error says nosniff too.
		if lines := h.Values(name); len(lines) > 0 && (name != "X-Content-Type-Options" || h.Get("Cache-Control") != "") {
			out[name] = strings.Join(lines, " & ")
		}
	}
	return out
}

// x are the three X- fields; the clock of a bubble starts at the beginning of the year 2000.
func x(limit, remaining, reset int) map[string]string {
	return map[string]string{
		"X-RateLimit-Limit": fmt.Sprint(limit), "X-RateLimit-Remaining": fmt.Sprint(remaining),
		"X-RateLimit-Reset": fmt.Sprint(946684800 + reset),
	}
}

// and adds pairs of names and values.
func and(fields map[string]string, pairs ...string) map[string]string {
	out := maps.Clone(fields)
	if out == nil {
		out = map[string]string{}
	}
	for k := 0; k < len(pairs); k += 2 {
		out[pairs[k]] = pairs[k+1]
	}
	return out
}

// refused are the fields of every refusal.
func refused(fields map[string]string, retry string) map[string]string {
	out := and(fields, "Cache-Control", "no-store", "X-Content-Type-Options", "nosniff")
	if retry != "" {
		out["Retry-After"] = retry
	}
	return out
}

func problem(policy string, retry int) string {
	return fmt.Sprintf(`{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded",`+
		`"status":429,"violated-policies":[%q],"retry_after":%d}`, policy, retry)
}

// run sends the steps of a row through one mount, on the clock of a bubble.
func (tc *row) run(t *testing.T, m mount) {
	synctest.Test(t, func(t *testing.T) {
		guard, err := spillway.New(tc.config)
		require.NoError(t, err)
		served := false
		handler := func(w http.ResponseWriter, r *http.Request) {
			served = true
			body, err := io.ReadAll(r.Body)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			if info, ok := degrade.FromContext(r.Context()); ok {
				_, _ = fmt.Fprintf(w, "%s of %s: ", info.Mode, info.Policy)
			}
			_, _ = fmt.Fprintf(w, "%s%s", r.URL.Path, body)
		}
		a := &app{guard: guard, skip: tc.skip, before: tc.before, values: tc.values, denied: tc.denied, routes: map[string]http.HandlerFunc{
			"GET /{$}":             handler,
			"GET /users/{id}":      handler,
			"POST /users/{id}":     handler,
			"OPTIONS /users/{id}":  handler,
			"GET /items/{id}":      handler,
			"GET /files/{rest...}": handler,
		}}
		h := m.build(a)
		for k, s := range tc.steps {
			time.Sleep(s.wait)
			served = false
			at := time.Now()
			w := httptest.NewRecorder()
			h.ServeHTTP(w, s.request())
			where := fmt.Sprintf("step %d, %s", k, s.do)
			if s.gate {
				require.False(t, served, where)
				continue
			}
			if s.noRoute && m.blind404 || s.noMethod && m.blind405 {
				require.Equal(t, s.bare, w.Code, where)
				require.Empty(t, ours(w.Header()), where)
				continue
			}
			if s.status == http.StatusMethodNotAllowed && m.no405 {
				s.status = http.StatusNotFound
			}
			require.Equal(t, s.status, w.Code, "%s: %s", where, w.Body)
			if s.fields == nil {
				s.fields = map[string]string{}
			}
			require.Equal(t, s.fields, ours(w.Header()), where)
			if s.answer != "*" {
				require.Equal(t, s.answer, w.Body.String(), where)
			}
			require.Equal(t, s.served, served, where)
			require.Equal(t, s.took, time.Since(at), where)
			if s.status == http.StatusTooManyRequests && !tc.denied {
				require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"), where)
			}
		}
	})
}

func (s *step) request() *http.Request {
	method, target, _ := strings.Cut(s.do, " ")
	r := httptest.NewRequest(method, target, strings.NewReader(s.body))
	for name, lines := range s.header {
		r.Header[name] = lines
	}
	if s.host != "" {
		r.Host = s.host
	}
	if s.peer != "" {
		r.RemoteAddr = s.peer
	}
	return r
}

func withValues(r *http.Request, values map[string]any) *http.Request {
	ctx := r.Context()
	for name, v := range values {
		ctx = context.WithValue(ctx, name, v) //nolint:revive,staticcheck // keyfunc.Value reads plain strings
	}
	if ctx == r.Context() {
		return r
	}
	return r.WithContext(ctx)
}

func TestTable(t *testing.T) {
	for _, rows := range [][]row{basicRows, matchRows, keyRows, storeRows} {
		for _, tc := range rows {
			t.Run(tc.name, func(t *testing.T) {
				each(t, func(t *testing.T, m mount) {
					if tc.late && m.early {
						t.Skip("the guard runs before the route is known")
					}
					tc.run(t, m)
				})
			})
		}
	}
}
