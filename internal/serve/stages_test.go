package serve_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Stages are in the order edge, identity, others as they first appear, and a refusal of one keeps the request from the next.
func TestStages(t *testing.T) {
	r := start(t, `
version: 1
headers: draft-11
policies:
  - {name: late, stage: zz, key: [global], limit: 3/h}
  - {name: who, stage: identity, key: [global], limit: 3/h}
  - {name: door, key: [global], limit: 3/h}
  - {name: unused, stage: manual, key: [global], limit: 1/h}
`, ok)
	for left := 2; left >= 0; left-- {
		res, _ := get(t, r.url)
		require.Equal(t, 200, res.StatusCode)
		var names []string
		for item := range strings.SplitSeq(res.Header.Get("RateLimit"), ", ") {
			names = append(names, item[:strings.Index(item, ";t")])
		}
		require.Equal(t, fmt.Sprintf(`"door";r=%d, "who";r=%d, "late";r=%d`, left, left, left), strings.Join(names, ", "))
	}
	res, _ := get(t, r.url)
	require.Equal(t, 429, res.StatusCode)
	require.Regexp(t, `^"door";r=0;t=\d+$`, res.Header.Get("RateLimit"))
}

// A reload adds a stage, removes it and changes whom to believe, while serving.
func TestReload(t *testing.T) {
	const head = "version: 1\nheaders: draft-11\n"
	const edge = "  - {name: door, key: [ip], limit: 100/h}\n"
	r := start(t, head+"policies:\n"+edge, echo)
	res, body := get(t, r.url, "X-Forwarded-For: 203.0.113.7")
	require.Equal(t, `"door";q=100;w=3600`, res.Header.Get("RateLimit-Policy"))
	require.Contains(t, body, "X-Forwarded-For: 127.0.0.1\n")

	r.reload(t, head+"policies:\n"+edge+"  - {name: more, stage: mine, key: [global], limit: 5/h}\n")
	res, _ = get(t, r.url)
	require.Equal(t, `"door";q=100;w=3600, "more";q=5;w=3600`, res.Header.Get("RateLimit-Policy"))
	require.Contains(t, res.Header.Get("RateLimit"), `r=98`, "what was counted before stays counted")

	r.reload(t, head+"client_ip: {strategy: xff, trusted_proxies: [127.0.0.1]}\npolicies:\n"+edge)
	res, body = get(t, r.url, "X-Forwarded-For: 203.0.113.7")
	require.Equal(t, `"door";q=100;w=3600`, res.Header.Get("RateLimit-Policy"))
	require.Contains(t, res.Header.Get("RateLimit"), "r=99", "another client")
	require.Contains(t, body, "X-Forwarded-For: 203.0.113.7, 127.0.0.1\n")

	r.reload(t, head+"policies: []\n")
	res, _ = get(t, r.url)
	require.Empty(t, res.Header.Values("RateLimit-Policy"))

	// A bad one leaves what is in force, and says so.
	r.write(t, head+"policies:\n  - {name: door, key: [ip], limit: 100/x}\n")
	r.log.wait(t, "a new policy document is refused")
	_, status := get(t, r.admin+"/status")
	require.Contains(t, status, `"error": "`)
	require.Contains(t, status, "limit")
	res, _ = get(t, r.url)
	require.Equal(t, 200, res.StatusCode)
}

// Routes of a proxy are those that the document names.
func TestRoutesAndParameters(t *testing.T) {
	r := start(t, `
version: 1
headers: draft-11
policies:
  - {name: users, match: {routes: ["GET /users/{id}"]}, key: ["param:id"], limit: 1/h}
  - {name: areas, match: {routes: ["/a/", "/b/"]}, key: [route], limit: 1/h}
`, ok)
	for _, c := range []struct {
		path   string
		status int
	}{
		{"/users/1", 200}, {"/users/2", 200}, {"/users/1", 429}, {"/users/%31", 429}, {"/a/x", 200}, {"/a/y", 429}, {"/b/y", 200}, {"/c", 200}, {"/c", 200},
	} {
		res, _ := get(t, r.url+c.path)
		require.Equal(t, c.status, res.StatusCode, c.path)
	}
}

