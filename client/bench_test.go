package client_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/client"
	"github.com/spillway-go/spillway/limiter"
)

// What a request costs beside being sent.
func BenchmarkRoundTrip(b *testing.B) {
	h := fields("RateLimit", `"p";r=1000000;t=1`, "RateLimit-Policy", `"p";q=1000000;w=1`)
	answer := func(h http.Header) base {
		return func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Header: h, Body: http.NoBody, Request: r}, nil
		}
	}
	run := func(name string, rt func(b *testing.B) http.RoundTripper) {
		b.Run(name, func(b *testing.B) {
			t := rt(b)
			r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "https://a.example/", http.NoBody)
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := t.RoundTrip(r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("without", func(*testing.B) http.RoundTripper { return answer(http.Header{}) })
	run("no limit", func(b *testing.B) http.RoundTripper {
		return newTransport(b, client.Config{Base: answer(http.Header{})})
	})
	run("bucket", func(b *testing.B) http.RoundTripper {
		return newTransport(b, client.Config{Base: answer(http.Header{}), Limit: limiter.PerSecond(limiter.MaxRate).WithBurst(limiter.MaxRate)})
	})
	run("fields", func(b *testing.B) http.RoundTripper { return newTransport(b, client.Config{Base: answer(h)}) })
}
