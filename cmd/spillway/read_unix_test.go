//go:build unix

package main

import (
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAPipeIsNotWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(path, 0o600))
	code, out, errs := command(t, "check", path)
	require.Equal(t, exitError, code)
	require.Empty(t, out)
	require.Contains(t, errs, "is no regular file")
}
