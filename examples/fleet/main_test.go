package main

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The processes of the fleet are this test binary, started once more.
func TestMain(m *testing.M) {
	if os.Getenv(roleVar) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

var total = regexp.MustCompile(`(?m)^  all +(\d+) +(\d+) +(\d+) +(\d+) +(\d+)   at most (\d+) `)

// fly runs the command and returns the numbers of its last rows: sent, admitted, refused, errors, by share, at most.
func fly(t *testing.T, args ...string) (stages [][6]int) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), args, &out), "%s", &out)
	require.True(t, strings.HasSuffix(out.String(), "\nAll promises were kept.\n"), "%s", &out)
	for _, row := range total.FindAllStringSubmatch(out.String(), -1) {
		var numbers [6]int
		for k := range numbers {
			numbers[k], _ = strconv.Atoi(row[k+1])
		}
		stages = append(stages, numbers)
	}
	for _, s := range stages {
		require.Positive(t, s[1], "%s", &out)
		require.LessOrEqual(t, s[1], s[5], "%s", &out)
		require.Zero(t, s[3], "%s", &out)
		require.Equal(t, s[0], s[1]+s[2], "%s", &out)
	}
	return stages
}

func TestFleet(t *testing.T) {
	stages := fly(t, "-for", "1s")
	require.Len(t, stages, 1)
}

func TestFleetWithoutRedis(t *testing.T) {
	stages := fly(t, "-for", "1s", "-kill")
	require.Len(t, stages, 4)
	killed, away := stages[1], stages[2]
	require.Zero(t, killed[2], "refused on account of the outage")
	require.Equal(t, killed[1], killed[4], "admitted by something else than shares")
	require.Equal(t, away[1], away[4], "admitted by something else than shares")
}

func TestLeasedFleet(t *testing.T) {
	stages := fly(t, "-leased", "-for", "1s")
	require.Len(t, stages, 1)
}

func TestLeasedFleetWithoutRedis(t *testing.T) {
	stages := fly(t, "-leased", "-for", "1s", "-kill")
	require.Len(t, stages, 4)
	killed, away := stages[1], stages[2]
	require.Zero(t, killed[2], "refused on account of the outage")
	require.Positive(t, killed[4], "leases end")
	require.Equal(t, away[1], away[4], "admitted by something else than shares")
}

// The fullest interval, whatever came before and after it.
func TestExcess(t *testing.T) {
	at := func(ms ...int64) []int64 {
		for k := range ms {
			ms[k] *= int64(time.Millisecond)
		}
		return ms
	}
	for name, c := range map[string]struct {
		passed []int64
		want   float64
	}{
		"nothing":             {nil, 0},
		"the burst":           {at(0, 0, 0), 0},
		"and one":             {at(0, 0, 0, 0), 1},
		"as it refills":       {at(0, 0, 0, 1000, 2000, 2500), 0.5},
		"in the middle":       {at(0, 9000, 9000, 9000, 9500, 9500, 20000), 1.5},
		"never above a burst": {at(0, 60000, 60000, 60000, 60000, 60000), 2},
	} {
		require.InDelta(t, c.want, excess(c.passed, 1, 3), 1e-9, name)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"extra"}, {"-for", "1ms"}, {"-for", "1h"}, {"-nope"}, {"-kill", "-redis", "redis://127.0.0.1:1"}} {
		require.Error(t, run(t.Context(), args, new(bytes.Buffer)), "%v", args)
	}
}
