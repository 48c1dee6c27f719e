package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/config"
)

// A caller has a key where each element of the policy's key has one part, and is spelled as the policy spells it.
func TestIdentity(t *testing.T) {
	doc, findings := config.Parse([]byte(`
version: 1
key_secret: 0123456789abcdef0123456789abcdef
client_ip: {strategy: remote_addr, ipv6_prefix: 56}
policies:
  - {name: addr, key: [ip], limit: 1/h}
  - {name: wide, key: [ip/48/24], limit: 1/h}
  - {name: head, key: ["header:Client-IP"], limit: 1/h}
  - {name: both, key: ["header:Client-IP", ip], limit: 1/h}
  - {name: keyed, key: ["hmac(header:X-Key)", ip/64], limit: 1/h}
  - {name: hidden, key: ["hmac(ip/32)"], limit: 1/h}
  - {name: either, key: ["first(header:X-Key, ip/32)", "ip/64"], limit: 1/h}
  - {name: app, stage: manual, limit: 1/h}
`))
	require.NoError(t, findings.Err())
	c := callers{document: doc}
	for _, x := range []struct{ policy, key, want string }{
		{"addr", "ip=2001:db8:1:2:3::4", "ip=2001:db8:1::/56"},
		{"addr", "ip=2001:db8:1::/56", "ip=2001:db8:1::/56"},
		{"addr", "ip=::ffff:203.0.113.7", "ip=203.0.113.7"},
		{"wide", "ip=203.0.113.7", "ip=203.0.113.0/24"},
		{"wide", "ip=2001:db8:1:2:3::4", "ip=2001:db8:1::/48"},
		{"head", "header:Client-IP=2001:db8:1:2:3::4", "client_ip=2001:db8:1:2:3::4"},
		{"both", "ip=2001:db8:1:2:3::4|header:Client-IP=10.0.0.1", "client_ip=10.0.0.1|ip=2001:db8:1::/56"},
		{"keyed", "ip=2001:db8:1:2:3::4|x_key=secret", `x_key=\$[\w-]+\|ip=2001:db8:1:2::/64`},
		{"keyed", "ip=2001:db8:1:2:3::4|x_key=$abc", `x_key=\$abc\|ip=2001:db8:1:2::/64`},
		{"hidden", "ip=2001:db8:1:2:3::4", `ip=\$[\w-]+`},
		{"either", "ip=2001:db8:1:2:3::4|ip=2001:db8:1:2:3::4", "ip=2001:db8::/32|ip=2001:db8:1:2::/64"},
		{"either", "ip=2001:db8:1:2:3::4|x_key=a b", "x_key=a%20b|ip=2001:db8:1:2::/64"},
		{"app", "key=a b", "key=a%20b"},

		{"addr", "ip=nobody", ""},
		{"addr", "ip=2001:db8:1:2::/64", ""}, // of no policy's size
		{"addr", "ip=1.2.3.4|ip=1.2.3.4", ""},
		{"head", "ip=1.2.3.4", ""},
		{"both", "ip=1.2.3.4|ip=1.2.3.4", ""},
		{"both", "header:Client-IP=1.2.3.4|header:Client-IP=1.2.3.4", ""},
		{"either", "x_key=a|x_key=a", ""},
		{"app", "ip=1.2.3.4", ""},
	} {
		parts, err := partsOf(x.key)
		require.NoError(t, err)
		for k := range doc.Policies {
			if doc.Policies[k].Name != x.policy {
				continue
			}
			identity, why := c.identity(k, parts)
			if x.want == "" {
				require.NotEmpty(t, why, x.key)
				require.Empty(t, identity)
				continue
			}
			require.Empty(t, why, x.key)
			if identity != x.want {
				require.Regexp(t, "^"+x.want+"$", identity)
			}
		}
	}
	same, _ := c.identity(5, []part{{"ip", "2001:db8:ffff::1"}})
	other, _ := c.identity(5, []part{{"ip", "2001:db9::1"}})
	hidden, _ := c.identity(5, []part{{"ip", "2001:db8:1:2:3::4"}})
	require.Equal(t, same, hidden)
	require.NotEqual(t, same, other)
}

func TestWhatIsMissingIsSaid(t *testing.T) {
	for _, name := range []string{"inspect", "reset"} {
		for _, c := range []struct {
			args []string
			says string
		}{
			{[]string{"ip=1.2.3.4"}, name + " needs -config"},
			{[]string{"-config", "x.yaml"}, name + " needs KEY"},
			{[]string{"-config", "x.yaml", "a=b", "c=d"}, name + ` takes one KEY behind its flags, but got ["a=b" "c=d"]`},
		} {
			code, out, errs := command(t, append([]string{name}, c.args...)...)
			require.Equal(t, exitUsage, code)
			require.Empty(t, out)
			require.Contains(t, errs, c.says)
		}
	}
}
