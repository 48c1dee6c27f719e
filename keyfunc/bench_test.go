package keyfunc_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spillway-go/spillway/keyfunc"
)

func benchKey(b *testing.B, req *http.Request, fw keyfunc.Framework, trust keyfunc.Trust, f keyfunc.Func, want error) {
	b.Helper()
	c, err := keyfunc.NewClientIP(trust)
	if err != nil {
		b.Fatal(err)
	}
	r := new(keyfunc.Request)
	b.ReportAllocs()
	for b.Loop() {
		r.Reset(req, fw, c)
		if _, err := r.Resolve(f); err != want {
			b.Fatal(err)
		}
	}
}

func BenchmarkIP(b *testing.B) {
	peer := func(addr string) *http.Request {
		req := httptest.NewRequest(http.MethodGet, "/", nil)
		req.RemoteAddr = addr
		return req
	}
	header := func(name, value string) *http.Request {
		req := peer("10.0.0.1:5000")
		req.Header.Set(name, value)
		return req
	}
	ours := []string{"10.0.0.0/8"}
	xff := keyfunc.Trust{Strategy: keyfunc.XForwardedFor, TrustedProxies: ours}
	fwd := keyfunc.Trust{Strategy: keyfunc.Forwarded, TrustedProxies: ours}
	many := xff
	for i := range 2000 {
		many.TrustedProxies = append(many.TrustedProxies[:len(many.TrustedProxies):len(many.TrustedProxies)],
			"172."+itoa(16+i/250)+"."+itoa(i%250)+".0/25")
	}
	mega := strings.Repeat("x", 1<<20)
	for _, bb := range []struct {
		name  string
		req   *http.Request
		trust keyfunc.Trust
	}{
		{"peer", peer("203.0.113.9:1234"), keyfunc.Trust{}},
		{"peer6", peer("[2001:db8:7:8:9:a:b:c]:443"), keyfunc.Trust{}},
		{"xff1", header("X-Forwarded-For", "203.0.113.7"), xff},
		{"xff3", header("X-Forwarded-For", "1.1.1.1, 203.0.113.7, 10.0.0.3, 10.0.0.2"), xff},
		{"xff3/2000ranges", header("X-Forwarded-For", "1.1.1.1, 203.0.113.7, 10.0.0.3, 10.0.0.2"), many},
		{"forwarded", header("Forwarded", `for=203.0.113.7;proto=https, for=10.0.0.2`), fwd},
		{"mega/left", header("X-Forwarded-For", mega+", 203.0.113.7"), xff},
		{"mega/all", header("X-Forwarded-For", mega), xff},
		{"mega/commas", header("X-Forwarded-For", strings.Repeat(",", 1<<20)), xff},
		{"mega/blanks", header("X-Forwarded-For", strings.Repeat(" ", 1<<20)), xff},
		{"mega/hops", header("X-Forwarded-For", strings.Repeat("10.0.0.1,", 1<<17)), xff},
		{"mega/forwarded", header("Forwarded", `for="`+strings.Repeat(`\1`, 1<<19)), fwd},
	} {
		b.Run(bb.name, func(b *testing.B) { benchKey(b, bb.req, nil, bb.trust, keyfunc.IP(), nil) })
	}
}

func BenchmarkKey(b *testing.B) {
	req := httptest.NewRequest(http.MethodGet, "/search?q=x&device=d1", nil)
	req.RemoteAddr = "203.0.113.9:1234"
	req.Header.Set("X-Api-Key", "0123456789abcdef0123456789abcdef")
	req.Header.Set("X-Long", strings.Repeat("a", 200))
	req.Header.Set("X-Mega", strings.Repeat("a", 1<<20))
	req.Header.Set("Cookie", "theme=dark; session=0123456789abcdef")
	fw := &fake{route: "/users/:id"}
	tenant := keyfunc.Tenant(func(*keyfunc.Request) string { return "acme" })
	nobody := keyfunc.User(func(*keyfunc.Request) string { return "" })
	secret := []byte("0123456789abcdef")
	for _, bb := range []struct {
		name string
		f    keyfunc.Func
	}{
		{"tenant", tenant},
		{"route", keyfunc.Route()},
		{"header", keyfunc.Header("X-Api-Key")},
		{"header/200", keyfunc.Header("X-Long")},
		{"header/1MB", keyfunc.Header("X-Mega")},
		{"cookie", keyfunc.Cookie("session")},
		{"query", keyfunc.Query("device")},
		{"join", keyfunc.Join(tenant, keyfunc.Route(), keyfunc.IP())},
		{"first", keyfunc.First(nobody, keyfunc.IP())},
		{"hmac", keyfunc.HMAC(secret, keyfunc.Header("X-Api-Key"))},
	} {
		b.Run(bb.name, func(b *testing.B) { benchKey(b, req, fw, keyfunc.Trust{}, bb.f, nil) })
	}
}

// BenchmarkFreeze is what a request with three policies pays for its keys: one allocation.
func BenchmarkFreeze(b *testing.B) {
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	fw := &fake{route: "/users/:id"}
	tenant := keyfunc.Tenant(func(*keyfunc.Request) string { return "acme" })
	funcs := []keyfunc.Func{keyfunc.IP(), keyfunc.Join(tenant, keyfunc.Route()), tenant}
	r := new(keyfunc.Request)
	var ids [3]string
	b.ReportAllocs()
	for b.Loop() {
		r.Reset(req, fw, nil)
		var keys [3]keyfunc.Key
		for i, f := range funcs {
			keys[i], _ = r.Resolve(f)
		}
		frozen := r.Freeze()
		for i, k := range keys {
			ids[i] = k.In(frozen)
		}
	}
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + string(rune('0'+n%10))
}
