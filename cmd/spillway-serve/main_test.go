package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLocations(t *testing.T) {
	for location, want := range map[string]place{
		"etcd://127.0.0.1:2379#shop/policies":                {hosts: []string{"127.0.0.1:2379"}, name: "shop/policies"},
		"etcds://app@a:2379,b:2379#k":                        {hosts: []string{"a:2379", "b:2379"}, name: "k", user: "app", tls: true},
		"nacos://127.0.0.1:8848/space/GROUP#shop.yaml":       {hosts: []string{"127.0.0.1:8848"}, name: "shop.yaml", path: []string{"space", "GROUP"}},
		"nacoss://app@nacos.example/DEFAULT_GROUP#shop.yaml": {hosts: []string{"nacos.example"}, name: "shop.yaml", path: []string{"DEFAULT_GROUP"}, user: "app", tls: true},
	} {
		got, err := parse(location, "")
		require.NoError(t, err, location)
		require.Equal(t, want, got)
	}
	for _, location := range []string{"etcd://127.0.0.1:2379", "etcd:///k#x", "etcd://app:secret@127.0.0.1:2379#k", "etcd://[#k"} {
		_, err := parse(location, "etcd://HOST#KEY")
		require.ErrorContains(t, err, "-config")
		require.NotContains(t, err.Error(), "secret")
	}
}

// Nothing is asked before a document is.
func TestSourcesAreMadeWithoutServers(t *testing.T) {
	t.Setenv(passwordVariable, "secret")
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
