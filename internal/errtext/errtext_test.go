package errtext_test

import (
	"errors"
	"fmt"
	"net"
	"os"
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

// hollow panics where it is a nil pointer.
type hollow struct{ text, label string }

func (h *hollow) Error() string { return h.text }

// The others say what they are, and panic in what they have beside it.
type (
	bottomless struct{}
	forked     struct{}
	unlabelled struct{}
	untimed    struct{}
	ring       struct{ n int }
	broad      []error
)

func (bottomless) Error() string  { return "alice" }
func (bottomless) Unwrap() error  { panic("alice") }
func (forked) Error() string      { return "alice" }
func (forked) Unwrap() []error    { panic("alice") }
func (unlabelled) Error() string  { return "alice" }
func (unlabelled) Label() string  { panic("alice") }
func (untimed) Error() string     { return "alice" }
func (untimed) Timeout() bool     { panic("alice") }
func (*ring) Error() string       { return "alice" }
func (r *ring) Unwrap() []error   { r.n++; return []error{r, r} }
func (broad) Error() string       { return "alice" }
func (b broad) Unwrap() []error   { return b }
func (h *hollow) RedisError()     {}
func (h *hollow) Label() string   { return h.label }
func (h *hollow) Timeout() bool   { return h.text == "" }
func (h *hollow) Unwrap() []error { return []error{errors.New(h.text)} }

func TestWhatPanicsIsWithheld(t *testing.T) {
	for _, err := range []error{
		(*hollow)(nil), (*net.OpError)(nil), (*net.DNSError)(nil), (*os.PathError)(nil), (*os.SyscallError)(nil), bottomless{}, forked{}, unlabelled{}, untimed{},
	} {
		require.NotPanics(t, func() {
			require.Equal(t, "text withheld", errtext.Of(err), "%T", err)
			require.Equal(t, "limiter: store unavailable: limiter: closed", errtext.Of(errors.Join(limiter.ErrUnavailable, err, limiter.ErrClosed)), "%T", err)
			require.Equal(t, "timeout", errtext.Of(labelled{err, "timeout"}), "%T", err)
		})
	}
}

func TestRingsAreBounded(t *testing.T) {
	r := &ring{}
	require.Equal(t, "text withheld", errtext.Of(r))
	require.LessOrEqual(t, r.n, 64)
	many := make(broad, 1_000_000)
	many[0], many[len(many)-1] = limiter.ErrUnavailable, limiter.ErrClosed
	require.Equal(t, "limiter: store unavailable", errtext.Of(many))
}
