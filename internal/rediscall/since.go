package rediscall

import (
	"context"
	"time"
)

// since is a context whose calls began earlier.
type since struct {
	context.Context
	start time.Time
}

// Since returns a context under which the time-out of a call counts from start instead of from the call: for whoever has been
// waiting since then. Of two instants the earlier counts.
func Since(ctx context.Context, start time.Time) context.Context {
	if s, ok := ctx.(since); ok && s.start.Before(start) {
		return ctx
	}
	return since{ctx, start}
}
