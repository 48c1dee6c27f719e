package adaptive_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/adaptive"
)

// as is a law that gives a reason.
type as adaptive.Reason

func (a as) Update(cur float64, _ adaptive.Window, _ adaptive.Reading) (float64, adaptive.Reason) {
	return cur - 6, adaptive.Reason(a)
}
func (as) Reset()         {}
func (as) NeedsCPU() bool { return false }

func TestExplain(t *testing.T) {
	nominal := limiter.PerSecond(100).WithBurst(20)
	why := func(s *stage) string {
		l, text := s.c.Explain(s.now, nominal)
		require.Equal(t, s.c.Adjust(s.now, nominal), l)
		return text
	}
	config := func(law adaptive.MakeLaw) adaptive.Config {
		return adaptive.Config{Law: law, Min: 5, Max: 500, Fixed: 50}
	}
	s := newStage(t, config(func(adaptive.Thresholds) adaptive.Law { return as(adaptive.ReasonCPU) }))
	require.Equal(t, "50 in flight: nothing has been seen yet", why(s))
	s.seconds(1)
	require.Equal(t, "44 in flight: cpu above 80 %", why(s))
	s.pass(2500 * ms)
	require.Equal(t, "44 in flight: no traffic", why(s))
	s.now = s.now.Add(10 * time.Second)
	require.Equal(t, "fixed limit of 50 in flight: not run since 12:00:03", why(s))
	s.next = s.c.Advance(s.now)
	require.Equal(t, "fixed limit of 50 in flight until 12:00:43: the controller was not run in time", why(s))
	l, text := s.c.Explain(s.now.Add(-24*time.Hour), nominal)
	require.Equal(t, nominal, l)
	require.Equal(t, "fixed limit of 50 in flight until 2026-03-01 12:00:43: the controller was not run in time", text)
	require.NoError(t, s.c.Close())
	require.Equal(t, "fixed limit of 50 in flight: closed", why(s))

	// Of a rate, what it makes of the limit.
	s = newStage(t, adaptive.Config{Target: adaptive.Rate, Law: func(adaptive.Thresholds) adaptive.Law { return as(adaptive.ReasonErrors) }})
	require.Equal(t, "100 % of the rate: nothing has been seen yet", why(s))
	s.seconds(2)
	require.Equal(t, nominal.String()+" × 88 % = "+limiter.PerSecond(88).WithBurst(17).String()+": more than 5 % of the requests fail", why(s))

	// All reasons have words, and a law's own is one.
	for _, r := range append(adaptive.Reasons(), "a reason of its own") {
		s := newStage(t, config(func(adaptive.Thresholds) adaptive.Law { return as(r) }))
		s.seconds(1)
		text := why(s)
		require.NotContains(t, text, "_")
		require.Contains(t, text, "44 in flight: ")
		require.Equal(t, r == "a reason of its own", text == "44 in flight: "+string(r))
	}
}

// To ask is not to use: nothing starts, and nothing is told on account of it.
func TestExplainStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := adaptive.New(adaptive.Config{Target: adaptive.Rate})
		require.NoError(t, err)
		l, why := c.Explain(time.Now(), limiter.PerSecond(10))
		require.Equal(t, limiter.PerSecond(10), l)
		require.Equal(t, "100 % of the rate: nothing has been seen yet", why)
	}) // in which nothing runs
}
