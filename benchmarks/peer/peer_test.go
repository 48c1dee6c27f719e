package peer_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/benchmarks/peer"
)

// Every case must do what its profile says, else its time means nothing.

func TestMems(t *testing.T) {
	ctx := context.Background()
	seen := map[string]bool{}
	for _, m := range peer.Mems() {
		t.Run(m.Name, func(t *testing.T) {
			require.Regexp(t, `^[a-z0-9:+/-]+$`, m.Name, "fit for a benchmark's name")
			require.False(t, seen[m.Name], "registered twice")
			seen[m.Name] = true
			for _, p := range []peer.Profile{peer.Open, peer.Live, peer.Stored, peer.Hundred000} {
				d, stop := m.New(p)
				for i := range 200 {
					ok, err := d.Allow(ctx, peer.Key(i%10))
					require.NoError(t, err)
					require.True(t, ok, "%+v, request %d", p, i)
				}
				stop()
			}
			d, stop := m.New(peer.Closed)
			defer stop()
			for i := range 3 {
				ok, err := d.Allow(ctx, "k")
				require.NoError(t, err)
				require.Equal(t, i == 0, ok, "request %d", i)
			}
			if m.NewCleaning != nil {
				d, stop := m.NewCleaning(time.Minute)
				defer stop()
				ok, err := d.Allow(ctx, "k")
				require.NoError(t, err)
				require.True(t, ok)
			}
			if m.NewBounded != nil {
				d, stop := m.NewBounded(peer.Stored, 100)
				defer stop()
				for i := range 1000 {
					_, err := d.Allow(ctx, peer.Key(i))
					require.NoError(t, err)
				}
			}
		})
	}
}

func TestMWs(t *testing.T) {
	seen := map[string]bool{}
	for _, m := range peer.MWs() {
		t.Run(m.FullName(), func(t *testing.T) {
			require.Regexp(t, `^(std|gin|echo)/[a-z0-9+-]+$`, m.FullName())
			require.False(t, seen[m.FullName()], "registered twice")
			seen[m.FullName()] = true
			for _, policies := range []int{1, 3} {
				open, closed := m.Build(peer.Open, policies), m.Build(peer.Closed, policies)
				for i := range 3 {
					require.Equal(t, http.StatusOK, status(open), "open, request %d", i)
					want := http.StatusOK
					if i > 0 && m.Name != "none" {
						want = http.StatusTooManyRequests
					}
					require.Equal(t, want, status(closed), "closed, request %d", i)
				}
			}
		})
	}
}

func status(h http.Handler) int {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "http://example.test/", nil)
	r.RemoteAddr = "10.20.30.40:51234"
	h.ServeHTTP(w, r)
	return w.Code
}
