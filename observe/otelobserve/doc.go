// Package otelobserve shows what guards and stores do to OpenTelemetry: as metrics, and as events on the spans of requests.
//
//	observer, err := otelobserve.New(otelobserve.Config{})
//	…
//	defer observer.Close()
//	guard, err := spillway.New(spillway.Config{Observer: observer, Policies: policies})
//
// The same observer goes to the stores, in the Observer of their configurations, and to several guards. One for each
// process and MeterProvider is enough: two on one provider would count everything twice.
//
// It is a module of its own, so that only who imports it gets OpenTelemetry. It needs the API of metrics and traces alone;
// which SDK, reader and exporter run behind that is up to the application. Where metrics are scraped by Prometheus and
// traces are not wanted, package prom of this project needs less and shows the same.
//
// # Metrics
//
// In the middle is the name by which the Prometheus exporter of OpenTelemetry shows an instrument in its default translation.
// These are the names of package prom, so that one set of alerts and dashboards serves both.
//
//	instrument                   in Prometheus                      attributes            what
//	rate_limit.requests          rate_limit_requests_total          policy, type, via     decisions, one for each policy that decided about a request
//	rate_limit.rejected          rate_limit_rejected_total          policy, reason        refusals, by the policy they are due to
//	rate_limit.remaining_ratio   rate_limit_remaining_ratio         policy                histogram of remaining/quota over decisions, 0…1; none where the quota is 0
//	rate_limit.quota.used        rate_limit_quota_used              policy                units in use; only where everybody shares one key (keyfunc.Global)
//	rate_limit.store.duration    rate_limit_store_duration_seconds  op                    histogram of calls to stores, failed ones too, in s
//	rate_limit.degraded          rate_limit_degraded_total          policy, mode          refused requests that were served otherwise
//	rate_limit.errors            rate_limit_errors_total            policy, cause         what could not be decided; see below
//	rate_limit.breaker.state     rate_limit_breaker_state           limiter               0 closed, 1 half open, 2 open
//	rate_limit.config.info       rate_limit_config_info             hash                  1 for the document in force, 0 for one that was refused and is still there ("none": nothing is)
//	rate_limit.config.reloads    rate_limit_config_reloads_total    result                ok, or why not
//	rate_limit.memory.keys       rate_limit_memory_keys                                   keys in the tables of all memory stores; those of one name count as one, and one that is closed as none
//	rate_limit.memory.overflow   rate_limit_memory_overflow_total                         takes that shared a cell as the table was full
//	rate_limit.leases.held       rate_limit_leases_held             policy                leases of this process
//	rate_limit.lease.units_held  rate_limit_lease_units_held        policy                units leased and not spent
//	rate_limit.lease.staleness   rate_limit_lease_staleness_seconds policy                how long ago the oldest lease held was told about by the store, in s
//	rate_limit.lease.local       rate_limit_lease_local_total       policy                decisions without a call
//	rate_limit.lease.calls       rate_limit_lease_calls_total       policy                calls for units, and to give some back
//	rate_limit.lease.granted     rate_limit_lease_granted_total     policy                units granted
//	rate_limit.lease.returned    rate_limit_lease_returned_total    policy                units given back
//	rate_limit.lease.stranded    rate_limit_lease_stranded_total    policy                units that were lost with their lease
//	rate_limit.lease.overshoot_units        the same with _         policy                by how much this process may have exceeded a limit, in the last one to two minutes
//	rate_limit.lease.overshoot_bound_units  the same with _         policy                what the rate brings in the slowest call; see limiter.Leases
//	rate_limit.adaptive.limit    rate_limit_adaptive_limit          policy                the limit in force: units a second, or requests in flight
//	rate_limit.adaptive.reason   rate_limit_adaptive_reason         policy, reason        1 for the reason in force, 0 for those that were
//
// The type is allowed, blocked or shadow_blocked; via is memory, store, lease, deny_cache or fallback. In
// rate_limit.errors an empty policy means that a call to a store failed (the cause is timeout, refused, unavailable, …),
// with the cause panic that a callback panicked, and with client_ip that a client could not be told. A policy means that it
// could not decide, and with the cause refund that it could not give units back.
//
// Counters of a policy's usual reasons and causes are there with 0 from the moment a guard has the policy, so that their
// first increase is seen. Gauges of a policy end with it; its counters stay, as those of OpenTelemetry do.
//
// # How many series
//
// No attribute ever holds a key, so their number does not depend on who calls. Policies of guards are as many as the
// configuration has. Of other policies, which stores tell of, 1024 have series of their own; of reasons, causes and modes
// 32 beside the usual ones for each policy and instrument, of operations and results 32. What comes after that is counted as
// "other". Of circuit breakers, sources of configurations and names of memory stores the first 32 are shown.
// Texts are cut at 128 bytes, and made valid UTF-8 as exporters refuse all of a message that is not.
//
// The SDK has a limit too, 2000 attribute sets of an instrument by default, and counts the rest under
// otel.metric.overflow. A policy makes about 13 of rate_limit.rejected from the start: with more than 150 policies, raise
// the limit with the SDK's WithCardinalityLimit.
//
// # Spans
//
// If the context of a request carries a span that is recorded, it gets events named rate_limit. A policy's decision is
// one, with the attributes policy, outcome (allowed, blocked, shadow_blocked), via and remaining (units); refusals have
// retry_after too (seconds, left out where the request can never pass). Outcome rejected says for which reason the
// request was refused on account of the policy, degraded by which mode it was served otherwise, error for which cause the policy
// could not decide. So a request has at most two or three events for each of its policies, and a handler that takes by
// itself one for each take. Config.Spans leaves out what is allowed, or all.
//
// A span is what a backend keeps of one request, but keys may be addresses or names of people: they are not in it either.
//
// # Cost
//
// An attribute set is made when a guard learns of a policy or at the first event that has it, and not for each decision.
// Decisions wait for no lock of this package, nothing is allocated but for spans that are recorded, and no part of an event's
// strings is kept. What the instruments cost is up to the SDK. The context is handed on to them, so exemplars lead
// from a metric to a trace.
package otelobserve
