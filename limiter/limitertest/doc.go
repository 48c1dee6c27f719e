// Package limitertest is where the meaning of a [limiter.Limiter] is tested: one suite for every store, for wrappers
// around stores, and for limiters of your own.
//
//	func TestMine(t *testing.T) {
//		limitertest.Run(t, func(t *testing.T) limiter.Limiter { return mine.New() }, limitertest.Exact)
//	}
//
// [Run] has one subtest per rule; a failure says what was seen, and which promise that breaks. A [Profile] says what a
// limiter promises. [Exact] promises everything: each decision and each number to the last unit and nanosecond. Each field
// of a profile takes something away, and its rules are then skipped with that reason: a limiter that only has Allow says
//
//	limitertest.Profile{NoBatch: true, NoRefund: true, NoReset: true}
//
// and one that keeps bounds without promising each decision uses [Bounded].
//
// # Time
//
// Nothing here sleeps in real time. Where the limiter is a [limiter.Batcher] that obeys the instant it is given, the suite
// chooses the instants, all in March 2026 and, for the traces, in January 2026: the limiter must not mix them with its own
// clock. Otherwise, and for the rules about the limiter's own clock, the suite runs in bubbles of testing/synctest, which
// move time.Now; a limiter that asks another clock says ForeignClock, and the rules that need that clock to move are
// skipped. Rules without a need for time use periods of hundreds of days, which no clock refills noticeably.
//
// # Oracles
//
// [Model] is the plainest correct limiter, [Traces] are sequences with right answers, and [Differential] compares two
// limiters over random traces. [Failures] runs the rules without failing, so that a test can show that it would notice a
// fault; this package's own tests do so with a row of broken limiters.
package limitertest
