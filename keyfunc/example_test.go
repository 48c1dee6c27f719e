package keyfunc_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/spillway-go/spillway/keyfunc"
)

// show prints the key f makes of req, as a guard would use it.
func show(req *http.Request, f keyfunc.Func) {
	var r keyfunc.Request
	r.Reset(req, nil, nil)
	key, err := r.Resolve(f)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(key)
}

func ExampleIP() {
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	req.RemoteAddr = "203.0.113.9:40112"
	req.Header.Set("X-Forwarded-For", "198.51.100.1") // nobody said that this peer is a proxy
	show(req, keyfunc.IP())

	req.RemoteAddr = "[2001:db8:7:8:9:a:b:c]:443"
	show(req, keyfunc.IP())
	show(req, keyfunc.IP(keyfunc.IPv6Prefix(48)))
	// Output:
	// ip=203.0.113.9
	// ip=2001:db8:7:8::/64
	// ip=2001:db8:7::/48
}

func ExampleTrustedBy() {
	behindIngress := keyfunc.Trust{
		Strategy:       keyfunc.XForwardedFor,
		TrustedProxies: []string{"192.0.2.0/24"}, // the ingress, never "all private networks"
	}
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	req.RemoteAddr = "192.0.2.10:5000"
	req.Header.Set("X-Forwarded-For", "1.1.1.1, 203.0.113.7") // the left entry is what the client sent
	show(req, keyfunc.IP(keyfunc.TrustedBy(behindIngress)))
	// Output: ip=203.0.113.7
}

func ExampleFirst() {
	user := keyfunc.User(func(r *keyfunc.Request) string {
		name, _, _ := r.BasicAuth() // stands for what authentication has verified
		return name
	})
	key := keyfunc.First(user, keyfunc.IP())

	req := httptest.NewRequest(http.MethodGet, "/", nil)
	show(req, key)
	req.SetBasicAuth("bob@example.com", "secret")
	show(req, key)
	// Output:
	// ip=192.0.2.1
	// user=bob%40example.com
}

func ExampleJoin() {
	tenant := keyfunc.Tenant(func(*keyfunc.Request) string { return "acme" })
	mux := http.NewServeMux()
	mux.HandleFunc("GET /users/{id}", func(_ http.ResponseWriter, req *http.Request) {
		show(req, keyfunc.Join(tenant, keyfunc.Route()))
	})
	mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/users/7", nil))
	mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodHead, "/users/8", nil))
	// Output:
	// tenant=acme|route=GET%20/users/%7Bid%7D
	// tenant=acme|route=GET%20/users/%7Bid%7D
}

func ExampleHMAC() {
	secret := []byte("at least sixteen bytes, kept secret")
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	req.Header.Set("X-Api-Key", "s3cr3t")
	show(req, keyfunc.HMAC(secret, keyfunc.Header("X-Api-Key")))
	// Output: x_api_key=$NiKSGduwiTOmwLT_Smh9gw
}

// A Func of one's own: an empty value is no key, never a bucket shared by strangers.
func ExampleRequest_Key() {
	device := func(r *keyfunc.Request) (keyfunc.Key, error) {
		return r.Key("device", r.Header.Get("X-Device")), nil
	}
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	show(req, device)
	req.Header.Set("X-Device", "d-17")
	show(req, device)
	// Output:
	// keyfunc: no key
	// device=d-17
}

func ExampleNewClientIP() {
	_, err := keyfunc.NewClientIP(keyfunc.Trust{
		Strategy:       keyfunc.XForwardedFor,
		TrustedProxies: []string{"0.0.0.0/0", "cdn.example"},
	})
	fmt.Println(err)
	// Output:
	// keyfunc: Trust.TrustedProxies[0] is "0.0.0.0/0": lets every sender pass for anybody; name the proxies, or set AllowTrustAll (trust_all)
	// keyfunc: Trust.TrustedProxies[1] is "cdn.example": want an address or CIDR without zone (bad_trusted_proxy)
}

func ExampleCheck() {
	anonymousTwice := keyfunc.Join(keyfunc.First(keyfunc.User(func(*keyfunc.Request) string { return "" }), keyfunc.IP()), keyfunc.IP())
	fmt.Println(keyfunc.Check(anonymousTwice))
	// Output: keyfunc: Join: the kind "ip" may occur twice: limiter: invalid
}
