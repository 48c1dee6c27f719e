package adaptive

import (
	"context"
	"log/slog"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// telling is what observers and the log were told last.
type telling struct {
	limit    limiter.Limit
	reason   Reason
	fallback Reason
}

// telling returns what there is to tell, nil if nothing is.
func (c *Controller) telling(now time.Time, s *State) func() {
	was := c.told
	is := telling{reason: s.Reason, fallback: s.Fallback, limit: limiter.Limit{Burst: s.Bound}}
	if c.cfg.Target == Rate {
		if p := c.asked.Swap(nil); p != nil {
			c.nominal = *p
		}
		is.limit = scale(c.nominal, s.Limit)
	}
	c.told = is
	complaint := c.gov.complaint()
	if is == was && complaint == nil {
		return nil
	}
	return func() {
		if is.fallback != was.fallback || complaint != nil {
			c.call(func() { c.log(is, s, complaint) })
		}
		if c.cfg.Observer != nil && is != was && is.limit != (limiter.Limit{}) && !c.closed() {
			c.call(func() {
				c.cfg.Observer.Observe(limiter.Event{
					Kind: limiter.EventAdapt, Time: now, Policy: c.cfg.Name, Decision: limiter.Decision{Limit: is.limit},
					Reason: string(is.reason), Err: complaint,
				})
			})
		}
	}
}

func (c *Controller) log(is telling, s *State, complaint error) {
	attrs := []slog.Attr{slog.String("policy", c.cfg.Name), slog.Float64("limit", s.Limit)}
	if is.fallback == "" {
		c.cfg.Logger.LogAttrs(context.Background(), slog.LevelInfo, "adaptive limit: the law rules again", attrs...)
		return
	}
	attrs = append(attrs, slog.String("reason", string(is.fallback)), slog.Time("until", s.Until))
	if complaint != nil {
		attrs = append(attrs, slog.Any("error", complaint))
	}
	c.cfg.Logger.LogAttrs(context.Background(), slog.LevelWarn, "adaptive limit: the fixed limit is in force", attrs...)
}
