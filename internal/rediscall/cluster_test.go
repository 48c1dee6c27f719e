package rediscall_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/rediscall"
	"github.com/spillway-go/spillway/internal/redistest"
)

// On a real Cluster every key is counted once, at its node, also by the first call to a node that does not know the script.
func TestCluster(t *testing.T) {
	c := bound(t, redistest.StartCluster(t).Client(), generous)
	ctx := context.Background()
	for round := 1; round <= 2; round++ {
		calls := make([]rediscall.Call, 50)
		for i := range calls {
			calls[i].Keys = []string{fmt.Sprint("key", i)}
		}
		c.RunEach(ctx, count, calls)
		for _, call := range calls {
			require.NoError(t, call.Err)
			require.Equal(t, fmt.Sprint(round), call.Reply)
		}
	}
	for i := range 50 {
		got, err := c.Run(ctx, count, []string{fmt.Sprint("key", i)})
		require.NoError(t, err)
		require.Equal(t, "3", got)
		n, err := c.Do(ctx, "DEL", fmt.Sprint("key", i))
		require.NoError(t, err)
		require.Equal(t, int64(1), n)
	}
}
