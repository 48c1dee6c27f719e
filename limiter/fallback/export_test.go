package fallback

import (
	"context"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// CensusOf is a census of reports that a test answers.
func CensusOf(report func(context.Context, bool) (int, error), interval time.Duration, o limiter.Observer) *Census {
	return newCensus(report, func() error { return nil }, interval, o, "main")
}

// Report makes one report.
func (c *Census) Report(ctx context.Context, leave bool) (int, error) { return c.report(ctx, leave) }
