package main

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

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

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"extra"}, {"-for", "1ms"}, {"-for", "1h"}, {"-nope"}, {"-kill", "-redis", "redis://127.0.0.1:1"}} {
		require.Error(t, run(t.Context(), args, new(bytes.Buffer)), "%v", args)
	}
}
