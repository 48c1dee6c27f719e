package promtest_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/spillway-go/spillway/internal/promtest"
)

const (
	soon = 30 * time.Second // it is there in a fraction; a busy machine may take longer
	tick = 20 * time.Millisecond

	config = `global:
  scrape_interval: 1h
  evaluation_interval: 1h
rule_files: [rules.yml]
scrape_configs:
  - job_name: test
    static_configs:
      # targets: [no]
      - targets: ["nowhere:1"]
`
	rules = `groups:
  - name: g
    rules:
      - {record: "twice:asked", expr: asked * 2}
      - {alert: Asked, expr: asked > 0, for: 1h}
`
)

// folder returns the path of a scrape config.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rules.yml"), []byte(rules), 0o600))
	file := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
	return file
}

// target serves a counter of how often it was scraped.
func target(t *testing.T) string {
	t.Helper()
	var asked atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "asked %d\nnothing NaN\n", asked.Add(1))
	}))
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

func TestServer(t *testing.T) {
	s := promtest.Start(t, promtest.Config{File: folder(t), Targets: []string{target(t), target(t)}})
	s.AwaitScrapes(2)
	samples, err := s.Query("asked")
	require.NoError(t, err)
	require.Len(t, samples, 2)
	for _, x := range samples {
		require.Equal(t, "asked", x.Labels["__name__"])
		require.Equal(t, "test", x.Labels["job"])
		require.GreaterOrEqual(t, x.Value, 2.0)
		require.WithinDuration(t, time.Now(), x.At, time.Minute)
	}
	before := samples[0].Value
	s.AwaitScrapes(1)
	samples, err = s.Query("min(asked)")
	require.NoError(t, err)
	require.Greater(t, samples[0].Value, before-1)

	samples, err = s.Query("nothing")
	require.NoError(t, err)
	require.True(t, math.IsNaN(samples[0].Value))
	samples, err = s.Query("scalar(sum(up)) + 1")
	require.NoError(t, err)
	require.Len(t, samples, 1)
	require.Equal(t, 3.0, samples[0].Value)
	samples, err = s.Query("none")
	require.NoError(t, err)
	require.Empty(t, samples)
	_, err = s.Query("sum(")
	require.ErrorContains(t, err, "parse error")
	_, err = s.Query("asked[1m]")
	require.ErrorContains(t, err, "matrix")

	require.Eventually(t, func() bool {
		samples, err := s.Query("twice:asked")
		return err == nil && len(samples) == 2
	}, soon, tick, "rules are evaluated")
	list, err := s.Rules()
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, "twice:asked", list[0].Name)
	require.Equal(t, "recording", list[0].Type)
	require.Equal(t, "asked * 2", list[0].Query)
	require.Equal(t, "Asked", list[1].Name)
	require.Equal(t, 3600.0, list[1].Duration)
}

func TestServersDoNotMeet(t *testing.T) {
	file, to := folder(t), target(t)
	var pids []int
	t.Run("servers", func(t *testing.T) {
		before := goleak.IgnoreCurrent()
		t.Cleanup(func() { require.NoError(t, goleak.Find(before)) }) // after all others
		a := promtest.Start(t, promtest.Config{File: file, Targets: []string{to}})
		b := promtest.Start(t, promtest.Config{File: file, Targets: nil})
		pids = append(pids, a.PID(), b.PID())
		require.NotEqual(t, a.Addr(), b.Addr())
		a.AwaitScrapes(1)
		samples, err := b.Query("up")
		require.NoError(t, err)
		require.Empty(t, samples)
	})
	require.Len(t, pids, 2)
	for _, pid := range pids {
		requireGone(t, pid)
	}
}

func TestPromtool(t *testing.T) {
	out, err := promtest.Promtool(t, strings.NewReader("# HELP a_total A.\n# TYPE a_total counter\na_total 1\n"), "check", "metrics")
	require.NoError(t, err, out)
	out, err = promtest.Promtool(t, strings.NewReader("# TYPE a counter\na 1\n"), "check", "metrics")
	require.Error(t, err)
	require.Contains(t, out, "_total")
}

