package adapters_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/middleware"
)

// What limited requests get instead of a refusal, in one table for every framework and every place of mounting. Handlers
// are written as each framework's users write them, since its own writer is what a copy is recorded through.

// degradeRow is one case: a service, and what it makes of requests one after another.
type degradeRow struct {
	name            string
	policies        func() []spillway.Policy // anew for each place, as their handlers have a state
	config          spillway.Config          // beside the policies
	stages          []string                 // mounted, the outermost first; none: the edge alone
	inner           func() []spillway.Policy // of another guard inside; nil: there is none
	routes          map[string]native        // besides those that every row has
	outside, inside []around
	denied          bool
	gin             func(*gin.Engine)
	echo            func(*echo.Echo)
	steps           []degradeStep
	unseen          bool // where a writer hides what it can do, the recorder does not see it either
}

// degradeStep is one request of a case.
type degradeStep struct {
	do       string // METHOD target
	header   []string
	peer     string // 192.0.2.1 if empty
	body     string
	wait     time.Duration // before
	unrouted bool          // there is no route: where the guard does not see such a request, the step is left out
	panics   bool          // out of the chain, or answered by a server's recovery
	// refusable: 429 is right as well, since who answers behind the guard's back is not recorded.
	refusable bool

	status int
	fields map[string]string // all that there are, but for the length of what the guard answers; nil: not looked at
	has    map[string]string // fields among others
	answer string            // the body; "*": whatever
	like   int               // the step whose body this is, and whose type and length, counted from 1
	coding string            // of the body: gzip, or identity; "": not looked at
	served bool              // the handler ran
}

// service is the service of the row, with routes that every row has.
func (tc *degradeRow) service(guard *middleware.Guard, served *atomic.Int64) *service {
	handler := alike(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = []string{"text/plain"}
		if info, ok := degrade.FromContext(r.Context()); ok {
			_, _ = fmt.Fprintf(w, "%s of %s: ", info.Mode, info.Policy)
		}
		_, _ = fmt.Fprint(w, r.Method, " ", r.URL.Path)
	})
	s := &service{
		outside: tc.outside, inside: tc.inside, denied: tc.denied, gin: tc.gin, echo: tc.echo,
		routes: map[string]native{
			"GET /x": handler, "POST /x": handler, "PUT /x": handler, "DELETE /x": handler, "OPTIONS /x": handler, "GET /y": handler, "POST /search": handler,
		},
	}
	maps.Copy(s.routes, tc.routes)
	for pattern, h := range s.routes {
		s.routes[pattern] = native{
			func(w http.ResponseWriter, r *http.Request) { served.Add(1); h.std(w, r) },
			func(c *gin.Context) { served.Add(1); h.gin(c) },
			func(c echo.Context) error { served.Add(1); return h.echo(c) },
		}
	}
	stages := tc.stages
	if len(stages) == 0 {
		stages = []string{middleware.StageEdge}
	}
	for _, name := range stages {
		s.guards = append(s.guards, guard.Stage(name))
	}
	return s
}

// phone is a recorder that is all that Gin asks of a writer.
type phone struct{ *wire }

func (phone) CloseNotify() <-chan bool { return nil }

func (tc *degradeRow) run(t *testing.T, p place) {
	synctest.Test(t, func(t *testing.T) {
		config := tc.config
		config.Policies = tc.policies()
		guard, err := spillway.New(config)
		require.NoError(t, err)
		served := new(atomic.Int64)
		service := tc.service(guard, served)
		if tc.inner != nil {
			config.Policies = tc.inner()
			inner, err := spillway.New(config)
			require.NoError(t, err)
			service.guards = append(service.guards, inner)
		}
		h := p.build(service)
		var answers []*httptest.ResponseRecorder
		for k, s := range tc.steps {
			where := fmt.Sprintf("step %d, %s %v", k+1, s.do, s.header)
			time.Sleep(s.wait)
			served.Store(0)
			w := &wire{ResponseRecorder: httptest.NewRecorder()}
			answers = append(answers, w.ResponseRecorder)
			if s.unrouted && p.blind {
				continue
			}
			panicked := serve(h, phone{w}, s.request(t.Context()))
			require.Equal(t, s.panics, panicked != nil, "%s: %v", where, panicked)
			require.Equal(t, s.served, served.Load() > 0, where)
			if s.panics || s.refusable && w.Code == http.StatusTooManyRequests {
				continue
			}
			require.Equal(t, s.status, w.Code, "%s: %s", where, w.Body)
			s.check(t, where, answers)
		}
	})
}

// check compares the last of answers with what the step wants.
func (s *degradeStep) check(t *testing.T, where string, answers []*httptest.ResponseRecorder) {
	t.Helper()
	w := answers[len(answers)-1]
	answer, fields := s.answer, maps.Clone(s.fields)
	if s.like > 0 {
		before := answers[s.like-1]
		answer = before.Body.String()
		kind := before.Header().Get("Content-Type")
		if kind == "" && answer != "" {
			kind = http.DetectContentType(before.Body.Bytes()) // as a server does
		}
		if kind != "" && fields != nil && s.status != http.StatusNotModified {
			fields["Content-Type"] = kind
		}
	}
	if fields != nil && !s.served && s.status != http.StatusNotModified {
		fields["Content-Length"] = fmt.Sprint(len(answer))
	}
	if fields != nil {
		require.Equal(t, fields, joined(w.Result().Header), where)
	}
	if answer != "*" && !s.served && strings.HasPrefix(s.do, http.MethodHead) || s.status == http.StatusNotModified {
		answer = ""
	}
	for name, value := range s.has {
		require.Equal(t, value, strings.Join(w.Header().Values(name), " & "), where)
	}
	body, coding := unpacked(t, strings.Fields(s.do)[0], s.served, w)
	if answer != "*" {
		require.Equal(t, answer, body, where)
	}
	if s.coding != "" {
		require.Equal(t, s.coding, cmp.Or(coding, "identity"), where)
	}
}

func (s *degradeStep) request(ctx context.Context) *http.Request {
	method, target, _ := strings.Cut(s.do, " ")
	var body io.Reader
	if s.body != "" {
		body = strings.NewReader(s.body)
	}
	r := httptest.NewRequest(method, target, body).WithContext(ctx)
	for _, line := range s.header {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	if s.peer != "" {
		r.RemoteAddr = s.peer + ":1234"
	}
	return r
}

func joined(h http.Header) map[string]string {
	out := map[string]string{}
	for name, lines := range h {
		if len(lines) > 0 { // what has none is not sent
			out[name] = strings.Join(lines, " & ")
		}
	}
	return out
}

// TestDegradeTable runs every row through every place.
func TestDegradeTable(t *testing.T) {
	for _, rows := range [][]degradeRow{cachedRows(t), uncachedRows(), removedRows(), compressedRows(), readOnlyRows(), modeRows(), stageRows()} {
		for _, tc := range rows {
			t.Run(tc.name, func(t *testing.T) {
				for _, p := range places {
					t.Run(p.name, func(t *testing.T) {
						if tc.unseen && strings.HasSuffix(p.name, "/raw") {
							t.Skip("flushed past the recorder, which has the whole response all the same")
						}
						tc.run(t, p)
					})
				}
			})
		}
	}
}
