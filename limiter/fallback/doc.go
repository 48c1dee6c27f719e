// Package fallback is a limiter that turns to a second one while the first is failing: a store that all replicas share,
// and for the time it is away, a share of each limit in the memory of each replica.
//
//	shared, err := redislimit.New(redislimit.Config{Client: rdb})
//	…
//	safe, err := fallback.New(fallback.Config{Primary: shared, Replicas: 4})
//
// It is for limits that should go on to limit when the store does not. Where an outage had better let everything pass, or
// nothing, give the policy the primary alone: its OnStoreError says which.
//
// # When it turns
//
// A call that the primary answers with [limiter.ErrUnavailable] is answered by the secondary instead, so callers see that
// error only when both fail. Nothing else leads there: bad input, a closed limiter, a refused password and a caller who has
// left are passed on as they are, for what is wrong with a request or a configuration is no outage.
//
// After Config.Failures such calls in a row a circuit breaker opens. Then the primary is not asked at all, and an outage
// costs nobody time. Calls slower than Config.SlowCall count as failures too, though their decisions stand. Bad input,
// callers who left and denials that the primary remembers without asking its store count as nothing, except a caller who
// left after SlowCall: the primary was slow. After Config.Cooldown and up to half as much again, at random, one call tries
// the primary while all others stay with the secondary. If it succeeds, the breaker closes; if not, that call is answered by
// the secondary and the next cool-down begins. Each change is a [limiter.EventBreaker]. Each replica has its own breaker:
// they do not agree on an outage.
//
// A caller whose own deadline passes while the primary is silent gets his context's error: the time he had is over, so
// nothing is asked for him any more. If that was 20 ms or more, it counts as a failure, as an outage would not be noticed
// where all deadlines are shorter than the primary's time-out. Shorter ones count as nothing: if nobody has a longer
// deadline, the breaker does not open, and in an outage each of those calls ends in its error.
//
// Decisions of the secondary say [limiter.ViaFallback], and their Limit is the share that was applied. Refunds go by that, so
// limiters of this package do not nest: [New] refuses one as Primary or Secondary. It cannot see one inside of a wrapper;
// then refunds of what the inner secondary booked go to the share of the outer one, which errs towards refusal.
//
// # The share
//
// On the secondary every limit is divided by the number N of replicas, which is Config.Replicas, or more if a [Census]
// has counted more. [Share] does it:
//
//	algorithm        limit             share of each replica       all shares together
//	TokenBucket,     Rate              Rate per N·Period, exact    Rate per Period ¹
//	LeakyBucket      Burst ≥ N         ⌊Burst/N⌋                   ≤ Burst, less by under N
//	                 Burst < N         1                           N
//	FixedWindow,     Rate ≥ N          ⌊Rate/N⌋ per Period         ≤ Rate per window, less by under N
//	SlidingWindow,   Rate < N          1 per ⌈N/Rate⌉·Period       ≤ Rate per Period on average;
//	SlidingLog                                                     N in one such longer window ²
//	Unlimited, DenyAll                 the same                    the same
//
// ¹ Where N·Period passes 366 days the rate is rounded down to whole units in as many Periods as fit into that, and 1 is the
// least: N units in about a year may be more than the limit. ² The same where N·Period does; and a calendar window cannot
// be stretched, so there it is 1 per replica and window, N together.
//
// So a limit below the number of replicas holds on average and not for a burst: with 1 per second and 10 replicas, ten may
// pass at once and then one per second. That is what a replica needs that is to admit anything by itself.
//
// A take of more units than the share can hold is refused while the primary is away. Its RetryAfter is when the primary
// is asked again, and [limiter.Never] only where the limit itself could not admit it. Choose Burst ≥ N·cost where costs
// are high.
//
// When the number of replicas changes, shares change at once, as limits that change under a key do: what a key has left
// stays, and is at most the new share.
//
// # What an outage admits
//
// While the primary works, each take that it admits is charged to the share as well, without a say in the decision: or what
// the share has left of it, since a replica may admit more than its part. So a share is never fresher than it should be.
// Let L be what a limit promises for an interval, and S the sum of the shares in the table, S ≤ L for limits that
// divide. Then in every interval, whatever fails and however often:
//
//   - Via the primary at most L is admitted, as that is its promise.
//   - Via all shares at most S, and what the primary admitted is charged to the same S as far as it fits. Takes during an
//     outage thus keep the limit, and a primary that comes and goes wins nobody a second share.
//   - Altogether at most L + S, twice the limit. In an interval in which the primary goes away and does not come back: L and
//     what the shares had left at that moment. That is nothing if every replica had been as busy as its share allows; and
//     if their load was even and within the shares, primary and shares together stay within S.
//
// Coming back adds no burst of the shares: they go on as they were. The primary has had time to refill, like for any client
// that was idle, and decisions of the outage are not replayed to it: a count that is queued through an outage and
// arrives after it blocks clients for what they did long ago. Hence L + S and not L for intervals around a recovery.
//
// These hold if N is right: with k more replicas than N, S grows by k shares. A process that starts has a full share, as
// it cannot know what was admitted before it; one that restarts in an outage has it for a second time. Units given back are
// units not admitted. A refund of what the primary booked goes to the share too, up to its quota, so an outage begins with
// at most a full share also where more was given back than had been charged; during an outage it goes nowhere.
// The share finds it by its instant, which is the primary's. For a TokenBucket that is enough; a window finds it if it is the
// same window, or cell, by both clocks; a SlidingLog only if both have the very same instants, as with one given for the
// call, and never what a store booked by its own clock. What is not found stays charged to the share until its window is
// over: in an outage too much is refused, never admitted.
//
// # Cost
//
// While the primary works, a decision costs the breaker's lock twice and a decision of the secondary more, without an
// allocation. A secondary that has to be asked over a network is asked for every admitted take as well. While the breaker is
// open, a decision costs that of the secondary.
package fallback
