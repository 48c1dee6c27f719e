package keyfunc_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

func TestKinds(t *testing.T) {
	nobody := func(*keyfunc.Request) string { return "" }
	kinds, err := keyfunc.Kinds(keyfunc.Join(keyfunc.First(keyfunc.User(nobody), keyfunc.IP()), keyfunc.Header("X-Api-Key"), keyfunc.Route()))
	require.NoError(t, err)
	require.Equal(t, []string{"user", "ip", "x_api_key", "route"}, kinds)
	_, err = keyfunc.Kinds(nil)
	require.ErrorIs(t, err, limiter.ErrInvalid)
	_, err = keyfunc.Kinds(keyfunc.Join(keyfunc.IP(), keyfunc.IP()))
	require.ErrorIs(t, err, limiter.ErrInvalid)
}
