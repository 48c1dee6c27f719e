package adaptive

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

var _ limiter.Explainer = (*Controller)(nil)

// Explain returns what [Controller.Adjust] would at an instant, and in a sentence for people what is in force and why: "44 in
// flight: cpu above 80 %", "fixed limit of 50 in flight until 12:03:04: the controller was not run". It counts nothing and starts
// nothing. Times are in the zone of the instant.
func (c *Controller) Explain(at time.Time, nominal limiter.Limit) (limiter.Limit, string) {
	s := c.State()
	isOverdue := c.isStarted.Load() && int64(at.Sub(c.origin)) > c.stale.Load()
	if isOverdue {
		s.Limit = c.cfg.Fixed
		s.Bound = int(c.cfg.Fixed)
	}
	out, what := nominal, strconv.Itoa(s.Bound)+" in flight"
	if c.cfg.Target == Rate {
		out = scale(nominal, s.Limit)
		what = percent(s.Limit) + " of the rate"
		if out != nominal {
			what = fmt.Sprintf("%v × %s = %v", nominal, percent(s.Limit), out)
		}
	}
	switch {
	case s.Fallback == FallbackClosed:
		return out, fmt.Sprintf("fixed limit of %s: %s", what, c.cause(s.Reason))
	case isOverdue:
		return out, fmt.Sprintf("fixed limit of %s: not run since %s", what, clockOf(s.Time, at))
	case s.Fallback != "":
		return out, fmt.Sprintf("fixed limit of %s until %s: %s", what, clockOf(s.Until, at), c.cause(s.Fallback))
	}
	return out, what + ": " + c.cause(s.Reason)
}

// clockOf is an instant as short as is clear to who asks at another one.
func clockOf(t, at time.Time) string {
	if t.IsZero() {
		return "the start"
	}
	t = t.In(at.Location())
	if dateOf(t) != dateOf(at) {
		return t.Format("2006-01-02 15:04:05")
	}
	return t.Format("15:04:05")
}

func percent(share float64) string {
	return strconv.FormatFloat(math.Round(share*1e4)/1e2, 'f', -1, 64) + " %"
}

// cause is a reason in words.
func (c *Controller) cause(r Reason) string {
	switch r {
	case ReasonStart:
		return "nothing has been seen yet"
	case ReasonGrow:
		return "it was used up and nothing hurts"
	case ReasonHold:
		return "nothing hurts and nobody needs more, or a cut is given time"
	case ReasonIdle:
		return "no traffic"
	case ReasonUnready:
		return fmt.Sprintf("too few requests to judge by, of %d", c.cfg.MinSamples)
	case ReasonCPU:
		return "cpu above " + percent(c.cfg.CPU)
	case ReasonRTT:
		return "requests take longer than " + c.cfg.RTT.String() + " or hang"
	case ReasonErrors:
		return "more than " + percent(c.cfg.Errors) + " of the requests fail"
	case ReasonQueue:
		return "goroutines wait for a processor longer than " + c.cfg.QueueDelay.String()
	case ReasonGradient:
		return "requests take longer than they did"
	case ReasonInFlight:
		return "more were in flight than keep the service busy"
	case FallbackCPU:
		return "the load of the processors cannot be read"
	case FallbackValue:
		return "the law returned no limit"
	case FallbackPanic:
		return "the law panicked"
	case FallbackLate:
		return "the controller was not run in time"
	case FallbackPinned:
		return "it was at the least for a minute, in vain"
	case FallbackUnsteady:
		return "it jumped up and down"
	case FallbackClosed:
		return "closed"
	}
	return string(r) // a law's own
}