// Documents are replaced all the time while requests run: nobody sees a fault, and a policy that stays as it is admits
// exactly its limit.
func TestReloadsUnderLoad(t *testing.T) {
	const limit, clients, reloads = 500, 4, 100
	doc := func(n int) string {
		text := fmt.Sprintf("version: 1\nmax_waiting: %d\npolicies:\n  - {name: steady, match: {routes: [/steady]}, key: [global], limit: 500/24h fixed_window}\n", 1000+n)
		if n%2 == 1 {
			text += fmt.Sprintf("  - {name: other, stage: s%d, key: [global], limit: %d/m}\n", n%3, 1000000+n)
		}
		if n%5 == 0 {
			text = "client_ip: {strategy: xff, trusted_proxies: [192.0.2.1]}\n" + text
		}
		return text
	}
	r := start(t, doc(0), ok)
	var admitted, refused, wrong, served atomic.Int64
	stop := make(chan struct{})
	var running sync.WaitGroup
	for range clients {
		requests := []*http.Request{request(t, "GET", r.url+"/steady", nil), request(t, "GET", r.url+"/", nil)}
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				for _, req := range requests {
					path := req.URL.Path
					res, err := http.DefaultClient.Do(req)
					if err != nil {
						wrong.Add(1)
						continue
					}
					_, _ = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
					switch {
					case res.StatusCode == 200 && path == "/":
						served.Add(1)
					case res.StatusCode == 200:
						admitted.Add(1)
					case res.StatusCode == 429 && path != "/":
						refused.Add(1)
					default:
						wrong.Add(1)
					}
				}
			}
		})
	}
	for n := range reloads {
		r.write(t, doc(n+1))
		if n%10 == 9 { // some are overtaken by the next, as it should be
			r.log.wait(t, fmt.Sprintf(`max_waiting: \d+ → %d\b`, 1001+n))
		}
	}
	last := "version: 1\npolicies:\n  - {name: steady, match: {routes: [/steady]}, key: [global], limit: 500/24h fixed_window}\n  - {name: last, key: [global], limit: 999999/m}\n"
	r.write(t, last)
	r.log.wait(t, `policies\.last`)
	for admitted.Load()+refused.Load() < 2*limit && wrong.Load() == 0 {
		res, _ := get(t, r.url)
		require.Equal(t, 200, res.StatusCode)
	}
	close(stop)
	running.Wait()
	require.Zero(t, wrong.Load(), r.log)
	require.EqualValues(t, limit, admitted.Load())
	require.NotZero(t, served.Load())
	t.Logf("told of unmounted stages: %d", strings.Count(r.log.String(), "policies never run"))
	t.Logf("%d requests, %d reloads in force", admitted.Load()+refused.Load()+served.Load(), strings.Count(r.log.String(), "a new policy document is in force"))
}

// A policy that reloads move between stages meets every request.
func TestPoliciesThatMoveBetweenStages(t *testing.T) {
	const clients, reloads = 4, 30
	stages := []string{"edge", "identity", "later", "identity"}
	doc := func(n int) string {
		return fmt.Sprintf("version: 1\nmax_waiting: %d\npolicies:\n  - {name: none, stage: %s, key: [global], limit: deny_all}\n", 1000+n, stages[n%len(stages)])
	}
	var passed, asked atomic.Int64
	r := start(t, doc(0), http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed.Add(1) }))
	stop := make(chan struct{})
	var running sync.WaitGroup
	for range clients {
		req := request(t, "GET", r.url, nil)
		running.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if res, err := http.DefaultClient.Do(req); err == nil {
					_ = res.Body.Close()
					asked.Add(1)
				}
			}
		})
	}
	for n := range reloads {
		r.reload(t, doc(n+1))
	}
	close(stop)
	running.Wait()
	require.Zero(t, passed.Load(), "of %d", asked.Load())
	require.NotZero(t, asked.Load())
	require.NotContains(t, r.log.String(), "policies never run")
}

// Only keys that read routes need a mux of them, in which the routes of their own policies come first. It is bounded: to fill
// one takes a time that grows with the square of its routes.
func TestManyRoutes(t *testing.T) {
	const rest = 5000
	var routes strings.Builder
	for k := range rest {
		fmt.Fprintf(&routes, "%q, ", fmt.Sprintf("/{x}/%d/{b...}", k))
	}
	head := "version: 1\nheaders: draft-11\npolicies:\n  - {name: many, match: {routes: [" + routes.String() + "]}, key: [global], limit: 10000/h}\n"
	for _, key := range []string{"route", "param:id", "hmac(param:id)", "first(header:X-No, param:id)", "global"} {
		doc := head + "  - {name: own, match: {routes: [\"/own/{id}\"]}, key: [\"" + key + "\"], limit: 1/h}\n"
		if strings.HasPrefix(key, "hmac") {
			doc = "key_secret: 0123456789abcdef0123456789abcdef\n" + doc
		}
		r := start(t, doc, ok)
		for _, status := range []int{200, 429} {
			res, _ := get(t, r.url+"/own/1")
			require.Equal(t, status, res.StatusCode, key)
		}
		told := strings.Count(r.log.String(), "the first routes of the document alone")
		if key == "global" {
			require.Zero(t, told)
			continue
		}
		require.Equal(t, 1, told, r.log)
		require.Contains(t, r.log.String(), "routes=4096 others=905")
	}
}
