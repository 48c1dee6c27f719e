// Package limiter holds the words every part of spillway shares: [Limit], [Key], [Take], [Decision], the [Limiter]
// interface with its optional companions, and the rate-limiting algorithms as pure steps over a [State].
//
// A [Limiter] answers one question: may n units of this key's limit be taken now? The answer is a [Decision], with the
// numbers a client needs. An error means that no decision could be made, and nothing else: a refusal is never an error
// and an error is never reported as a refusal.
//
// # Choosing an algorithm
//
//   - [TokenBucket], the default: a burst up front, then a steady rate. Constant state, no edges.
//   - [LeakyBucket]: even spacing; requests wait their turn instead of arriving together.
//   - [FixedWindow]: a quota per clock window or calendar day, week or month. Up to twice the rate around an edge.
//   - [SlidingWindow]: a close estimate of "at most n in any period" with constant state.
//   - [SlidingLog]: "at most n in any period" exactly, at the price of one entry per take.
//
// # Stores
//
// Package memory keeps state in this process, redislimit on Redis, leased on Redis with what each process has leased of it, redisrate in
// the counters of redis_rate; fallback has a second limiter for the time the first is away. [Wait] and [AllowWithin] wait for a unit of
// any of them. The steps in this package ([Rule.Take], [Rule.Peek], [State.Refund]) are
// what it runs; they depend on nothing but their arguments, so they can be tested against explicit instants and mirrored
// elsewhere.
//
// The package imports the standard library alone.
package limiter
