package degrade_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// askGate asks h before its policy.
func askGate(h degrade.Handler, r *keyfunc.Request, now time.Time) degrade.Hint {
	return h.(degrade.Gate).Before(&degrade.Subject{Request: r, Now: now})
}

func tellGate(h degrade.Handler, now time.Time, n int, v degrade.Verdict) {
	for range n {
		h.(degrade.Gate).After(&degrade.Subject{Now: now}, v)
	}
}

func TestReadOnlyLatch(t *testing.T) {
	h := degrade.ReadOnly(degrade.ReadOnlyConfig{Latch: 0.5, Reads: func(r *keyfunc.Request) bool {
		if r.URL.Path == "/boom" {
			panic("boom")
		}
		return r.URL.Path == "/search"
	}})
	now := latchBegin
	isOn := h.(degrade.Latched).Latched
	write, read, search := guarded(t, "POST", "/", ""), guarded(t, "GET", "/", ""), guarded(t, "POST", "/search", "")
	require.Zero(t, askGate(h, write, now))

	// Not decisions of the policy: what was shut, and what another policy has refused before it was asked.
	tellGate(h, now, 1000, degrade.Verdict{})
	tellGate(h, now, 10, degrade.Verdict{Passed: true})
	tellGate(h, now, 10, degrade.Verdict{Decision: limiter.Decision{Allowed: true}})
	tellGate(h, now, 19, degrade.Verdict{Refused: true})
	require.False(t, isOn(now))
	tellGate(h, now, 1, degrade.Verdict{Refused: true})
	require.True(t, isOn(now))

	shut := degrade.Hint{Shut: true, Cause: degrade.Capacity, Wait: 10 * time.Second, Strict: true}
	require.Equal(t, shut, askGate(h, write, now))
	require.Equal(t, shut, askGate(h, guarded(t, "POST", "/boom", ""), now))
	require.Zero(t, askGate(h, read, now))
	require.Zero(t, askGate(h, search, now))

	// The window is empty after 5 s, and 10 s later the first write is asked of the policy again.
	now = now.Add(14 * time.Second)
	shut.Wait = time.Second
	require.Equal(t, shut, askGate(h, write, now))
	now = now.Add(time.Second)
	require.Zero(t, askGate(h, write, now))
	require.False(t, isOn(now))

	// A write that was shut is refused as the service's.
	d := &degrade.Denial{Cause: degrade.Capacity, Key: limiter.Key{ID: "ip=192.0.2.1"}}
	require.Equal(t, degrade.Refuse, denyRead(h, write, d))
	require.Equal(t, degrade.Capacity, d.Cause)
	require.True(t, d.ReadOnly)
}

// Where there is no latch there is no gate, and nothing to inherit.
func TestReadOnlyInherit(t *testing.T) {
	plain := degrade.ReadOnly()
	require.Empty(t, degrade.Find[degrade.Gate](plain))
	require.Empty(t, degrade.Find[degrade.Heir](plain))
	require.Empty(t, degrade.Find[degrade.Latched](plain))

	fresh := func(share float64) degrade.Handler {
		return degrade.Within(limiter.PerMinute(1), degrade.ReadOnly(degrade.ReadOnlyConfig{Latch: share}))
	}
	gate := func(h degrade.Handler) degrade.Handler { return degrade.Find[degrade.Gate](h)[0].(degrade.Handler) }
	old, same, other := fresh(0.5), fresh(0.5), fresh(0.25)
	write := guarded(t, "POST", "/", "")
	tellGate(gate(old), latchBegin, 20, degrade.Verdict{Refused: true})
	degrade.Inherit(same, old)
	degrade.Inherit(other, old)
	degrade.Inherit(other, plain)
	require.True(t, askGate(gate(same), write, latchBegin).Shut)
	require.False(t, askGate(gate(other), write, latchBegin).Shut)
	// Requests in service still tell the old one.
	tellGate(gate(old), latchBegin.Add(time.Second), 100, degrade.Verdict{Passed: true})
	require.Equal(t, 9*time.Second, askGate(gate(same), write, latchBegin.Add(2*time.Second)).Wait)
}

// Many requests at once leave the latch as the same ones in order would.
func TestReadOnlyLatchTogether(t *testing.T) {
	h := degrade.ReadOnly(degrade.ReadOnlyConfig{Latch: 0.5})
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			write := guarded(t, "POST", "/", "")
			for k := range 2000 {
				now := latchBegin.Add(time.Duration(k) * time.Millisecond)
				askGate(h, write, now)
				tellGate(h, now, 1, degrade.Verdict{Refused: g > 0, Passed: g == 0})
				h.(degrade.Latched).Latched(now)
			}
		})
	}
	wg.Wait()
	require.True(t, h.(degrade.Latched).Latched(latchBegin.Add(2*time.Second)))
	require.False(t, h.(degrade.Latched).Latched(latchBegin.Add(17*time.Second)))
}
