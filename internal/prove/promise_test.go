package prove_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/fallback"
)

// counts are what the meter compares with its limit.
var counts = []string{busy, calm, early, late, both, all, drain}

// policyOf is the policy of a count.
func policyOf(name string) string {
	if name == drain {
		return refund
	}
	return name
}

func limitOf(name string) limiter.Limit { return limits[policyOf(name)] }

// promise is what docs/guarantees.md says of one count in one cell.
type promise struct {
	within bound   // for every interval: L, or L + S
	extra  float64 // units that the fault may add: full quotas, what a clock jumped over
}

// promise follows the table "In one line each" of docs/guarantees.md. evictions are those of the count's key.
func (f fault) promise(mode string, l limiter.Limit, guards, evictions int) promise {
	q := float64(l.Quota())
	p := promise{within: boundOf(l)}
	// central, leased and what fallback has as its primary: + Q each time that data are lost, for each fail-over and for each
	// eviction, and what a clock jumped over, at most Q.
	p.extra = q*float64(f.losses+evictions) + min(q, p.within.rate*f.jump.Seconds())
	if mode == byFallback {
		// L + S, and a share for each process that starts again.
		share := boundOf(fallback.Share(l, guards))
		p.within = p.within.plus(share.times(float64(guards)))
		p.extra += share.units * float64(f.restarts)
	}
	return p
}

func TestPromises(t *testing.T) {
	l := limiter.PerSecond(200).WithBurst(100)
	for name, c := range map[string]struct {
		fault     fault
		mode      string
		evictions int
		want      promise
	}{
		"central":                   {fault{}, central, 0, promise{bound{100, 200}, 0}},
		"data lost":                 {fault{losses: 1}, leases, 0, promise{bound{100, 200}, 100}},
		"evicted":                   {fault{}, central, 3, promise{bound{100, 200}, 300}},
		"a small jump":              {fault{jump: 100 * time.Millisecond}, central, 0, promise{bound{100, 200}, 20}},
		"a jump":                    {fault{jump: time.Hour}, leases, 0, promise{bound{100, 200}, 100}},
		"fallback":                  {fault{}, byFallback, 0, promise{bound{200, 400}, 0}},
		"fallback, data lost":       {fault{losses: 1}, byFallback, 0, promise{bound{200, 400}, 100}},
		"fallback, a guard restart": {fault{restarts: 1}, byFallback, 0, promise{bound{200, 400}, 50}},
		"leased, a guard restart":   {fault{restarts: 1}, leases, 0, promise{bound{100, 200}, 0}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, c.fault.promise(c.mode, l, 2, c.evictions)) })
	}
}

func atoi(t *testing.T, text string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err)
	return n
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
