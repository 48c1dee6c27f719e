package rediscall_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/internal/rediscall"
	"github.com/spillway-go/spillway/limiter"
)

func open(t *testing.T, where string) redis.UniversalClient {
	t.Helper()
	c, err := rediscall.Open(where)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestOpenPlain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "url")
	require.NoError(t, os.WriteFile(path, []byte("redis://u:p%40@h:1/3?pool_size=7\n"), 0o600))
	t.Setenv("SPILLWAY_TEST_REDIS", "redis://u:p%40@h:1/3?pool_size=7")
	for _, where := range []string{"redis://u:p%40@h:1/3?pool_size=7", "env:SPILLWAY_TEST_REDIS", "file:" + path} {
		o := open(t, where).(*redis.Client).Options()
		require.Equal(t, []any{"h:1", "u", "p@", 3, 7}, []any{o.Addr, o.Username, o.Password, o.DB, o.PoolSize}, where)
		require.Nil(t, o.TLSConfig)
	}
	require.NotNil(t, open(t, "rediss://h").(*redis.Client).Options().TLSConfig)
	o := open(t, "unix:///run/redis.sock?db=2").(*redis.Client).Options()
	require.Equal(t, []any{"unix", "/run/redis.sock", 2}, []any{o.Network, o.Addr, o.DB})
}

func TestOpenCluster(t *testing.T) {
	o := open(t, "redis+cluster://u:p@h:1,h2,[::1]:3,[::2]/?max_redirects=5").(*redis.ClusterClient).Options()
	require.Equal(t, []string{"h:1", "h2:6379", "[::1]:3", "[::2]:6379"}, o.Addrs)
	require.Equal(t, []any{"u", "p", 5, true}, []any{o.Username, o.Password, o.MaxRedirects, o.ContextTimeoutEnabled})
	require.Nil(t, o.TLSConfig)
	require.NotNil(t, open(t, "rediss+cluster://h").(*redis.ClusterClient).Options().TLSConfig)
}

func TestOpenSentinel(t *testing.T) {
	o := open(t, "redis+sentinel://h:1,h2/my%20master/4?password=p&username=u&pool_size=9").(*redis.Client).Options()
	require.Equal(t, []any{"FailoverClient", "u", "p", 4, 9}, []any{o.Addr, o.Username, o.Password, o.DB, o.PoolSize})
	require.Equal(t, 0, open(t, "redis+sentinel://h/m").(*redis.Client).Options().DB)
	require.IsType(t, &redis.ClusterClient{}, open(t, "redis+sentinel://h/m?route_randomly=true"))
	require.NotNil(t, open(t, "rediss+sentinel://h/m").(*redis.Client).Options().TLSConfig)
}

// An error names what is wrong where that is safe.
func TestOpenRefuses(t *testing.T) {
	for where, want := range map[string]string{
		"":                               "no scheme",
		"localhost:6379":                 "no scheme",
		"http://h":                       "unknown scheme",
		"redis://h?colour=red":           "unexpected option: colour",
		"redis://h?pool_size=many":       "invalid pool_size number",
		"redis://h/x":                    "invalid database number",
		"redis://h:x":                    "malformed",
		"redis+cluster://h?colour=red":   "unexpected option: colour",
		"redis+sentinel://h":             "no name of a master",
		"redis+sentinel://h/m/x":         "invalid database number",
		"redis+sentinel://h/m?colour=1":  "unexpected option: colour",
		"env:SPILLWAY_TEST_NOT_SET":      "not set",
		"env:redis://u:secret@h":         "followed by a name",
		"file:redis://u:secret@h":        "followed by a name",
		"file:/no/such/file":             "no such file",
		"redis://h?pool_size=9999999999": "cannot work with",
	} {
		c, err := rediscall.Open(where)
		require.ErrorIs(t, err, limiter.ErrInvalid, where)
		require.ErrorContains(t, err, want, where)
		require.NotContains(t, err.Error(), "secret")
		require.Nil(t, c, where)
	}
}

// Whatever a password is made of, encoded or not, no error repeats it.
func TestOpenKeepsPasswords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scheme := rapid.SampledFrom([]string{"redis", "rediss", "unix", "redis+cluster", "redis+sentinel", "other"}).Draw(t, "scheme")
		before := rapid.StringMatching(`(u:|:|)[0-9/?#%@&=:,\[\] ]{0,3}`).Draw(t, "before")
		after := rapid.StringMatching(`[0-9/?#%@&=:,\[\] ]{0,3}`).Draw(t, "after")
		rest := rapid.SampledFrom([]string{"@h", "@h:x/1", "@h/x", "@h?x=1", "@h:1/m/x", "", "/m?colour=red"}).Draw(t, "rest")
		c, err := rediscall.Open(scheme + "://" + before + "secret" + after + rest)
		if err == nil {
			_ = c.Close()
			return
		}
		require.ErrorIs(t, err, limiter.ErrInvalid)
		// Without an @ behind it, nothing makes it a password.
		if rest != "" && rest[0] == '@' {
			require.NotContains(t, err.Error(), "secret")
		}
	})
}
