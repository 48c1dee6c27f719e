package degrade_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
)

// secretOf answers each caller of a field with something of their own.
func secretOf(field string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "secret of "+r.Header.Get(field)+r.URL.Query().Get(field))
	}
}

// Without a Partition, the policy's own key says whose a copy is.
func TestCachedByKey(t *testing.T) {
	secret := []byte("0123456789abcdef")
	byCustomer := keyfunc.Header("X-Customer")
	for name, key := range map[string]keyfunc.Func{
		"header": byCustomer,
		"hashed": keyfunc.HMAC(secret, byCustomer),
		"joined": keyfunc.Join(keyfunc.IP(), byCustomer, keyfunc.Route()),
		"first":  keyfunc.First(byCustomer, keyfunc.IP()),
		"kind of somebody": func(r *keyfunc.Request) (keyfunc.Key, error) {
			return r.Key("customer", r.Header.Get("X-Customer")), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, degrade.PagesConfig{}, secretOf("X-Customer"))
			s.key = key
			s.allow(fetch("/account", "X-Customer: alice"))
			require.Equal(t, "secret of alice", copyOf(s.refuse(fetch("/account", "X-Customer: alice"))))
			require.Nil(t, s.refuse(fetch("/account", "X-Customer: bob")))
			require.Nil(t, s.refuse(fetch("/account")))
			s.origin = answers(200, "page", "Cache-Control: public")
			s.allow(fetch("/all", "X-Customer: alice"))
			require.Equal(t, "page", copyOf(s.refuse(fetch("/all", "X-Customer: bob"))), "public")
			require.Equal(t, "page", copyOf(s.refuse(fetch("/all"))))
			s.origin = answers(200, "", "Cache-Control: private")
			s.allow(fetch("/account", "X-Customer: alice"))
			require.Nil(t, s.refuse(fetch("/account", "X-Customer: alice")), "speaks against older ones")
		})
	}
	// An address is nobody: copies are for all of them, as far as they have no credentials.
	for name, key := range map[string]keyfunc.Func{
		"none": nil, "ip": keyfunc.IP(), "ip and route": keyfunc.Join(keyfunc.IP(), keyfunc.Route()), "all": keyfunc.Global(), "first": keyfunc.First(byCustomer, keyfunc.IP()),
	} {
		s := newSite(t, degrade.PagesConfig{}, answers(200, "page"))
		s.key = key
		from := func(address string, fields ...string) *http.Request {
			r := fetch("/", fields...)
			r.RemoteAddr = address + ":1"
			return r
		}
		s.allow(from("192.0.2.1"))
		require.Equal(t, "page", copyOf(s.refuse(from("192.0.2.2"))), name)
		require.Nil(t, s.refuse(from("192.0.2.2", "Authorization: Bearer x")), name)
	}
	// Parts of a key are told apart, and so are partitions and keys.
	p := degrade.NewPages(degrade.PagesConfig{})
	private := func(key ...string) string {
		private, _ := p.Address(fetch("/"), "p", "/", key...)
		return private
	}
	require.NotEqual(t, private("a=b", "c=d"), private("a=bc", "=d"))
	require.NotEqual(t, private("a=b", "c=d"), private("a=b"))
	require.Equal(t, private("a=b", "ip=1.2.3.4"), private("ip=5.6.7.8", "a=b"))
	require.NotEqual(t, private("limit:alice"), private("limit:bob"), "as a StoreKey spells it")
	byTag, _ := degrade.NewPages(degrade.PagesConfig{Partition: byIdentity}).Address(fetch("/", "X-Identity: a"), "p", "/")
	require.NotEqual(t, byTag, private("user=a"))
}

