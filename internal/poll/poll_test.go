package poll_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/poll"
)

func TestPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := poll.New(time.Minute)
		defer p.Stop()
		seen := map[time.Duration]bool{}
		for range 100 {
			began := time.Now()
			<-p.Due()
			span := time.Since(began)
			require.InDelta(t, time.Minute, span, float64(6*time.Second))
			seen[span] = true
			p.Next()
		}
		require.Greater(t, len(seen), 90, "never in step")
	})
	off := poll.New(-1)
	require.Nil(t, off.Due())
	off.Stop()
}
