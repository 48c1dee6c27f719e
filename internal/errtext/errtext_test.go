package errtext_test

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/errtext"
	"github.com/spillway-go/spillway/limiter"
)

// labelled is a fault of a store.
type labelled struct {
	error
	label string
}

func (l labelled) Label() string { return l.label }
func (l labelled) Unwrap() error { return l.error }

func TestLabels(t *testing.T) {
	err := labelled{fmt.Errorf("%w: key ip=192.0.2.7", limiter.ErrUnavailable), "timeout"}
	require.Equal(t, "limiter: store unavailable: timeout", errtext.Of(fmt.Errorf("take: %w", err)))
	require.Equal(t, "timeout", errtext.Of(labelled{errors.New("ip=192.0.2.7"), "timeout"}))
	require.NotContains(t, errtext.Of(labelled{errors.New("x"), "alice"}), "alice")
	refused := labelled{errors.Join(limiter.ErrUnavailable, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), "refused"}
	require.Equal(t, "limiter: store unavailable: dial: connection refused", errtext.Of(refused))
	require.Equal(t, "text withheld", errtext.Of(errors.New("ip=192.0.2.7")))
	require.Empty(t, errtext.Of(nil))
}
