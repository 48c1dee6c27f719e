package observe_test

import (
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/observe"
)

// flood shows n events at the same distance over a second from start on.
func flood(l *observe.Log, e limiter.Event, start time.Time, n int) {
	for i := range n {
		e.Time = start.Add(time.Duration(i) * time.Second / time.Duration(n))
		l.Observe(e)
	}
}

func leftOut(lines []line) (sum int) {
	for _, l := range lines {
		if n, ok := l["left_out"].(float64); ok {
			sum += int(n)
		}
	}
	return sum
}

func TestAFloodCostsABoundedLog(t *testing.T) {
	for name, e := range map[string]limiter.Event{
		"allowed":  {Kind: limiter.EventDecision},
		"blocked":  {Kind: limiter.EventDecision, Outcome: limiter.OutcomeBlocked},
		"shadow":   {Kind: limiter.EventDecision, Outcome: limiter.OutcomeShadowBlocked},
		"rejected": {Kind: limiter.EventRejected, Reason: limiter.ReasonQuota},
		"degraded": {Kind: limiter.EventDegraded, Mode: "shed"},
		"error":    {Kind: limiter.EventError, Reason: limiter.ReasonInvalid},
		"client":   {Kind: limiter.EventError, Reason: limiter.ReasonClientIP},
		"canceled": {Kind: limiter.EventError, Reason: limiter.ReasonCanceled},
		"panic":    {Kind: limiter.EventPanic, Name: "Key"},
		"store":    {Kind: limiter.EventStore, Op: "take", Err: errors.New("x")},
		"stored":   {Kind: limiter.EventStore, Op: "take"},
		"lease":    {Kind: limiter.EventLease},
		"adapt":    {Kind: limiter.EventAdapt},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, rate := 1000, 7
				if name == "rejected" {
					n = 100_000
				}
				l, p := newLog(t, slog.LevelDebug, observe.LogConfig{Decisions: rate})
				if name == "panic" {
					rate = 1
				}
				start := time.Now()
				flood(l, e, start, n)
				require.Len(t, p.lines(t), rate)

				// The next line tells of the rest.
				time.Sleep(time.Second)
				flood(l, e, start.Add(time.Second), n)
				lines := p.lines(t)
				require.Len(t, lines, rate)
				require.InDelta(t, n-rate, lines[0]["left_out"], 0)
				require.Equal(t, n-rate, leftOut(lines))

				// Late events are of the second that is, so they win no lines.
				flood(l, e, start, n)
				flood(l, e, start.Add(-time.Hour), n)
				require.Empty(t, p.lines(t))

				// Nor do those from the future, which silence nobody afterwards.
				flood(l, e, start.Add(1000*time.Hour), n)
				require.Empty(t, p.lines(t))
				time.Sleep(time.Second)
				e.Time = time.Now()
				l.Observe(e)
				e.Time = time.Time{}
				l.Observe(e)
				lines = p.lines(t)
				require.InDelta(t, 4*n-rate, lines[0]["left_out"], 0)
				require.Len(t, lines, min(2, rate))
			})
		})
	}
}

func TestAFloodOfOneKindLeavesTheOthersAlone(t *testing.T) {
	l, p := newLog(t, slog.LevelInfo, observe.LogConfig{Decisions: 1})
	now := time.Now()
	flood(l, limiter.Event{Kind: limiter.EventDecision, Outcome: limiter.OutcomeBlocked}, now, 1000)
	flood(l, limiter.Event{Kind: limiter.EventError, Reason: limiter.ReasonNoKey}, now, 1000)
	p.lines(t)
	for _, e := range []limiter.Event{
		{Kind: limiter.EventError, Reason: limiter.ReasonUnavailable},
		{Kind: limiter.EventDecision, Outcome: limiter.OutcomeShadowBlocked},
		{Kind: limiter.EventRejected},
		{Kind: limiter.EventStoreState, State: 1},
		{Kind: limiter.EventStoreState},
	} {
		l.Observe(e)
		lines := p.lines(t)
		require.Len(t, lines, 1)
		require.NotContains(t, lines[0], "left_out")
	}
}

func TestWithoutSamplesChangesAndPanicsAreLogged(t *testing.T) {
	l, p := newLog(t, slog.LevelDebug, observe.LogConfig{Decisions: -1})
	for _, e := range []limiter.Event{
		{Kind: limiter.EventDecision},
		{Kind: limiter.EventDecision, Outcome: limiter.OutcomeBlocked},
		{Kind: limiter.EventRejected},
		{Kind: limiter.EventDegraded},
		{Kind: limiter.EventError},
		{Kind: limiter.EventStore, Err: errors.New("x")},
		{Kind: limiter.EventLease},
		{Kind: limiter.EventAdapt, Reason: "cpu"},
	} {
		l.Observe(e)
		require.Empty(t, p.lines(t), e.Kind.String())
	}
	for _, e := range []limiter.Event{
		{Kind: limiter.EventStoreState, State: 1},
		{Kind: limiter.EventBreaker, State: limiter.BreakerOpen},
		{Kind: limiter.EventReload, Reason: "ok"},
		{Kind: limiter.EventMemory, Overflow: 1},
		{Kind: limiter.EventPanic},
	} {
		l.Observe(e)
		require.Len(t, p.lines(t), 1, e.Kind.String())
	}
}

func TestLogOfManyGoroutines(t *testing.T) {
	const goroutines, each, rate = 8, 2000, 5
	l, p := newLog(t, slog.LevelInfo, observe.LogConfig{Decisions: rate})
	now := time.Now()
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				l.Observe(limiter.Event{Kind: limiter.EventRejected, Time: now, Key: aKey, Reason: limiter.ReasonQuota})
				if i%100 > 0 {
					continue
				}
				name := strings.Repeat("x", g)
				l.Observe(limiter.Event{Kind: limiter.EventMemory, Name: name, Overflow: int64(i)})
				l.Observe(limiter.Event{Kind: limiter.EventBreaker, Name: name, State: uint8(i / 100 % 3)})
				l.Observe(limiter.Event{Kind: limiter.EventAdapt, Policy: name, Reason: name})
			}
		})
	}
	wg.Wait()
	rejected := 0
	for _, line := range p.lines(t) {
		if line["msg"] == "spillway: a request is refused" {
			rejected++
		}
	}
	require.Equal(t, rate, rejected)
}

func TestALineThatIsNotWrittenAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	l, _ := newLog(t, slog.LevelInfo, observe.LogConfig{Decisions: 1})
	allowed := limiter.Event{Kind: limiter.EventDecision, Context: t.Context(), Time: time.Now(), Policy: "p", Key: aKey}
	require.Zero(t, testing.AllocsPerRun(1000, func() { l.Observe(allowed) }))
	blocked := allowed
	blocked.Outcome = limiter.OutcomeBlocked
	l.Observe(blocked)
	require.Zero(t, testing.AllocsPerRun(1000, func() { l.Observe(blocked) }))
}

func BenchmarkLogAllowed(b *testing.B) {
	l, err := observe.NewLog(observe.LogConfig{Logger: slog.New(slog.NewTextHandler(&page{}, nil))})
	require.NoError(b, err)
	e := limiter.Event{Kind: limiter.EventDecision, Context: b.Context(), Time: time.Now(), Policy: "p", Key: aKey}
	b.ReportAllocs()
	for b.Loop() {
		l.Observe(e)
	}
}