// A key may be what anybody can send. So it does not take the place of credentials, as a Partition does.
func TestCachedByKeyAndCredentials(t *testing.T) {
	cert := func(raw string) func(*http.Request) {
		return func(r *http.Request) {
			r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Raw: []byte(raw)}}}
		}
	}
	fields := func(fields ...string) func(*http.Request) {
		return func(r *http.Request) { setFields(r.Header, fields) }
	}
	for name, c := range map[string]struct{ alice, bob func(*http.Request) }{
		"token":         {fields("Authorization: Bearer a"), fields("Authorization: Bearer b")},
		"cookie":        {fields("Cookie: sid=a"), fields("Cookie: sid=b")},
		"a cookie more": {fields("Cookie: sid=a"), fields("Cookie: sid=a; sid=b")},
		"lines":         {fields("X-Token: a", "X-Token: b"), fields("X-Token: a")},
		"another field": {fields("X-Token: a"), fields("X-Auth: a")},
		"certificate":   {cert("a"), cert("b")},
		"none":          {fields("Authorization: Bearer a"), fields()},
		"parameter":     {func(r *http.Request) { r.URL.RawQuery = "token=a" }, func(r *http.Request) { r.URL.RawQuery = "token=b" }},
	} {
		for kind, key := range map[string]keyfunc.Func{
			"a field":          keyfunc.Header("X-Customer"),
			"a path parameter": func(r *keyfunc.Request) (keyfunc.Key, error) { return r.Key("id", "7"), nil },
		} {
			s := newSite(t, degrade.PagesConfig{Query: []string{}}, secretOf("X-Customer"))
			s.key = key
			request := func(who func(*http.Request)) *http.Request {
				r := fetch("http://a.example/account", "X-Customer: alice")
				who(r)
				return r
			}
			s.allow(request(c.alice))
			require.Equal(t, "secret of alice", copyOf(s.refuse(request(c.alice))), name)
			require.Nil(t, s.refuse(request(c.bob)), "%s, %s", name, kind)
		}
	}
	// A Partition has been verified, and decides alone.
	s := newSite(t, degrade.PagesConfig{Partition: byIdentity}, secretOf("X-Identity"))
	s.key = keyfunc.Header("X-Customer")
	s.allow(fetch("/", "X-Identity: alice", "X-Customer: a", "Authorization: Bearer 1"))
	require.NotNil(t, s.refuse(fetch("/", "X-Identity: alice", "X-Customer: b", "Authorization: Bearer 2")))
	require.Nil(t, s.refuse(fetch("/", "X-Identity: bob", "X-Customer: a", "Authorization: Bearer 1")))
	require.Nil(t, s.refuse(fetch("/", "X-Customer: a", "Authorization: Bearer 1")), "without a partition, by the credentials")
}

// Fields by which proxies and clients say who asks, and fields that say no such thing.
func TestCachedCredentialNames(t *testing.T) {
	for _, c := range []struct {
		want  string
		names []string
	}{
		{"refused", []string{
			"Authorization", "Proxy-Authorization", "X-Api-Key", "Api-Key", "X-Auth-Token", "X-Access-Token", "Cookie2",
			"Apikey", "X-Forwarded-User", "X-Auth-Request-User", "Remote-User", "X-Forwarded-Client-Cert", "X-Ssl-Client-Cert",
			"Cf-Access-Jwt-Assertion", "X-Amzn-Oidc-Data", "X-Goog-Iap-Jwt-Assertion", "Private-Token", "X-Goog-Api-Key",
			"Ocp-Apim-Subscription-Key", "X-Api-Token", "X-Session-Token", "X-Vault-Token", "X-Amz-Security-Token", "Dpop", "X-Access-Key",
			"X-Authorization", "X-Arr-Clientcert", "X-Ms-Client-Principal", "X-Consumer-Username", "X-Ssl-Client-S-Dn", "X-Client-Tls-Serial",
			"X-Goog-Authenticated-User-Email", "Tailscale-User-Login", "X-User", "X-Account-Id", "Signature-Input", "X-Users-Agent", "X-User-Id-Agent",
			"X_api_key", "x_api_key", "Private_token", "X.Api.Key", "Remote_user", "X_identity",
		}},
		{"page", []string{
			"Accept", "Accept-Language", "Accept-Charset", "User-Agent", "X-Original-User-Agent", "Sec-Fetch-User", "Sec-Ch-Ua", "Sec-Websocket-Key", "X-Requested-With",
			"Upgrade-Insecure-Requests", "X-Csrf-Token", "X-Xsrf-Token", "X-Request-Id", "X-Forwarded-For", "X-Real-Ip", "X-Client-Ip", "Via", "Dnt",
			"Traceparent", "X-Amzn-Trace-Id", "X-Arr-Ssl", "Idempotency-Key", "X-Cache-Key", "Referer", "Device-Memory", "Priority", "Purpose", "Keep-Alive",
			"Access-Control-Request-Headers", "Cf-Connecting-Ip", "Cf-Ray", "X-Envoy-Expected-Rq-Timeout-Ms", "X-Country", "X-Tenant",
		}},
	} {
		for _, name := range c.names {
			s := newSite(t, degrade.PagesConfig{}, answers(200, "page"))
			r := fetch("/")
			r.Header[name] = []string{"alice"} // as spelled
			s.allow(r)
			require.Equal(t, c.want, copyOf(s.refuse(r)), name)
			r.Header[name] = []string{"bob"}
			require.Equal(t, c.want, copyOf(s.refuse(r)), name)
		}
	}
	s := newSite(t, degrade.PagesConfig{Credentials: []string{"x-customer"}}, answers(200, "page"))
	for _, name := range []string{"X-Customer", "X_customer", "X_CUSTOMER"} {
		r := fetch("/")
		r.Header[name] = []string{"alice"}
		s.allow(r)
		require.Nil(t, s.refuse(r), name)
	}
	for _, query := range []string{"key=a", "api_key=a", "Access_Token=a", "X-Amz-Signature=a", "sig=a"} {
		s := newSite(t, degrade.PagesConfig{Query: []string{"page"}}, answers(200, "page"))
		s.allow(fetch("/?page=1&" + query))
		require.Nil(t, s.refuse(fetch("/?page=1")), query)
		s.allow(fetch("/?page=1&lang=a"))
		require.NotNil(t, s.refuse(fetch("/?page=1&lang=b")))
	}
}

