package filesource_test

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/spillway-go/spillway/config"
	filesource "github.com/spillway-go/spillway/config/source/file"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newSource(t *testing.T, c filesource.Config) *filesource.Source {
	t.Helper()
	s, err := filesource.New(c)
	require.NoError(t, err)
	return s
}

func write(t *testing.T, path, doc string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(doc), 0o600))
}

func TestNewNamesEverythingWrong(t *testing.T) {
	for _, c := range []struct {
		config filesource.Config
		want   []string
	}{
		{filesource.Config{}, []string{"no Path"}},
		{filesource.Config{Path: "a\x00b"}, []string{"zero byte"}},
		{filesource.Config{Path: "/etc/shop/"}, []string{"a directory's"}},
		{filesource.Config{Settle: time.Microsecond, Poll: -2}, []string{"no Path", "Settle 1µs", "Poll -2ns"}},
		{filesource.Config{Path: "a", Settle: time.Minute, Poll: time.Microsecond}, []string{"Settle 1m0s", "Poll 1µs"}},
	} {
		s, err := filesource.New(c.config)
		require.Nil(t, s)
		for _, want := range c.want {
			require.ErrorContains(t, err, want)
		}
		require.ErrorContains(t, err, "filesource: ")
	}
	for _, c := range []filesource.Config{
		{Path: "no/such/file"},
		{Path: "a", Settle: -1, Poll: -1},
		{Path: "a", Settle: time.Second, Poll: time.Hour},
	} {
		_, err := filesource.New(c)
		require.NoError(t, err)
	}
	require.Equal(t, "file:a/b", newSource(t, filesource.Config{Path: "a/b"}).String())
}

// What can never be read is an error at once, with its reason.
func TestWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, syscall.Mkfifo(at("pipe"), 0o600))
	l, err := net.Listen("unix", at("socket"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	require.NoError(t, os.Symlink("loop", at("loop")))
	require.NoError(t, os.Symlink("pipe", at("link to a pipe")))
	write(t, at("file"), "version: 1\n")
	write(t, at("huge"), "")
	require.NoError(t, os.Truncate(at("huge"), 1<<40))
	for path, want := range map[string]string{
		dir:                       "is a directory",
		at("pipe"):                "is a named pipe",
		at("link to a pipe"):      "is a named pipe",
		at("socket"):              "is a socket",
		"/dev/zero":               "is a device",
		at("loop"):                "too many",
		at("file") + "/below.yml": "not a directory",
		at("huge"):                "larger than 1048576 bytes",
	} {
		for _, settle := range []time.Duration{0, -1} {
			_, err := newSource(t, filesource.Config{Path: path, Settle: settle}).Load(t.Context())
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, "filesource: ")
			require.ErrorContains(t, err, path)
			require.NotErrorIs(t, err, config.ErrIncomplete)
		}
	}
}

func TestFilesThatMayNotBeRead(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	path := filepath.Join(t.TempDir(), "limits.yaml")
	write(t, path, "version: 1\n")
	require.NoError(t, os.Chmod(path, 0))
	_, err := newSource(t, filesource.Config{Path: path}).Load(t.Context())
	require.ErrorIs(t, err, os.ErrPermission)
	require.NotErrorIs(t, err, config.ErrIncomplete)
}

func TestMissingAndEmpty(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "limits.yaml")
	write(t, path, "")
	for path, want := range map[string]string{
		path:                                "is empty",
		filepath.Join(dir, "none.yaml"):     "is missing",
		filepath.Join(dir, "no", "dir.yml"): "is missing",
	} {
		for _, settle := range []time.Duration{0, -1} {
			_, err := newSource(t, filesource.Config{Path: path, Settle: settle}).Load(t.Context())
			require.ErrorIs(t, err, config.ErrIncomplete)
			require.ErrorContains(t, err, want)
		}
	}
}

// A document costs one Settle, and one that ends within a line five.
func TestSettle(t *testing.T) {
	for doc, want := range map[string]time.Duration{
		"version: 1\n": 100 * time.Millisecond,
		"version: 1":   500 * time.Millisecond,
	} {
		synctest.Test(t, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "limits.yaml")
			write(t, path, doc)
			began := time.Now()
			got, err := newSource(t, filesource.Config{Path: path}).Load(t.Context())
			require.NoError(t, err)
			require.Equal(t, doc, string(got))
			require.Equal(t, want, time.Since(began))

			began = time.Now()
			got, err = newSource(t, filesource.Config{Path: path, Settle: -1}).Load(t.Context())
			require.NoError(t, err)
			require.Equal(t, doc, string(got))
			require.Zero(t, time.Since(began))
		})
	}
}

// pieces writes a document in place with a pause before each piece, as the file of another process would be written.
func pieces(t *testing.T, path string, pause time.Duration, doc ...string) (done chan struct{}) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	require.NoError(t, err)
	done = make(chan struct{})
	go func() {
		defer close(done)
		for _, piece := range doc {
			time.Sleep(pause)
			if _, err := f.WriteString(piece); err != nil {
				t.Error(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	return done
}

func TestWritersInPieces(t *testing.T) {
	lines := []string{"version: 1\n", "policies:\n", "  - name: search\n", "    key: [ip]\n", "    limit: 6000/m\n", "    burst: 100\n"}
	blocks := []string{"version: 1\npolicies:\n  - na", "me: search\n    key: [ip]\n    limit: 60", "00/m\n    burst: 10", "0\n"}
	for name, c := range map[string]struct {
		pause time.Duration
		doc   []string
	}{
		"lines with pauses below Settle":        {90 * time.Millisecond, lines},
		"blocks with pauses below five Settles": {400 * time.Millisecond, blocks},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "limits.yaml")
				s := newSource(t, filesource.Config{Path: path})
				done := pieces(t, path, c.pause, c.doc...)
				time.Sleep(c.pause + 10*time.Millisecond) // the first is there
				got, err := s.Load(t.Context())
				require.NoError(t, err)
				require.Equal(t, bytes.Join(bytesOf(c.doc), nil), got)
				<-done
			})
		})
	}
}

func bytesOf(in []string) (out [][]byte) {
	for _, s := range in {
		out = append(out, []byte(s))
	}
	return out
}

// A file that never comes to rest is given up, and so is one whose reader has left.
func TestFilesThatKeepChanging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "limits.yaml")
		s := newSource(t, filesource.Config{Path: path})
		lines := make([]string, 200)
		for i := range lines {
			lines[i] = "# more\n"
		}
		done := pieces(t, path, 50*time.Millisecond, lines...)
		began := time.Now()
		_, err := s.Load(t.Context())
		require.ErrorIs(t, err, config.ErrIncomplete)
		require.ErrorContains(t, err, "keeps changing")
		require.Equal(t, 5*time.Second, time.Since(began))

		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		defer cancel()
		began = time.Now()
		_, err = s.Load(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 150*time.Millisecond, time.Since(began))
		<-done
	})
}

// A file that takes the place of one with the same content is no reason to wait, only another reading.
func TestReplacedWhileItIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, "limits.yaml")
		write(t, path, "version: 1\n")
		time.AfterFunc(50*time.Millisecond, func() {
			write(t, filepath.Join(dir, "next"), "version: 2\n")
			if err := os.Rename(filepath.Join(dir, "next"), path); err != nil {
				t.Error(err)
			}
		})
		began := time.Now()
		got, err := newSource(t, filesource.Config{Path: path}).Load(t.Context())
		require.NoError(t, err)
		require.Equal(t, "version: 2\n", string(got))
		require.Equal(t, 200*time.Millisecond, time.Since(began))
	})
}
