package adapters_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/adapters/stdhttp"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
)

// What an attacker can send must neither grow the process, nor touch the quota of anybody else, nor buy quota for himself.

// besieged is a service with one policy by address, of which each has five requests a day.
func besieged(t *testing.T, store *memory.Limiter, trust keyfunc.Trust, key keyfunc.Func) http.Handler {
	t.Helper()
	guard, err := spillway.New(spillway.Config{
		Limiter: store, ClientIP: trust,
		Policies: []spillway.Policy{{Name: "address", Key: key, Limit: limiter.PerDay(5)}},
	})
	require.NoError(t, err)
	return stdhttp.Middleware(guard)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
}

func storeOf(t *testing.T, keys int) *memory.Limiter {
	t.Helper()
	store, err := memory.New(memory.Config{MaxKeys: keys})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	return store
}

func sendFrom(h http.Handler, peer string, fields ...string) int {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = peer
	for k := 0; k < len(fields); k += 2 {
		r.Header.Add(fields[k], fields[k+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

var addressFields = []string{
	"X-Forwarded-For", "X-Real-Ip", "Forwarded", "True-Client-Ip", "Cf-Connecting-Ip", "X-Client-Ip", "X-Cluster-Client-Ip",
	"Fastly-Client-Ip", "X-Envoy-External-Address", "X-Original-Forwarded-For",
}

// Made-up addresses in every field that somebody somewhere believes: the peer stays who is counted, and has its five.
func TestSpoofedAddresses(t *testing.T) {
	for name, trust := range map[string]keyfunc.Trust{
		"nobody is trusted":     {},
		"the peer is no proxy":  {Strategy: keyfunc.XForwardedFor, TrustedProxies: []string{"192.0.2.0/24"}},
		"the peer is the proxy": {Strategy: keyfunc.XForwardedFor, TrustedProxies: []string{"198.51.100.1/32"}},
	} {
		t.Run(name, func(t *testing.T) {
			store := storeOf(t, 1000)
			h := besieged(t, store, trust, keyfunc.IP())
			served := 0
			for k := range 2000 {
				fields := []string{}
				for _, f := range addressFields {
					value := fmt.Sprintf("203.0.%d.%d", k/256, k%256)
					if f == "Forwarded" {
						value = "for=" + value
					}
					if f == "X-Forwarded-For" {
						value += ", 198.51.100.7" // what the proxy adds to what it was sent
					}
					fields = append(fields, f, value)
				}
				if sendFrom(h, "198.51.100.1:4711", fields...) == 200 {
					served++
				}
			}
			require.Equal(t, 5, served)
			require.Equal(t, 1, store.Len())
			require.Equal(t, 200, sendFrom(h, "203.0.0.7:4711"), "whose address was used has all of his own")
		})
	}
}

// A million addresses of IPv6, of as many networks as there are or of one: the table stays at its bound, who was there before
// keeps what is left to him, and no newcomer gets more than one would.
func TestAMillionAddresses(t *testing.T) {
	addresses := 1_000_000
	if testing.Short() || raceEnabled {
		addresses = 55_000
	}
	const room = 50_000
	store := storeOf(t, room)
	h := besieged(t, store, keyfunc.Trust{}, keyfunc.IP())
	for range 4 {
		require.Equal(t, 200, sendFrom(h, "203.0.113.7:4711"))
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	flood := func(of func(k uint64) [16]byte) (served int) {
		for k := range uint64(addresses) {
			r.RemoteAddr = net.JoinHostPort(netip.AddrFrom16(of(k)).String(), "4711")
			w := &coded{header: http.Header{}, code: 200}
			h.ServeHTTP(w, r)
			if w.code == 200 {
				served++
			}
		}
		return served
	}
	one := flood(func(k uint64) (a [16]byte) { // in one network of 64 bits, as each subscriber has it
		copy(a[:], netip.MustParseAddr("2001:db8::").AsSlice())
		binary.BigEndian.PutUint64(a[8:], k*0x9e3779b97f4a7c15)
		return a
	})
	require.Equal(t, 5, one)
	before := heap()
	flood(func(k uint64) (a [16]byte) {
		binary.BigEndian.PutUint64(a[:], 0x2001_0db8_0000_0000|k*0x9e37)
		return a
	})
	require.LessOrEqual(t, store.Len(), room+room/8)
	require.Less(t, heap()-before, int64(room*200), "bytes")
	require.Equal(t, 200, sendFrom(h, "203.0.113.7:4711"), "the one that was left to him")
	require.Equal(t, 429, sendFrom(h, "203.0.113.7:4711"), "and no more")
}

// coded is a writer that keeps the status alone.
type coded struct {
	header http.Header
	code   int
}

func (c *coded) Header() http.Header         { return c.header }
func (c *coded) Write(b []byte) (int, error) { return len(b), nil }
func (c *coded) WriteHeader(code int)        { c.code = code }

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Fields as large and as many as a server accepts: an answer, and no key that the sender has made up.
func TestHeaderBombs(t *testing.T) {
	bombs := map[string][]string{
		"a hundred thousand hops": {"X-Forwarded-For", strings.Repeat("203.0.113.9, ", 60_000) + "198.51.100.7"},
		"commas":                  {"X-Forwarded-For", strings.Repeat(",", 700_000)},
		"brackets":                {"X-Forwarded-For", strings.Repeat("[", 700_000)},
		"zones":                   {"X-Forwarded-For", "fe80::1%" + strings.Repeat("a", 700_000)},
		"forwarded quotes":        {"Forwarded", `for="` + strings.Repeat(`\"`, 300_000)},
		"forwarded elements":      {"Forwarded", strings.Repeat("for=203.0.113.9,", 40_000)},
		"an identity":             {"X-Tenant", strings.Repeat("a", 700_000)},
		"languages":               {"Accept-Language", strings.Repeat("en;q=0.1,", 70_000)},
		"types":                   {"Accept", strings.Repeat("text/html;q=0.1,", 40_000)},
	}
	many := make([]string, 0, 40_000)
	for range 20_000 {
		many = append(many, "X-Forwarded-For", "203.0.113.9")
	}
	bombs["lines"] = many
	store := storeOf(t, 1000)
	byXFF := besieged(t, store, keyfunc.Trust{Strategy: keyfunc.XForwardedFor, TrustedProxies: []string{"127.0.0.0/8"}}, keyfunc.IP())
	byForwarded := besieged(t, store, keyfunc.Trust{Strategy: keyfunc.Forwarded, TrustedProxies: []string{"127.0.0.0/8"}}, keyfunc.IP())
	byTenant := besieged(t, store, keyfunc.Trust{}, keyfunc.Join(keyfunc.Header("X-Tenant"), keyfunc.Route()))
	for name, fields := range bombs {
		t.Run(name, func(t *testing.T) {
			for _, h := range []http.Handler{byXFF, byForwarded, byTenant} {
				server := httptest.NewServer(h)
				defer server.Close()
				for range 2 { // on real sockets, by hand: no client would send it
					conn, err := net.Dial("tcp", server.Listener.Addr().String())
					require.NoError(t, err)
					go func() {
						out := bufio.NewWriter(conn)
						fmt.Fprintf(out, "GET / HTTP/1.1\r\nHost: own.example\r\nConnection: close\r\n")
						for k := 0; k < len(fields); k += 2 {
							fmt.Fprintf(out, "%s: %s\r\n", fields[k], fields[k+1])
						}
						fmt.Fprint(out, "\r\n")
						_ = out.Flush()
					}()
					res, err := http.ReadResponse(bufio.NewReader(conn), nil)
					require.NoError(t, err)
					require.NoError(t, res.Body.Close())
					require.Contains(t, []int{200, 403, 429, 431}, res.StatusCode)
					require.NoError(t, conn.Close())
				}
			}
			require.LessOrEqual(t, store.Len(), 8)
		})
	}
}

// Values that are chosen to be another's key, to be one slot of a Cluster, or to break out of a key, are each somebody else.
func TestKeysMadeToCollide(t *testing.T) {
	values := []string{
		"acme", "ACME", "acme|ip=203.0.113.7", "tenant=acme", "{acme}", "acme}", "{", "a{b}c", "acme:tb", "acme/", "acme%20", "acme%7C",
		"*", "#", "$", "..", "acme\u00a0", "\u0430cme", strings.Repeat("a", 128), strings.Repeat("a", 129), strings.Repeat("a", 130),
	}
	store := storeOf(t, 1000)
	h := besieged(t, store, keyfunc.Trust{}, keyfunc.Header("X-Tenant"))
	for _, v := range values {
		for k := range 6 {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header["X-Tenant"] = []string{v}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			require.Equal(t, map[bool]int{true: 200, false: 429}[k < 5], w.Code, "%q", v)
		}
		id, err := keyfunc.Encode("tenant", v)
		require.NoError(t, err)
		require.NotContains(t, id, "{")
		require.NotContains(t, id, "}")
		require.LessOrEqual(t, len(id), 200)
	}
	require.Equal(t, len(values), store.Len())
}