// Programs behind CGI and WSGI read a field spelled with an underline as the one with a hyphen.
func TestLeakUnderlines(t *testing.T) {
	odd := func(method, name, value string) *http.Request {
		r := cacheRequest(method, "/")
		r.Header[name] = []string{value}
		return r
	}
	for _, name := range []string{"X_http_method_override", "X-Http_method-Override", "X_HTTP_METHOD", "X_method_override"} {
		s := newSite(t, degrade.PagesConfig{}, answers(200, "page"))
		s.allow(odd("GET", name, "DELETE"))
		require.Nil(t, s.refuse(fetch("/")), name)
		require.Nil(t, s.refuse(odd("GET", name, "DELETE")), name)
		s.allow(fetch("/"))
		require.Nil(t, s.refuse(odd("GET", name, "DELETE")), name)
		require.NotNil(t, s.refuse(fetch("/")))
		s.allow(odd("HEAD", name, "DELETE"))
		require.Nil(t, s.refuse(fetch("/")), "%s: is a write", name)
	}
	for _, vary := range []string{"", "X-Tenant", "X_Tenant"} {
		s := newSite(t, degrade.PagesConfig{}, answers(200, "of alice", "Vary: "+vary))
		s.allow(odd("GET", "X_tenant", "alice"))
		require.NotNil(t, s.refuse(odd("GET", "X_tenant", "alice")))
		require.Nil(t, s.refuse(odd("GET", "X_tenant", "bob")), vary)
		require.Nil(t, s.refuse(fetch("/")), vary)
	}
	s := newSite(t, degrade.PagesConfig{}, answers(200, "evil"))
	s.allow(odd("GET", "X_forwarded_host", "evil"))
	require.Nil(t, s.refuse(fetch("/")))
}

// What one parser takes for one cookie is two for another.
func TestLeakCookieSyntax(t *testing.T) {
	cfg := degrade.PagesConfig{IgnoreCookies: []string{"_ga", "_gid"}}
	for line, want := range map[string]string{
		"_ga=1": "page", "_ga=1; _gid=2": "page", "_ga=1;_gid=2;": "page", "_ga=": "page", "_ga=GS1.1.16$o=1": "page", "_ga=a/b:c": "page",
		"_ga=1 session=2": "refused", "_ga=1\tsession=2": "refused", "_ga =1": "refused", "_ga= 1": "refused", "_ga=1, session=2": "refused", `_ga="1"`: "refused",
		"_ga=1\xa0session=2": "refused", "_ga=1\x85session=2": "refused", "_ga=1\x0bsession=2": "refused", `_ga=1\073session=2`: "refused", "_ga=é": "refused",
		"_ga=1; session=2": "refused", "_GA=1": "refused", "_ga": "page", "_ga session=2": "refused",
	} {
		s := newSite(t, cfg, answers(200, "page"))
		r := fetch("/")
		r.Header["Cookie"] = []string{line}
		s.allow(r)
		require.Equal(t, want, copyOf(s.refuse(r)), "%q", line)
	}
}

// A write never makes a copy, whatever it is answered, and takes copies away also if it proceeds degraded.
func TestRecordDegradedWrites(t *testing.T) {
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "QUERY"} {
		s := newSite(t, degrade.PagesConfig{}, answers(200, "page", "Cache-Control: public, max-age=60"))
		degraded := func(r *http.Request) *http.Request {
			return r.WithContext(degrade.NewContext(r.Context(), degrade.Info{Policy: "default", Mode: degrade.ModeFlag}))
		}
		for name, r := range map[string]*http.Request{"usual": cacheRequest(method, "/"), "degraded": degraded(cacheRequest(method, "/"))} {
			s.allow(fetch("/"))
			require.NotNil(t, s.refuse(fetch("/")))
			s.allow(r)
			require.Nil(t, s.refuse(fetch("/")), "%s %s", method, name)
			require.Empty(t, degrade.StoreKeys(s.h.(interface{ Pages() *degrade.Pages }).Pages().Store()))
		}
		s.allow(degraded(fetch("/")))
		require.Nil(t, s.refuse(fetch("/")), "what is answered degraded is not for others")
	}
}
