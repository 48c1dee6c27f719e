package child_test

import (
	"bufio"
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/child"
)

const roleVar = "CHILD_TEST_ROLE"

// The children are this test binary, started once more.
func TestMain(m *testing.M) {
	switch os.Getenv(roleVar) {
	case "":
		m.Run()
	case "echo":
		child.Say("ready")
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			child.Say("heard " + lines.Text())
		}
	case "silent":
	case "waits":
		child.Say("ready")
		if child.Await() != nil {
			return
		}
		child.Say("begins")
		ctx, cancel := child.Lives(context.Background())
		defer cancel()
		<-ctx.Done()
		child.Say("ends")
	case "redis":
		ctx, cancel := child.Lives(context.Background())
		defer cancel()
		if err := child.Redis(ctx, ""); err != nil {
			panic(err)
		}
	}
}

func start(t *testing.T, role string) (*child.Process, error) {
	t.Helper()
	return child.Start(t.Context(), []string{roleVar + "=" + role})
}

func TestEcho(t *testing.T) {
	p, err := start(t, "echo")
	require.NoError(t, err)
	require.Equal(t, "ready", p.Said)
	for _, said := range []string{"a", "b"} {
		p.Tell(said)
		line, ok := p.Next()
		require.True(t, ok)
		require.Equal(t, "heard "+said, line)
	}
	p.Close()
	_, ok := p.Next()
	require.False(t, ok, "it ends with its input")
	require.NoError(t, p.Wait())
}

// A child that has begun ends with its parent, and so does one that has not.
func TestLives(t *testing.T) {
	p, err := start(t, "waits")
	require.NoError(t, err)
	p.Tell("go")
	line, _ := p.Next()
	require.Equal(t, "begins", line)
	p.Close()
	line, _ = p.Next()
	require.Equal(t, "ends", line)
	require.NoError(t, p.Wait())

	p, err = start(t, "waits")
	require.NoError(t, err)
	p.Close()
	_, ok := p.Next()
	require.False(t, ok)
	require.NoError(t, p.Wait())
}

func TestNotStarted(t *testing.T) {
	_, err := start(t, "silent")
	require.ErrorContains(t, err, "did not start")
}

// A context that is over ends the child.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p, err := child.Start(ctx, []string{roleVar + "=echo"})
	require.NoError(t, err)
	cancel()
	_, ok := p.Next()
	require.False(t, ok)
	_ = p.Wait()
}

func TestRedis(t *testing.T) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip(err)
	}
	p, err := start(t, "redis")
	require.NoError(t, err)
	address := strings.TrimPrefix(p.Said, "redis://")
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.NoError(t, p.End())
	_, err = (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	require.Error(t, err, "it is gone with its process")
}
