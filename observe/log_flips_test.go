package observe_test

import (
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/observe"
)

func state(policy string, s uint8) limiter.Event {
	e := limiter.Event{Kind: limiter.EventStoreState, Time: time.Now(), Policy: policy, State: s}
	if s != 0 {
		e.Reason, e.Err = limiter.ReasonUnavailable, limiter.ErrUnavailable
	}
	return e
}

// A policy that goes to and fro writes a few lines a second, and its last state is known a second later, though nothing
// else happens.
func TestFlipsAreBoundedAndTheLastIsTold(t *testing.T) {
	for _, last := range []uint8{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			l, p := newLog(t, slog.LevelInfo, observe.LogConfig{Decisions: -1})
			const flips = 1001
			for k := range flips {
				l.Observe(state("p", uint8(k+1+int(last))%2))
			}
			l.Observe(state("q", 1)) // which has its own
			lines := p.lines(t)
			require.Len(t, lines, 5)
			require.Equal(t, "q", lines[4]["policy"])
			time.Sleep(time.Second)
			synctest.Wait()
			lines = p.lines(t)
			require.Len(t, lines, 1)
			require.Equal(t, map[uint8]string{0: "ok", 1: "failing"}[(last+1)%2], lines[0]["state"])
			require.Equal(t, flips-4-1, leftOut(lines))
			if last == 0 {
				require.Equal(t, "limiter: store unavailable", lines[0]["error"])
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Empty(t, p.lines(t), "once")
			l.Observe(state("p", 0))
			lines = p.lines(t)
			require.Len(t, lines, 1)
			require.NotContains(t, lines[0], "left_out")
		})
	}
}

// However long it goes on: the lines are in their order, and none is forgotten.
func TestFlipsForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p := newLog(t, slog.LevelInfo, observe.LogConfig{})
		const seconds, each = 10, 100
		var wg sync.WaitGroup
		for range seconds {
			for k := range each {
				wg.Go(func() { l.Observe(state("p", uint8(k%2))) })
				time.Sleep(time.Second / each)
			}
		}
		wg.Wait()
		l.Observe(state("p", 1))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		lines := p.lines(t)
		require.LessOrEqual(t, len(lines), 4*(seconds+2))
		require.Equal(t, seconds*each+1, len(lines)+leftOut(lines))
		require.Equal(t, "failing", lines[len(lines)-1]["state"])
	})
}

// A line that is written late has nobody who contains the panic of a handler.
func TestAHandlerThatPanicsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		l, _ := newLog(t, slog.LevelInfo, observe.LogConfig{})
		own, err := observe.NewLog(observe.LogConfig{Logger: slog.New(slog.NewTextHandler(writer(func([]byte) (int, error) {
			if n++; n > 4 {
				panic(errors.New("no"))
			}
			return 0, nil
		}), nil))})
		require.NoError(t, err)
		for range 10 {
			own.Observe(state("p", 1))
			l.Observe(state("p", 1))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 5, n)
	})
}

type writer func([]byte) (int, error)

func (f writer) Write(b []byte) (int, error) { return f(b) }