func TestWhatCannotStartSaysWhy(t *testing.T) {
	file := folder(t)
	said := run(func(fake testing.TB) {
		promtest.Start(fake, promtest.Config{File: filepath.Join(filepath.Dir(file), "rules.yml")})
	})
	require.Regexp(t, `^fatal: .*has no line like`, said)

	require.NoError(t, os.WriteFile(file, []byte(config+"nonsense: 1\n"), 0o600))
	said = run(func(fake testing.TB) { promtest.Start(fake, promtest.Config{File: file}) })
	require.Regexp(t, `(?s)^fatal: .*field nonsense not found`, said)
}

func TestWithoutPrometheus(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for ci, what := range map[string]string{"": "skip", "true": "fatal"} {
		t.Setenv("CI", ci)
		said := run(func(fake testing.TB) { promtest.Start(fake, promtest.Config{}) })
		require.Regexp(t, "^"+what+": promtest: .*prometheus", said)
		said = run(func(fake testing.TB) { _, _ = promtest.Promtool(fake, nil) })
		require.Regexp(t, "^"+what+": promtest: .*promtool", said)
	}
}

// A test process that is killed runs no cleanup.
func TestNothingOutlivesTheTestProcess(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("see the package comment")
	}
	child := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v")
	child.Env = append(os.Environ(), "PROMTEST_CHILD="+folder(t), "TMPDIR="+t.TempDir())
	in, err := child.StdinPipe() // open as long as we are
	require.NoError(t, err)
	defer func() { _ = in.Close() }()
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	pid := 0
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "pid "); ok {
			pid, err = strconv.Atoi(text)
			require.NoError(t, err)
		}
	}
	require.NoError(t, child.Process.Kill())
	_ = child.Wait()
	if pid == 0 && os.Getenv("CI") != "true" {
		t.Skip("no prometheus")
	}
	require.Positive(t, pid)
	requireGone(t, pid)
}

// TestChild is the test process that is killed.
func TestChild(t *testing.T) {
	file := os.Getenv("PROMTEST_CHILD")
	if file == "" {
		t.Skip("run by another test")
	}
	s := promtest.Start(t, promtest.Config{File: file})
	_, _ = fmt.Fprintf(os.Stdout, "\npid %d\n", s.PID())
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// requireGone waits until no process has pid, or only its exit status is left.
func requireGone(t *testing.T, pid int) {
	t.Helper()
	if runtime.GOOS != "linux" {
		return
	}
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, after, _ := bytes.Cut(stat, []byte(") "))
		return os.IsNotExist(err) || bytes.HasPrefix(after, []byte("Z"))
	}, soon, tick, "process %d is still there", pid)
}

// fakeTB is a test that only notes what it is told.
type fakeTB struct {
	testing.TB
	dir  string
	said []string
}

// run runs f as the test fake, up to its end or failure, and returns what it said.
func run(f func(fake testing.TB)) string {
	dir, _ := os.MkdirTemp("", "promtest-*")
	defer func() { _ = os.RemoveAll(dir) }()
	fake, done := &fakeTB{dir: dir}, make(chan struct{})
	go func() {
		defer close(done)
		f(fake)
	}()
	<-done
	return strings.Join(fake.said, "\n")
}

func (f *fakeTB) end(what, format string, args []any) {
	f.said = append(f.said, what+": "+fmt.Sprintf(format, args...))
	runtime.Goexit()
}

func (f *fakeTB) Helper()                           {}
func (f *fakeTB) TempDir() string                   { return f.dir }
func (f *fakeTB) Context() context.Context          { return context.Background() }
func (f *fakeTB) Cleanup(func())                    {}
func (f *fakeTB) Fatalf(format string, args ...any) { f.end("fatal", format, args) }
func (f *fakeTB) Skipf(format string, args ...any)  { f.end("skip", format, args) }
