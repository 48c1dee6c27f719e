package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/spillway-go/spillway/observe"
)

// start runs the command on free ports and returns where its service and its metrics are, and what it logs once stopped.
func start(t *testing.T, args ...string) (service, admin string, stop func() string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	lines, stdout := io.Pipe()
	logged := new(bytes.Buffer)
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, append([]string{"-listen", "127.0.0.1:0", "-admin", "127.0.0.1:0"}, args...), stdout, logged)
		_ = stdout.Close()
		ended <- err
	}()
	said := bufio.NewScanner(lines)
	for _, url := range []*string{&service, &admin, new(string)} {
		require.True(t, said.Scan())
		*url = regexp.MustCompile(`http://127\.0\.0\.1:\d+/`).FindString(said.Text())
		require.NotEmpty(t, *url)
	}
	return service, admin, func() string {
		cancel()
		http.DefaultClient.CloseIdleConnections()
		require.NoError(t, <-ended)
		return logged.String()
	}
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { require.NoError(t, res.Body.Close()) }()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(text)
}

// value returns a series of /metrics.
func value(t *testing.T, metrics, series string) int {
	t.Helper()
	_, rest, found := strings.Cut("\n"+metrics, "\n"+series+" ")
	require.True(t, found, "no %s in\n%s", series, metrics)
	line, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.Atoi(line)
	require.NoError(t, err)
	return n
}

func requests(policy, outcome string) string {
	return fmt.Sprintf(`rate_limit_requests_total{policy=%q,type=%q,via="memory"}`, policy, outcome)
}

type tops struct{ Refused, Near []observe.TopKey }

func TestWhatIsSeen(t *testing.T) {
	defer goleak.VerifyNone(t)
	service, admin, stop := start(t)
	const sent = 80 // the bucket holds 60, and gets 5 a second
	passed := 0
	for range sent {
		switch status, _ := get(t, service); status {
		case http.StatusOK:
			passed++
		default:
			require.Equal(t, http.StatusTooManyRequests, status)
		}
	}
	require.GreaterOrEqual(t, passed, 60)
	require.Less(t, passed, sent)

	_, metrics := get(t, admin+"metrics")
	require.Equal(t, passed, value(t, metrics, requests("client", "allowed")))
	require.Equal(t, sent-passed, value(t, metrics, requests("client", "blocked")))
	require.Equal(t, sent-passed, value(t, metrics, `rate_limit_rejected_total{policy="client",reason="quota"}`))
	require.Zero(t, value(t, metrics, `rate_limit_rejected_total{policy="service",reason="quota"}`))
	require.Equal(t, sent, value(t, metrics, requests("service", "allowed"))+value(t, metrics, requests("service", "shadow_blocked")))

	_, body := get(t, admin+"top")
	require.NotContains(t, body, "127.0.0.1")
	var top tops
	require.NoError(t, json.Unmarshal([]byte(body), &top))
	require.NotEmpty(t, top.Refused)
	require.Equal(t, "client", top.Refused[0].Policy)
	require.InDelta(t, sent-passed, top.Refused[0].Count, 1) // it fades
	require.NotEmpty(t, top.Near)

	logged := stop()
	require.Contains(t, logged, "policy=client reason=quota key="+top.Refused[0].Key) // who it is, is the same hash everywhere
	require.NotContains(t, logged, "127.0.0.1")
}

func TestTrial(t *testing.T) {
	defer goleak.VerifyNone(t)
	service, admin, stop := start(t, "-shadow")
	defer stop()
	const sent = 80
	for range sent {
		status, _ := get(t, service)
		require.Equal(t, http.StatusOK, status)
	}
	_, metrics := get(t, admin+"metrics")
	over := value(t, metrics, requests("client", "shadow_blocked"))
	require.Positive(t, over)
	require.Equal(t, sent, over+value(t, metrics, requests("client", "allowed")))
	require.Zero(t, value(t, metrics, `rate_limit_rejected_total{policy="client",reason="quota"}`))
	var top tops
	_, body := get(t, admin+"top")
	require.NoError(t, json.Unmarshal([]byte(body), &top))
	require.NotEmpty(t, top.Refused)
	require.True(t, top.Refused[0].Shadow)
}

func TestUsage(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, args := range [][]string{{"extra"}, {"-nope"}, {"-listen", "127.0.0.1:-1"}, {"-listen", "127.0.0.1:0", "-admin", "127.0.0.1:-1"}} {
		require.Error(t, run(t.Context(), args, io.Discard, io.Discard), "%v", args)
	}
}
