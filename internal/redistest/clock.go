package redistest

import (
	_ "embed"
	endian "encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

//go:embed shim/clock.c
var clockShim string

// Clock is the wall clock of one server.
type Clock struct {
	t    testing.TB
	file *os.File
}

// StartClock is [Start] for a server whose wall clock can be set: what its TIME, its expiry of keys and its scripts go by.
// Its monotonic clock goes on, as where somebody sets the clock of a machine. It works on Linux, with a C compiler; elsewhere
// the test is skipped, or fails where the environment says CI=true.
func StartClock(t testing.TB, args ...string) (*Server, *Clock) {
	t.Helper()
	folder := t.TempDir()
	shim := buildShim(t, folder)
	offset := filepath.Join(folder, "offset")
	file, err := os.Create(offset)
	if err == nil {
		err = file.Truncate(8)
	}
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	t.Cleanup(func() { _ = file.Close() })
	// env replaces itself by the server, which so keeps the process id.
	command := append([]string{"env", "LD_PRELOAD=" + shim, "REDISTEST_OFFSET=" + offset}, data(t, folder, args...)...)
	return run(t, command), &Clock{t: t, file: file}
}

// Set sets the clock to that of the machine and offset, at once. It stays set when the server starts again.
func (c *Clock) Set(offset time.Duration) {
	c.t.Helper()
	var b [8]byte
	endian.NativeEndian.PutUint64(b[:], uint64(offset.Nanoseconds()))
	if _, err := c.file.WriteAt(b[:], 0); err != nil {
		c.t.Fatalf("redistest: %v", err)
	}
}

// buildShim compiles the library that stands between a server and the clock.
func buildShim(t testing.TB, folder string) string {
	t.Helper()
	source, shim := filepath.Join(folder, "clock.c"), filepath.Join(folder, "clock.so")
	if err := os.WriteFile(source, []byte(clockShim), 0o600); err != nil {
		t.Fatalf("redistest: %v", err)
	}
	out, err := exec.Command("cc", "-shared", "-fPIC", "-O2", "-o", shim, source).CombinedOutput()
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatalf("redistest: %v: %s", err, out)
	default:
		t.Skipf("redistest: %v: %s", err, out)
	}
	return shim
}
