package adaptive

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// Target is what a [Controller] limits.
type Target uint8

const (
	// Concurrency bounds the requests in flight in this process, see [Controller.Acquire]. It can drain a backlog, and needs no
	// agreement between processes.
	Concurrency Target = iota
	// Rate scales the limits of policies, see [Controller.Adjust].
	Rate
)

// String returns "in_flight" or "rate".
func (t Target) String() string {
	switch t {
	case Concurrency:
		return "in_flight"
	case Rate:
		return "rate"
	}
	return fmt.Sprintf("Target(%d)", uint8(t))
}

// Config is what [New] takes. Zero is the stated default everywhere; only Max is required, and that for [Concurrency] alone.
type Config struct {
	Name   string // of the policy, in events and logs
	Target Target
	Law    MakeLaw // nil: [Hybrid]

	// Min, Max and Fixed bound the limit. For [Concurrency] they are whole numbers of requests in flight, 1…1,000,000. Max has to
	// be what the memory of the process can hold, detached requests included: ten times the usual number is a start. Min: 5, or
	// Max where that is less; more than clients can be expected to hold for long. Fixed, the limit at the start and in force
	// while the law cannot be trusted: √(Min·Max), rounded down.
	//
	// For [Rate] they are shares of the nominal limit, above 0 and up to 10. Max: 1, so never above nominal. Min: 0.1, or Max where
	// that is less. Fixed: Max.
	Min, Max, Fixed float64

	CPU        float64       // threshold of the processors, above 0 and up to 1; 0.8
	RTT        time.Duration // a time that can certainly not be healthy; 1 s. −1: off
	Errors     float64       // share of failed requests that is too much, above 0 and below 1; 0.05. −1: off
	QueueDelay time.Duration // 90th percentile of the time goroutines wait for a processor that is too much; 0: off
	Runnable   float64       // goroutines waiting for each processor that count like the CPU threshold; 0: off

	Window     time.Duration // what a law sees: 1 s. 10 ms…Interval
	Interval   time.Duration // from one step to the next; Window or 1 s, whichever is more. Up to 1 h
	MinSamples int           // requests that were answered, failed or hang, without which a window says nothing; 10. Up to 1,000,000

	// CPUSource returns the load of what this process may use, 0…1, and whether it is known; nil: a [Sampler]. What is a bit
	// above 1 counts as 1, what is above 2 or below 0 as not known. It is called once an Interval, never twice at once, and must not
	// block. Its panics are contained, and count as not known.
	CPUSource func() (float64, bool)
	// CPUQuota is how many processors this process may use, above 0; 0: as the kernel says. For sandboxes that hide it.
	CPUQuota float64

	// Observer sees an EventAdapt when the limit has moved by a whole unit or its reason has changed, once an interval at
	// most; nil: nobody. It is called with no lock held and may close the controller; its panics are contained.
	Observer limiter.Observer
	// Logger is told when the fixed limit takes over, and when the law does again; nil: [slog.Default].
	Logger *slog.Logger
}

// Ranges of a [Config].
const (
	MaxConcurrency = 1_000_000
	MaxShare       = 10.0
)

const (
	defaultMin      = 5
	defaultShare    = 0.1
	defaultCPU      = 0.8
	defaultRTT      = time.Second
	defaultErrors   = 0.05
	defaultWindow   = time.Second
	defaultSamples  = 10
	shortestWindow  = 10 * time.Millisecond
	longestInterval = time.Hour
)

func or[T comparable](v, byDefault T) T {
	var zero T
	if v == zero {
		return byDefault
	}
	return v
}

// filled puts defaults in the place of zeros.
func (c Config) filled() Config {
	if c.Law == nil {
		c.Law = Hybrid
	}
	if c.Target == Rate {
		c.Max = or(c.Max, 1)
		c.Min = or(c.Min, min(defaultShare, c.Max))
		c.Fixed = or(c.Fixed, c.Max)
	} else {
		c.Min = or(c.Min, min(defaultMin, c.Max))
		if c.Fixed == 0 {
			c.Fixed = math.Max(c.Min, math.Floor(math.Sqrt(c.Min*c.Max)+edge))
		}
	}
	c.CPU = or(c.CPU, defaultCPU)
	c.RTT = or(c.RTT, defaultRTT)
	c.Errors = or(c.Errors, defaultErrors)
	c.Window = or(c.Window, min(or(c.Interval, defaultWindow), defaultWindow))
	c.Interval = or(c.Interval, max(c.Window, time.Second))
	c.MinSamples = or(c.MinSamples, defaultSamples)
	return c
}

// Validate returns nil, or an error wrapping [limiter.ErrInvalid] that names everything wrong with c.
func (c Config) Validate() error {
	hasMax := c.Max != 0
	c = c.filled()
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("adaptive: %w: "+format, append([]any{limiter.ErrInvalid}, args...)...))
	}
	within := func(name string, v, least, most float64) bool {
		switch {
		case !(v >= least && v <= most): // NaN as well
			bad("%s %v is outside %v…%v", name, v, least, most)
		case c.Target == Concurrency && v != math.Trunc(v):
			bad("%s %v is no whole number of requests in flight", name, v)
		default:
			return true
		}
		return false
	}
	var least, most float64
	switch c.Target {
	case Concurrency:
		least, most = 1, MaxConcurrency
	case Rate:
		least, most = math.SmallestNonzeroFloat64, MaxShare
	default:
		bad("%v is none of Concurrency, Rate", c.Target)
	}
	switch {
	case most == 0:
	case c.Target == Concurrency && !hasMax:
		bad("Max is missing: the most requests in flight that the memory of the process can hold")
	default:
		isMost := within("Max", c.Max, least, most)
		isLeast := within("Min", c.Min, least, most)
		switch {
		case isMost && isLeast && c.Min > c.Max:
			bad("Min %v is above Max %v", c.Min, c.Max)
		case isMost && isLeast:
			within("Fixed", c.Fixed, c.Min, c.Max)
		}
	}
	if !(c.CPU > 0 && c.CPU <= 1) {
		bad("CPU %v is outside 0…1", c.CPU)
	}
	if c.RTT < -1 {
		bad("RTT %v is negative; −1 is off", c.RTT)
	}
	if c.Errors != -1 && !(c.Errors > 0 && c.Errors < 1) {
		bad("Errors %v is outside 0…1; −1 is off", c.Errors)
	}
	if c.QueueDelay < 0 {
		bad("QueueDelay %v is negative", c.QueueDelay)
	}
	if !(c.Runnable >= 0) || math.IsInf(c.Runnable, 1) {
		bad("Runnable %v is outside 0…", c.Runnable)
	}
	if c.Window < shortestWindow || c.Window > longestInterval {
		bad("Window %v is outside %v…Interval", c.Window, shortestWindow)
	}
	if c.Interval < c.Window || c.Interval > longestInterval {
		bad("Interval %v is outside Window…%v", c.Interval, longestInterval)
	}
	if c.MinSamples < 1 || c.MinSamples > 1_000_000 {
		bad("MinSamples %d are outside 1…1000000", c.MinSamples)
	}
	if !(c.CPUQuota >= 0) || math.IsInf(c.CPUQuota, 1) {
		bad("CPUQuota %v is no number of processors", c.CPUQuota)
	}
	return errors.Join(errs...)
}

func (c *Config) thresholds() Thresholds {
	return Thresholds{CPU: c.CPU, RTT: c.RTT, Errors: c.Errors, QueueDelay: c.QueueDelay}
}
