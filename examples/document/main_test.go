package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// service is the command at work on a copy of its document.
type service struct {
	t      *testing.T
	url    string
	limits string
	log    chan string
	ended  chan error
	stop   context.CancelFunc
}

func start(t *testing.T) *service {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &service{t: t, limits: filepath.Join(t.TempDir(), "limits.yaml"), log: make(chan string, 100), ended: make(chan error, 1), stop: cancel}
	s.write(s.document())
	said, stdout := io.Pipe()
	logged, stderr := io.Pipe()
	go func() {
		err := run(ctx, []string{"-listen", "127.0.0.1:0", "-limits", s.limits}, stdout, stderr)
		_, _ = stdout.Close(), stderr.Close()
		s.ended <- err
	}()
	go func() {
		defer close(s.log)
		for lines := bufio.NewScanner(logged); lines.Scan(); {
			s.log <- lines.Text()
		}
	}()
	line, err := bufio.NewReader(said).ReadString('\n')
	require.NoError(t, err)
	s.url = regexp.MustCompile(`http://127\.0\.0\.1:\d+`).FindString(line)
	require.NotEmpty(t, s.url)
	return s
}

func (s *service) document() string {
	s.t.Helper()
	text, err := os.ReadFile("limits.yaml")
	require.NoError(s.t, err)
	return string(text)
}

// write replaces the document as most editors do.
func (s *service) write(text string) {
	s.t.Helper()
	require.NoError(s.t, os.WriteFile(s.limits+".new", []byte(text), 0o600))
	require.NoError(s.t, os.Rename(s.limits+".new", s.limits))
}

// logs waits for a line that holds text.
func (s *service) logs(text string) string {
	s.t.Helper()
	for line := range s.log {
		if strings.Contains(line, text) {
			return line
		}
	}
	s.t.Fatalf("never logged: %s", text)
	return ""
}

func (s *service) end() {
	s.t.Helper()
	s.stop()
	http.DefaultClient.CloseIdleConnections()
	require.NoError(s.t, <-s.ended)
}

// ask returns the status of n requests, by how many had it, and the last response.
func (s *service) ask(n int, path, token string) (codes map[int]int, last *http.Response) {
	s.t.Helper()
	codes = make(map[int]int)
	for range n {
		req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+path, http.NoBody)
		require.NoError(s.t, err)
		req.Header.Set("X-Token", token)
		last, err = http.DefaultClient.Do(req)
		require.NoError(s.t, err)
		_, err = io.Copy(io.Discard, last.Body)
		require.NoError(s.t, err)
		require.NoError(s.t, last.Body.Close())
		codes[last.StatusCode]++
	}
	return codes, last
}

// Numbers in this test refill by the hour, so that it does not matter how long it takes.
func TestFollowed(t *testing.T) {
	defer goleak.VerifyNone(t)
	s := start(t)
	defer s.end()
	slow := strings.NewReplacer("60/m burst 5", "4/h burst 50", "30/m burst 3", "4/h burst 3").Replace(s.document())
	require.NotEqual(t, s.document(), slow)
	s.write(slow)
	require.Contains(t, s.logs("a new policy document is in force"), "4/h burst 50")

	codes, _ := s.ask(20, "/healthz", "")
	require.Equal(t, map[int]int{200: 20}, codes)
	codes, last := s.ask(5, "/orders", "alice-token")
	require.Equal(t, map[int]int{200: 3, 429: 2}, codes)
	require.Contains(t, last.Header.Get("RateLimit-Policy"), `"account"`)
	codes, _ = s.ask(1, "/orders", "bob-token")
	require.Equal(t, map[int]int{200: 1}, codes)
	codes, _ = s.ask(44, "/orders", "guess") // of the address: 50 in all
	require.Equal(t, map[int]int{401: 44}, codes)
	codes, _ = s.ask(1, "/orders", "guess")
	require.Equal(t, map[int]int{429: 1}, codes)

	s.write(slow + "  nonsense: true\n") // a field of the last policy that there is not
	require.Contains(t, s.logs("is refused"), "nonsense")
	codes, _ = s.ask(1, "/orders", "bob-token")
	require.Equal(t, map[int]int{429: 1}, codes, "the one before serves on")

	s.write(strings.Replace(slow, "4/h burst 50", "unlimited", 1))
	s.logs("a new policy document is in force")
	codes, _ = s.ask(3, "/orders", "bob-token")
	require.Equal(t, map[int]int{200: 2, 429: 1}, codes, "bob has had one of three")
}

func TestUsage(t *testing.T) {
	defer goleak.VerifyNone(t)
	wrong := filepath.Join(t.TempDir(), "limits.yaml")
	require.NoError(t, os.WriteFile(wrong, []byte("version: 1\npolicies: [{name: x, key: ip, limit: 0/m}]\n"), 0o600))
	for _, args := range [][]string{{"-nope"}, {"-limits", ""}, {"-limits", wrong}, {"-limits", "limits.yaml", "-listen", "127.0.0.1:-1"}} {
		require.Error(t, run(t.Context(), args, io.Discard, new(bytes.Buffer)), "%v", args)
	}
}
