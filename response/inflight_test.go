package response_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/response"
)

func TestABoundInFlightDoesNotDescribeAPassBesideAQuota(t *testing.T) {
	x, err := response.New(response.Options{})
	require.NoError(t, err)
	quota, err := response.NewPolicy("api", limiter.PerMinute(100), "")
	require.NoError(t, err)
	bound, err := response.NewInFlight("api.inflight", 2)
	require.NoError(t, err)
	left := limiter.Decision{Allowed: true, Remaining: 40, ResetAfter: 36 * time.Second}
	last := limiter.Decision{Allowed: true}

	h := http.Header{}
	x.WriteHeaders(h, nil, time.Unix(1e9, 0), []response.Item{{Policy: bound, Decision: &last}, {Policy: quota, Decision: &left}})
	require.Equal(t, "100", h.Get("X-RateLimit-Limit"))
	require.Equal(t, "40", h.Get("X-RateLimit-Remaining"))

	h = http.Header{}
	x.WriteHeaders(h, nil, time.Unix(1e9, 0), []response.Item{{Policy: bound, Decision: &last}})
	require.Equal(t, "2", h.Get("X-RateLimit-Limit"), "alone it is all there is to tell")
	require.Equal(t, "0", h.Get("X-RateLimit-Remaining"))
}
