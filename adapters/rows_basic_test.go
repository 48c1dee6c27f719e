package adapters_test

import (
	"net/http"
	"time"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/response"
)

const problemType = `{"type":"https://iana.org/assignments/http-problem-types#`

// perIP is one policy for all requests.
func perIP(limit limiter.Limit) []spillway.Policy {
	return []spillway.Policy{{Name: "default", Key: keyfunc.IP(), Limit: limit}}
}

func ok(do string, fields map[string]string, answer string) step {
	return step{do: do, status: http.StatusOK, fields: fields, answer: answer, served: true}
}

func spent(do string, fields map[string]string, retry string, answer string) step {
	return step{do: do, status: http.StatusTooManyRequests, fields: refused(fields, retry), answer: answer}
}

// origin marks a request of a script on another site.
func origin(pairs ...string) http.Header {
	h := http.Header{"Origin": {"https://app.example"}}
	for k := 0; k < len(pairs); k += 2 {
		h.Set(pairs[k], pairs[k+1])
	}
	return h
}

func (s step) with(h http.Header) step    { s.header = h; return s }
func (s step) from(peer string) step      { s.peer = peer; return s }
func (s step) at(host string) step        { s.host = host; return s }
func (s step) after(d time.Duration) step { s.wait = d; return s }
func (s step) sends(body string) step     { s.body = body; return s }
func (s step) unrouted(status, bare int) step {
	s.status, s.bare, s.noRoute = status, bare, true
	s.served = false
	s.answer = "*"
	return s
}

func (s step) wrongMethod(status, bare int) step {
	s.status, s.bare, s.noMethod = status, bare, true
	s.served = false
	s.answer = "*"
	return s
}
func (s step) held(d time.Duration) step { s.took = d; return s }

const exposed = "RateLimit, RateLimit-Policy, Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset"

