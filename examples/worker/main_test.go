package main

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/redistest"
)

// The processes are this test binary, started once more.
func TestMain(m *testing.M) {
	if os.Getenv(roleVar) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// Every job is done, once; the service refuses none; each of the workers has a part.
func TestWorkersDrainTheQueue(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	server := redistest.Start(t)
	var out bytes.Buffer
	calls, err := run(t.Context(), []string{"-redis", "redis://" + server.Addr(), "-jobs", "30"}, &out)
	require.NoError(t, err)
	done, by := map[string]int{}, map[string]int{}
	for _, c := range calls {
		require.False(t, c.refused, "%s", &out)
		done[c.job]++
		by[c.worker]++
	}
	require.Len(t, done, 30)
	require.Len(t, calls, 30)
	require.Len(t, by, workers, "%s", &out)
}

// The service's limit, at explicit instants.
func TestService(t *testing.T) {
	s, start := new(service), time.Unix(0, 0)
	for i := range 20 {
		require.True(t, s.take(call{at: start.Add(time.Duration(i) * time.Millisecond)}))
	}
	require.False(t, s.take(call{at: start.Add(2*time.Second - 1)}))
	require.True(t, s.take(call{at: start.Add(2 * time.Second)}))
	require.False(t, s.take(call{at: start.Add(2 * time.Second)}))
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"extra"}, {"-jobs", "0"}, {"-nope"}, {"-redis", "no url"}} {
		_, err := run(t.Context(), args, new(bytes.Buffer))
		require.Error(t, err, "%v", args)
	}
}
