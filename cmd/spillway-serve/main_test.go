package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/serve"
)

// Nothing is asked before a document is.
func TestSourcesAreMadeWithoutServers(t *testing.T) {
	t.Setenv(serve.PasswordVariable, "secret")
	for _, location := range []string{
		"etcd://127.0.0.1:1#k", "etcds://app@127.0.0.1:1#k", "nacos://127.0.0.1:1#k", "nacoss://app@127.0.0.1:1/space/group#k", "limits.yaml",
	} {
		src, done, err := sources().Open(location)
		require.NoError(t, err, location)
		require.NotContains(t, src.(interface{ String() string }).String(), "secret")
		done()
	}
	for _, location := range []string{"nacos://127.0.0.1:1/a/b/c#k", "consul://127.0.0.1:1#k"} {
		_, _, err := sources().Open(location)
		require.Error(t, err, location)
	}
}
