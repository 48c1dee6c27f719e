package main

import (
	"io"
	"net/http"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// The service is this test binary, started once more.
func TestMain(m *testing.M) {
	if os.Getenv(childVar) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// A process of each guard serves both routes, says how it stands and ends when it is told to.
func TestProcess(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes")
	}
	for _, guard := range guards {
		p, err := begin(t.Context(), "-serve", "127.0.0.1:0", "-guard", guard)
		require.NoError(t, err)
		transport := new(http.Transport)
		for _, path := range []string{"/compute?phase=0", "/depend?phase=0&takes=1ms"} {
			one := target{p.url + path, clientOf(transport)}
			require.Equal(t, 200, one.ask(t.Context(), probePatience).status, guard)
		}
		all := target{p.url, clientOf(transport)}
		s, err := all.settle(t.Context())
		require.NoError(t, err)
		require.Positive(t, s.Phases[0].Most)
		require.Equal(t, guard == guardAdaptive, s.Bound > 0)
		transport.CloseIdleConnections()
		require.NoError(t, p.end())
	}
	_, err := begin(t.Context(), "-serve", "nowhere:0:0")
	require.ErrorContains(t, err, "did not start")
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{
		{"extra"},
		{"-for", "1ms"},
		{"-for", "1h"},
		{"-nope"},
		{"-law", "vegas"},
		{"-factor", "1"},
		{"-factor", "NaN"},
		{"-step", "1ms"},
		{"-highest", "0"},
		{"-guard", "half"},
		{"-serve", ":0", "-probe", "http://127.0.0.1:1"},
		{"-probe", "http://127.0.0.1:1", "-step", "100ms"},
		{"-probe", "::"},
	} {
		require.Error(t, run(t.Context(), args, io.Discard, io.Discard), "%v", args)
	}
}
