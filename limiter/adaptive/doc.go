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
// what this process may use.
//
//	law     lowers the limit when                         while something that is called is slow   choose it
//	hybrid  processors are busy, or too many fail         raises it: waiting is no load            as a rule
//	aimd    processors, latency or errors, any, are bad   leaves it, or lowers it                  where no load can be read
//	bbr     processors are busy: to what is needed        raises it: waiting is no load            for the most throughput
//
// hybrid and aimd keep the processors near their threshold; bbr lets them be full, so that requests queue.
// [HybridDownstream] spares what the service calls as well. The RTT threshold has to mean "certainly unhealthy", not "a bit
// slow": with one that is close to the usual time, aimd refuses most of what a slow dependency could still serve.
//
// Everything is kept within Min and Max and within half and double a step.
//
// # What counts
//
// A limit is judged by requests of which it is known how they did: those that succeeded, those that failed, and those that hang
// by the service's fault. A window says something if they are MinSamples together. What is [Unmeasured] never counts among
// them, however much of it there is: one failure amid a flood of clients that leave is one failure. What is [Withdrawn] is in no
// count at all.
//
//   - Too few: nothing moves, and the window is dropped. But where the limit is used up at times, as by slow requests or by
//     bunches, too few will be done in each one for as long as the limit is low: from such a window on, at most 60 are put
//     together until they have MinSamples. So a slow service is judged more rarely, by as many requests.
//   - Too few, and the processors above their threshold in three steps one after the other, a second at least, with requests in
//     flight: the law sees that and no failures and no times, and can lower the limit, not raise it.
//   - Too few, though MinSamples or more came and went unmeasured: likewise. Where all clients leave before they are answered, the
//     load of the processors is what is known.
//   - A request is late when it becomes older than the RTT threshold, and counts as that once, in the window in which it becomes
//     it; whether it is answered later, or its client leaves, does not matter. The service hangs if the limit is used up, 80 % of
//     it at least (of a rate nobody knows what is used), and more requests became late than were answered well, or none was
//     and most of those in flight are late. Otherwise what hangs is its clients': some uploads that never end hold places,
//     and say nothing of the others, who are served well.
//   - Nothing grows unless the limit is used up, half of MinSamples succeeded and as many as failed at least, and at most one in
//     ten of the measured and the late is late. Only failures are never a reason to grow, nor with Errors −1.
//
// # When the law cannot be trusted
//
// The fixed limit takes over, and never an open gate, if the law panics, in whichever of its methods, or exits its goroutine
// ([FallbackPanic]), or returns no limit ([FallbackValue]); if it needs the load of the processors and there has been none for
// three intervals ([FallbackCPU]); if the controller has not been run for three intervals ([FallbackLate]); if the limit has been
// at Min for a minute, refusing requests in each quarter of it, while the processors are below half of their threshold, and no
// more of all that was done in it failed than Errors ([FallbackPinned]); and if it turns by more than a quarter more than six
// times in ten windows ([FallbackUnsteady]). After 30 s the law begins anew from the fixed limit; each fallback soon after another
// holds twice as long, up to 10 minutes. [State] and [Controller.Explain] say which, and so do a [limiter.EventAdapt] and the log.
//
// # What to know
//
//   - Who can make requests fail can make the limit fall, to Min at most; and so can, with aimd, who makes a tenth of the
//     answers slow. Failed means the service's fault: a client that sends what is refused, or leaves, is none.
//   - A handler that reads from or writes to a slow client takes long, and holds a place. Give servers a ReadTimeout and a
//     WriteTimeout, Detach what is long by its nature, and choose a Min above the number of clients that may hang: where those
//     hold all places, nobody is served until they leave.
//   - The bound that moves holds for what is not detached. All together, the detached included, never are more than Max: streams
//     that hold that much stop the service, so bound those of one client by a policy of their own.
//   - A queue in a stage further in is service time for a controller further out, which with aimd closes the service for one
//     client's queue: mount the queue at the same stage or before.
//   - Where half of the routes stall, aimd lowers the limit for all of them, as it cannot tell whose latency it is: give those
//     that depend on something else a policy and a controller of their own, or choose hybrid.
//   - A limit that was cut and then sees requests that are all [Unmeasured] does not grow again: growth needs
//     measurements.
//   - A quota of processors that is used up by others in the same control group counts as load, as it should. Time that a
//     hypervisor gives to somebody else does not show; QueueDelay does.
//   - bbr takes a queue that was there from the start for service, for a minute. Fixed should be too low rather than too high.
//   - What is called, a Law, an Observer, a CPUSource, a handler of the Logger, may close the controller. What panics there ends
//     nothing. One that blocks stops the steps: after three intervals the fixed limit is in force.
//
// # Cost
//
// Acquire and Release together take 40 to 70 ns, a refusal 9 ns, Adjust of a rate 50 to 80 ns and of a schedule 20 to 40 ns;
// none allocates (AMD EPYC, two processors, Go 1.26, go test -bench .). A schedule is looked up at the minutes that its rules
// name, once for all requests: at most a quarter of a millisecond. A step takes some microseconds, a measurement of
// the processors tens to hundreds, by how fast the files of the control group are read.
package adaptive
