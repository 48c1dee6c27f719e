package serve_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// watching is the stream of a live page.
type watching struct {
	t     *testing.T
	body  io.ReadCloser
	lines *bufio.Scanner
}

func (r *running) watch(t *testing.T) *watching {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	res, err := http.DefaultClient.Do(request(t, http.MethodGet, r.admin+"/live/events", nil).WithContext(ctx))
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, res.StatusCode)
	w := &watching{t: t, body: res.Body, lines: bufio.NewScanner(res.Body)}
	w.lines.Buffer(nil, 1<<24)
	t.Cleanup(func() { _ = res.Body.Close() })
	return w
}

// until reads events until one has a part that tells.
func (w *watching) until(tells func(data map[string]any) bool) {
	w.t.Helper()
	for w.lines.Scan() {
		data, is := strings.CutPrefix(w.lines.Text(), "data: ")
		if !is {
			continue
		}
		var event map[string]any
		require.NoError(w.t, json.Unmarshal([]byte(data), &event))
		if tells(event) {
			return
		}
	}
	require.Fail(w.t, "the stream ended", "%v", w.lines.Err())
}

// The admin address shows it all live: a reload with what it changed, a refused document with the reason, and no secret.
func TestLivePage(t *testing.T) {
	const head = "version: 1\nkey_secret: 0123456789abcdef-very-secret\n"
	r := start(t, head+"policies:\n  - {name: door, key: ['hmac(ip)'], limit: 100/h}\n", ok)
	require.Contains(t, r.out.String(), "watch it at "+r.admin+"/live/\n")
	res, body := get(t, r.admin+"/live/")
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Contains(t, body, "<title>")
	require.Contains(t, res.Header.Get("Content-Security-Policy"), "default-src 'none'")

	w := r.watch(t)
	of := func(event map[string]any) string {
		text, err := json.Marshal(event["document"])
		require.NoError(t, err)
		require.NotContains(t, string(text), "very-secret")
		return string(text)
	}
	w.until(func(event map[string]any) bool {
		return strings.Contains(of(event), r.path)
	})
	_, _ = get(t, r.url)
	r.reload(t, strings.Replace(head, "very-secret", "another-very-secret", 1)+"policies:\n  - {name: door, key: ['hmac(ip)'], limit: 50/h}\n  - {name: more, key: [global], limit: 9/h}\n")
	w.until(func(event map[string]any) bool {
		return strings.Contains(of(event), "policies.door.limit: 100/h → 50/h")
	})
	_, status := get(t, r.admin+"/status")
	require.Contains(t, status, `"path": "policies.door.limit"`)
	require.NotContains(t, status, "very-secret")

	r.write(t, head+"policies:\n  - {name: door, key: [ip], limit: 100/x}\n")
	w.until(func(event map[string]any) bool {
		state, _ := event["state"].(map[string]any)
		return state != nil && state["word"] == "refused" && strings.Contains(of(event), "100/x")
	})
	// The stream ends with the server, so the end of this test is one of its assertions.
}

// A page of somebody else's in the browser of an operator gets nothing, by whatever name it asks.
func TestLivePageIsForWhoReachesIt(t *testing.T) {
	r := start(t, wide, ok)
	for _, path := range []string{"/live/", "/live/app.js", "/live/events"} {
		res, _ := get(t, r.admin+path, "Host: evil.example")
		require.Equal(t, http.StatusMisdirectedRequest, res.StatusCode, path)
		res, _ = get(t, r.admin+path, "Sec-Fetch-Site: cross-site")
		require.Equal(t, http.StatusForbidden, res.StatusCode, path)
		res, _ = do(t, request(t, http.MethodPost, r.admin+path, nil))
		require.Equal(t, http.StatusMethodNotAllowed, res.StatusCode, path)
	}
}
