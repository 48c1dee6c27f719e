// Package client sends HTTP requests no faster than a partner allows, and obeys what the partner's answers say.
//
//	transport, err := client.New(client.Config{
//		Base:    http.DefaultTransport,
//		Limiter: shared,                     // redislimit: one limit for all processes
//		Limit:   limiter.PerSecond(10),      // the number in the contract
//		Strict:  true,
//	})
//	…
//	partner := &http.Client{Transport: transport}
//
// It is for calls to other people's services whose limits are known, or are told in their answers. It is not for what comes
// in; that is package middleware. It does not balance load, and it keeps no request longer than its process lives.
//
// # The limit
//
// Limit is the partner's number, and [Config].Headroom of it is used. Written without an algorithm and a burst, as above, it
// is kept evenly: requests leave at least Period/(Rate·Headroom) apart, in all processes that share the Limiter together,
// and there is no burst after a pause. A partner that counts in windows, wherever they begin, then sees at most Rate in each,
// unless requests are held up on their way, one behind the other, for longer than the headroom makes up for: of a
// Period-long window the share 1 − Headroom. A limit with a burst (PerSecond(10).WithBurst(5)) or with another algorithm is
// counted as it says, so what it lets pass can come at once. Windows and logs have the headroom in whole requests: none at
// a rate of 1.
//
// The gap is exact at the store. A process learns of its place when the answer is there, and leaves so much later; it uses none that may be
// late by more than the share 1 − Headroom of the Period, and at least a millisecond: such a place is lost, or given back where it can
// be, and another one is booked. So two of different processes may come closer by up to that, and no Period sees more than Rate, however
// late the store answers, where that share is a millisecond or more. Nothing leaves, with Strict, if it always takes
// longer than that: at 100 ms and a Headroom of 0.9 these are 10 ms; a smaller Headroom allows more. A Headroom of 1 keeps nothing back
// for it: places are used up to 50 ms or a tenth of the Period late, and so many more may leave. A burst that is late can meet the next
// one, so a window or a log has no such bound.
//
// What has been counted is counted by key and algorithm: a key whose algorithm changes, by Plan or by its Source (and a burst makes of an
// even limit a bucket), counts apart from then on, and may send both numbers in one Period. Another rate or period goes on.
//
// The bound is on departures. In one process a timer that is late does not bring two requests closer together than
// the partner's own number has them; two processes do not see each other's timers, so there the headroom has to do.
//
// # The line
//
// Requests for one key stand in a line, first come, first served. The first one alone asks the Limiter, so leaving the line
// costs nothing, and what has been booked already is the next one's; only if nobody comes before its instant is it lost. What
// is not kept evenly is offered back by [limiter.Refunder]. Processes take turns; there is no order among them. One
// process decides once at a time for a key: with a store a round trip away it sends at most one request per round trip.
//
// A request whose turn comes after its deadline, or after MaxWait, fails at once with a [*LimitedError]. In a fleet the
// requests of other processes are seen when they have taken their turn: what waits is judged by how long turns have
// lately taken, so that under changing load one may still wait and fail, at its deadline at the latest. None is sent after it.
// The same holds for places in flight, see [Config].InFlight.
//
// # What answers say
//
//   - Retry-After with 429, 503 or 403, in seconds or as a date, which is counted from the answer's own Date: nothing is sent
//     for that key until then. Without it, or with no wait in it, a 429 or 403 waits until the fields below say that something
//     is left, or, for a 429, for half a second to a second, doubled each time up to a minute. Then one request tries, and the
//     others wait for its answer. Requests that had left before a refusal came are refused by the same event, which counts once.
//   - RateLimit and RateLimit-Policy of draft-ietf-httpapi-ratelimit-headers-11, RateLimit of draft -07, RateLimit-Limit,
//     -Remaining and -Reset of draft -06, X-RateLimit-* and X-Rate-Limit-*: no more is sent than they say is left, less what was
//     under way meanwhile and may not have been counted. Below [Config].PaceBelow of the quota the rest is spread evenly.
//     Policies that do not count requests, malformed fields, and those of an answer with an Age are not read. When the time they
//     tell of is over, one request asks, for a second at most, before others follow.
//
// Of each field 8 lines are read, and of more than 8 policies those that leave least are kept. What is left below nothing is
// nothing.
//
// X-RateLimit-Reset is an instant, in seconds or milliseconds, if it is too large to be a wait of 400 days; one that is further
// ahead than that is malformed. It is
// when the window ends or the bucket is full; nobody says which, so a bucket is used more slowly than it could be.
//
// This is shared by all requests of a process. [Config].Pauses shares pauses with other processes; what is left is divided by
// [Config].Replicas. That bounds a fleet only roughly: give it a Limit.
//
// # Retries
//
// See [Retry]. Each retry takes a turn as any request does, also where it makes up for a connection that the destination had just
// closed: net/http, which sends again at once then, is kept from it ([Config].Base). If it could not be in time, if the budget is
// spent or the body cannot be made again, the answer that is there is returned as it is.
// A small body of an answer that is given up is read for 100 ms at most, without a place in flight.
//
// # Failures
//
// Without Strict a store that is away, or has answered too late three times in a row, leaves each process an even share of the limit,
// 1/Replicas. It goes on from the process's last place, or begins anywhere within its gap of Replicas·Period/(Rate·Headroom), so a fleet
// that gets work at one moment does not send at that moment. Nobody puts the shares of processes in order: on average they
// keep the number, in one gap each sends once at most. With Strict nothing is sent
// that the store has not counted. A store that loses what it has counted, as in a fail-over, lets pass what it has forgotten:
// docs/guarantees.md has it by numbers.
//
// A [Breaker] for each key leaves alone what fails all the time. A request that waits costs its own goroutine and nothing else:
// the package starts none.
package client