var basicRows = []row{
	{
		name:   "FW-02 the sixth request is refused before the handler",
		config: spillway.Config{Policies: perIP(limiter.PerMinute(5))},
		steps: []step{
			ok("GET /users/1", x(5, 4, 12), "/users/1"),
			ok("GET /users/2", x(5, 3, 24), "/users/2"),
			ok("GET /items/1", x(5, 2, 36), "/items/1"),
			ok("GET /", x(5, 1, 48), "/"),
			ok("GET /files/a/b", x(5, 0, 60), "/files/a/b"),
			spent("GET /users/1", x(5, 0, 60), "12", problem("default", 12)),
			ok("GET /users/1", x(5, 0, 72), "/users/1").after(12 * time.Second),
			ok("GET /users/1", x(5, 4, 24), "/users/1").from("192.0.2.9:1"),
		},
	},
	{
		name: "two policies",
		config: spillway.Config{
			Response: response.Options{Headers: response.Both},
			Policies: []spillway.Policy{
				{Name: "burst", Key: keyfunc.IP(), Limit: limiter.PerSecond(2).With(limiter.FixedWindow)},
				{Name: "daily", Key: keyfunc.IP(), Limit: limiter.PerDay(3).With(limiter.FixedWindow)},
			},
		},
		steps: []step{
			ok("GET /users/1", and(x(2, 1, 1), "RateLimit-Policy", `"burst";q=2;w=1, "daily";q=3;w=86400`,
				"RateLimit", `"burst";r=1;t=1, "daily";r=2;t=86400`), "/users/1"),
			ok("GET /users/1", and(x(2, 0, 1), "RateLimit-Policy", `"burst";q=2;w=1, "daily";q=3;w=86400`,
				"RateLimit", `"burst";r=0;t=1, "daily";r=1;t=86400`), "/users/1"),
			spent("GET /users/1", and(x(2, 0, 1), "RateLimit-Policy", `"burst";q=2;w=1, "daily";q=3;w=86400`,
				"RateLimit", `"burst";r=0;t=1`), "1", problem("burst", 1)),
			// The refusal took nothing from the daily quota.
			ok("GET /users/1", and(x(3, 0, 86400), "RateLimit-Policy", `"burst";q=2;w=1, "daily";q=3;w=86400`,
				"RateLimit", `"burst";r=1;t=1, "daily";r=0;t=86399`), "/users/1").after(time.Second),
			spent("GET /users/1", and(x(3, 0, 86400), "RateLimit-Policy", `"burst";q=2;w=1, "daily";q=3;w=86400`,
				"RateLimit", `"daily";r=0;t=86399`), "86399", problem("daily", 86399)),
		},
	},
	{
		name: "HEAD counts as GET and has no body",
		config: spillway.Config{Policies: []spillway.Policy{{
			Name: "read", Match: spillway.Match{Routes: []string{"GET /users/{id}"}, Methods: []string{"GET"}},
			Key: keyfunc.Join(keyfunc.IP(), keyfunc.Global()), Limit: limiter.PerMinute(2),
		}}},
		steps: []step{
			{do: "HEAD /users/1", status: 200, fields: x(2, 1, 30), answer: "*", served: true},
			ok("GET /users/1", x(2, 0, 60), "/users/1"),
			{do: "HEAD /users/1", status: 429, fields: refused(x(2, 0, 60), "30"), answer: ""},
			ok("POST /users/1", nil, "/users/1"), // MTH-05: another bucket, here none
		},
	},
	{
		name:   "MTH-01 MTH-02 unknown paths are counted",
		config: spillway.Config{Policies: perIP(limiter.PerMinute(2))},
		steps: []step{
			ok("GET /nonsense", x(2, 1, 30), "*").unrouted(404, 404),
			ok("GET /other/nonsense", x(2, 0, 60), "*").unrouted(404, 404),
			spent("GET /nonsense", x(2, 0, 60), "30", "*").unrouted(429, 404),
			spent("POST /nonsense", x(2, 0, 60), "30", "*").unrouted(429, 404),
		},
	},
	{
		name:   "MTH-03 wrong methods are counted and stay 405",
		config: spillway.Config{Policies: perIP(limiter.PerMinute(1))},
		steps: []step{
			ok("DELETE /users/1", x(1, 0, 60), "*").wrongMethod(405, 405),
			spent("DELETE /users/1", x(1, 0, 60), "60", "*").wrongMethod(429, 405),
		},
	},
	{
		name:   "CORS-02 CORS-03 preflights pass and count nothing",
		config: spillway.Config{Policies: perIP(limiter.PerMinute(1))},
		steps: []step{
			ok("OPTIONS /users/1", nil, "/users/1").with(origin("Access-Control-Request-Method", "POST")),
			ok("POST /users/1", and(x(1, 0, 60), "Access-Control-Expose-Headers", exposed), "/users/1").with(origin()),
			ok("OPTIONS /users/1", nil, "/users/1").with(origin("Access-Control-Request-Method", "POST")),
			spent("POST /users/1", and(x(1, 0, 60), "Access-Control-Expose-Headers", exposed), "60", problem("default", 60)).with(origin()),
			// Without those fields OPTIONS is a request like others.
			spent("OPTIONS /users/1", x(1, 0, 60), "60", problem("default", 60)),
		},
	},
	{
		name:   "CORS-05 CORS-06 a refusal keeps what stands there, and exposes its fields",
		config: spillway.Config{Policies: perIP(limiter.DenyAll)},
		before: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Access-Control-Allow-Origin", "https://app.example")
			w.Header().Set("Access-Control-Expose-Headers", "X-Request-Id, retry-after")
		},
		steps: []step{{
			do: "GET /users/1", header: origin(), status: 429, answer: "*",
			fields: refused(and(x(0, 0, 0), "Access-Control-Expose-Headers", "X-Request-Id, retry-after, RateLimit, RateLimit-Policy, "+
				"X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset"), ""),
		}},
	},
	{
		name: "exempt requests",
		config: spillway.Config{
			Exempt: spillway.Match{Routes: []string{"GET /{$}"}},
			Policies: []spillway.Policy{{
				Name: "default", Exempt: spillway.Match{CIDRs: []string{"198.51.100.0/24"}}, Key: keyfunc.IP(), Limit: limiter.PerMinute(1),
			}},
		},
		steps: []step{
			ok("GET /users/1", x(1, 0, 60), "/users/1"),
			ok("GET /", nil, "/"),
			ok("GET /users/1", nil, "/users/1").from("198.51.100.7:80"),
			spent("GET /users/1", x(1, 0, 60), "60", problem("default", 60)),
		},
	},
	{
		name:   "MTH-07 loopback can be exempted",
		config: spillway.Config{Exempt: spillway.Match{CIDRs: []string{"127.0.0.0/8", "::1"}}, Policies: perIP(limiter.DenyAll)},
		steps: []step{
			ok("GET /users/1", nil, "/users/1").from("127.0.0.1:80"),
			ok("GET /users/1", nil, "/users/1").from("[::1]:80"),
			ok("GET /users/1", nil, "/users/1").from("[::ffff:127.0.0.1]:80"),
		},
	},
	{
		name:   "skipper",
		config: spillway.Config{Policies: perIP(limiter.PerMinute(1))},
		skip:   func(r *http.Request) bool { return r.URL.Path == "/items/1" },
		steps: []step{
			ok("GET /items/1", nil, "/items/1"),
			ok("GET /users/1", x(1, 0, 60), "/users/1"),
			ok("GET /items/1", nil, "/items/1"),
			spent("GET /items/2", x(1, 0, 60), "60", problem("default", 60)),
		},
	},
	{
		name:   "an envelope of one's own",
		config: spillway.Config{Policies: perIP(limiter.PerMinute(1))},
		denied: true,
		steps: []step{
			ok("GET /users/1", x(1, 0, 60), "/users/1"),
			spent("GET /users/1", x(1, 0, 60), "60", deniedBody),
		},
	},
	{
		name:   "the body reaches the handler",
		config: spillway.Config{Policies: perIP(limiter.PerMinute(2))},
		steps: []step{
			ok("POST /users/1", x(2, 1, 30), "/users/1 as it was sent").sends(" as it was sent"),
		},
	},
	{
		name: "silent and shadow policies",
		config: spillway.Config{Policies: []spillway.Policy{
			{Name: "silent", Key: keyfunc.IP(), Limit: limiter.PerMinute(1), Headers: response.Off},
			{Name: "shadow", Key: keyfunc.IP(), Limit: limiter.DenyAll, Shadow: true},
		}},
		steps: []step{
			ok("GET /users/1", nil, "/users/1"),
			spent("GET /users/1", nil, "", problemType+`quota-exceeded","title":"Quota Exceeded","status":429}`),
		},
	},
}
