package serve_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/serve"
)

func TestPlaces(t *testing.T) {
	for location, want := range map[string]serve.Place{
		"etcd://127.0.0.1:2379#shop/policies":    {Hosts: []string{"127.0.0.1:2379"}, Name: "shop/policies"},
		"etcds://app@a:2379,b:2379#k":            {Hosts: []string{"a:2379", "b:2379"}, Name: "k", User: "app", TLS: true},
		"etcd://127.0.0.1/space/GROUP#shop.yaml": {Hosts: []string{"127.0.0.1"}, Name: "shop.yaml", Path: []string{"space", "GROUP"}},
	} {
		got, err := serve.ParsePlace(location, "etcd", "")
		require.NoError(t, err, location)
		require.Equal(t, want, got)
	}
	for _, location := range []string{"etcd://127.0.0.1:2379", "etcd:///k#x", "etcd://app:secret@127.0.0.1:2379#k", "etcd://[#k"} {
		_, err := serve.ParsePlace(location, "etcd", "etcd://HOST#KEY")
		require.Error(t, err)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestApollo(t *testing.T) {
	t.Setenv(serve.PasswordVariable, "secret")
	for location, ok := range map[string]bool{
		"apollo://config:8080/shop#limits.yaml": true, "apollos://config/shop/eu#limits.yaml": true,
		"apollo://config:8080#limits.yaml": false, "apollo://config/shop/eu/x#limits.yaml": false, "apollo://config/shop": false, "apollo://a:b@config/shop#limits.yaml": false,
	} {
		src, done, err := serve.Builtin().Open(location)
		require.Equal(t, ok, err == nil, "%s: %v", location, err)
		if ok {
			require.NotContains(t, src.(interface{ String() string }).String(), "secret")
			done()
		}
	}
}
