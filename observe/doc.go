// Package observe shows what guards and limiters do: to people in a log, to a second observer, and to whoever asks which
// clients are asking most. Metrics and traces have packages of their own beneath it, so nobody gets a dependency he has no
// use for.
//
//	metrics, err := prom.New(prometheus.DefaultRegisterer)
//	…
//	lines, err := observe.NewLog(observe.LogConfig{Logger: logger})
//	…
//	watch := observe.Tee(metrics, lines)
//
//	shared, err := redislimit.New(redislimit.Config{Client: rdb, Name: "redis", Observer: watch})
//	…
//	safe, err := fallback.New(fallback.Config{Primary: shared, Replicas: 4, Name: "redis", Observer: watch})
//	…
//	guard, err := middleware.New(middleware.Config{Observer: watch, …})
//
// Each of the three reports what only it knows: the guard decisions, refusals and policies that cannot decide; the limiter
// on Redis its calls; the fallback its circuit breaker and the table of its memory. So all are given the same observer, and
// none sees an event twice. Limiters that are given a Name can be told from each other. Guards and fallbacks log outages
// themselves, and leave that to a [Log] where they have one.
//
// # Which observer
//
//	question                                        observer
//	How many, how fast, how close to the limit?     observe/prom: metrics for Prometheus, with alerts and a dashboard in observe/files
//	What happened in this request?                  observe/otelobserve: spans and metrics of OpenTelemetry
//	What happened last night, and to whom?          [Log]: lines for log/slog, bounded, keys hashed
//	Who runs into limits, right now?                [Top]: the keys refused most and near their limit
//	What does this process do, right now?           observe/live: a page for a browser
//	Something else                                  your own: one method, [limiter.Observer]
//	Several of these                                [Tee]
//
// # What it is not for
//
// It is no record for billing or audit: lines are sampled, counts of keys are estimates, and an event is lost with its
// process. It decides nothing; an observer that should act belongs into a limiter or a policy. And no key leaves it as a
// metric label or in a log in clear: labels would grow with the number of clients, and keys are often personal data.
//
// # Cost
//
// Observers are called on the path of requests and one after the other. Those here do not block, start no goroutine (but
// for a timer of a second at most, where a [Log] has a line to write later) and allocate nothing for an allowed request. A guard without an observer makes no events; [Tee] of nothing is no observer.
package observe
