package memory_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
)

func TestAnObserverThatPanicsChangesNoDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := 0
		l, err := memory.New(memory.Config{Observer: limiter.ObserverFunc(func(limiter.Event) { seen++; panic("observer") })})
		require.NoError(t, err)
		defer l.Close()
		for range 200 {
			d, err := l.Allow(context.Background(), limiter.Key{Space: "s", ID: "k"}, limiter.PerSecond(100), 1)
			require.NoError(t, err)
			require.True(t, d.Allowed)
			time.Sleep(time.Second)
		}
		require.Positive(t, seen)
	})
}
