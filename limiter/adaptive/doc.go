// Package adaptive moves limits: by what a service can bear at the moment, and by the calendar.
//
//	c, err := adaptive.New(adaptive.Config{Name: "api", Max: 500})
//	…
//	defer c.Close()
//	err = c.Do(0, func() error { … }) // adaptive.ErrLimited: too many in flight
//
// It is for what nobody can put a number on beforehand: how many requests a process bears depends on what they do, on its
// neighbours and on what it calls. It is not for shares of a quota between callers, which are plain limits; and it does not
// make a service faster, it keeps one that is overloaded at work, by refusing what it could not answer in time.
//
// # What moves
//
// A [Controller] bounds the requests in flight in its process (Target [Concurrency], the default), or scales the rates of
// policies ([Rate]). Prefer the first: a bound on what is in flight drains a backlog, a rate cannot, and no process has to
// know of another. A [Schedule] is a [limiter.Adjuster] that scales or replaces a limit by weekday, time, date and
// [Calendar].
//
// # How
//
// Once an interval, a second by default, the controller closes a [Window]: how many requests came, went and failed, and how
// long they took. A [Law] makes the next limit of it and of the load of the processors, as a [Sampler] reads it relative to
// what this process may use. A window of fewer than ten requests is dropped.
//
//	law     cuts on                                   in a slow dependency   choose it
//	hybrid  processors; latency while they are busy   grows                  as a rule
//	aimd    the worst of processors, latency, errors  holds or cuts          where no load can be read
//	bbr     processors, with an estimate of the need  grows                  for the most throughput
//
// hybrid and aimd keep the processors near their threshold; bbr lets them be full, so that requests queue.
// [HybridDownstream] spares what the service calls as well. The RTT threshold has to mean "certainly unhealthy", not "a bit
// slow": with one that is close to the usual time, aimd refuses most of what a slow dependency could still serve.
//
// Everything is kept within Min and Max and within half and double a step. Nothing grows without a demand, without
// measurements, or while requests hang: what hangs is seen by the age of the requests in flight.
//
// # When the law cannot be trusted
//
// The fixed limit takes over, and never an open gate, if the law panics or returns no limit ([FallbackPanic],
// [FallbackValue]); if it needs the load of the processors and there has been none for three intervals ([FallbackCPU]); if
// the controller has not been run for three intervals ([FallbackLate]); if the limit has been at Min for a minute, refusing
// requests, while the processors are below half of their threshold and no more than usual fails ([FallbackPinned]); and if
// it turns by more than a quarter more than six times in ten windows ([FallbackUnsteady]). After 30 s the law begins anew
// from the fixed limit; each fallback soon after another holds twice as long, up to 10 minutes. [State] says which, and so
// do a [limiter.EventAdapt] and the log.
//
// # What to know
//
//   - Who can make requests fail can make the limit fall, to Min at most. Failed means the service's fault: a client that
//     sends what is refused, or leaves, is none.
//   - A handler that writes to a slow client takes long. Give servers a WriteTimeout, or Detach what is long by its
//     nature.
//   - A limit that was cut and then sees requests that are all [Unmeasured] does not grow again: growth needs
//     measurements.
//   - A quota of processors that is used up by others in the same control group counts as load, as it should. Time that a
//     hypervisor gives to somebody else does not show; QueueDelay does.
//   - bbr takes a queue that was there from the start for service. Fixed should be too low rather than too high.
//
// # Cost
//
// Acquire and Release together take 40 to 70 ns, a refusal 8 ns, Adjust of a rate 50 to 80 ns and of a schedule 20 to 40 ns;
// none allocates (AMD EPYC, two processors, Go 1.26, go test -bench .). A step takes some microseconds, a measurement of
// the processors tens to hundreds, by how fast the files of the control group are read.
package adaptive
