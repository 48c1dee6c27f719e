// Package redislimit is the limiter for a fleet: the state of every key is on Redis, and every process decides as if there
// were one.
//
//	store, err := redislimit.New(redislimit.Config{Client: rdb, Prefix: "shop"})
//
// One script decides any number of takes, of all algorithms, all or none of a call, in one round trip. It does so exactly,
// in integers of a microsecond, with the steps that package limiter takes in memory: the same calls at the same instants
// get the same answers.
//
// # Time
//
// The server's clock decides (TIME, read once for a call), so the clocks of the processes do not matter. Where it is set back
// by up to a second, keys wait until it has caught up; by more, each goes on from its last take: what it has earned since then
// is lost, and nothing is won. After a fail-over the replica's clock counts: what it is behind by up to a second
// costs nobody anything but that wait; what it is ahead by is time that passed. With Config.CallerClock the callers' clocks
// decide: stored instants never go back, a process that is behind earns nothing, and the bound is that of the fastest clock.
//
// # Keys
//
// A key is prefix:space:{identity}:tag, at most some hundred bytes. The space is the policy's name in the stage edge, and
// stage.policy in any other: shop:client:{ip=192.0.2.1}:tb, shop:identity.user:{user=7}:tb. So a policy that moves to
// another stage begins with new counters. While an adjuster holds a limit down, a second key, with /nominal behind its
// space, counts under the nominal one. The tag is the algorithm's, see [limiter.Algorithm.Tag], so another algorithm is another
// counter as well. With an empty Space the key is the identity as it is, for whoever chooses keys himself.
//
// It holds one string: 41 bytes for the buckets, 47 for a fixed window, 36 for a sliding window of one cell and 4 for each
// more, and 35 and 12 for each instant for a log. Numbers are little-endian and of so many bytes; instants are doubles in
// microseconds, periods are microseconds. The shift is what the key is ahead of a server's clock that was set back. The limit
// comes first, then what has become of it:
//
//	key     first byte, limit                                  state
//	tb, lb  A1, A2: rate (4), period (6), burst (4)            instant, shift, units (4), fraction of one (6)
//	fw      A3: rate (4), period (6; 0: a calendar window)     instant, shift, units (4), start, end; the calendar
//	sw      A4: rate (4), period (6), cells (1)                instant, shift; units of each cell (4), newest first
//	sl      A5: rate (4), period (6)                           instant, shift, two sums (4, 4); instant, sum (4) of each take
//
// A key that another program wrote is refused with [limiter.ErrInvalid] and left alone.
//
// Every key expires when its full quota is back, so an idle service has none. Watch them with redis-cli monitor.
//
// # Failure
//
// Every call is bounded by Config.Timeout, whatever the options of the client: a wait for a connection, dialing, sending and
// receiving together. What Redis could not decide is [limiter.ErrUnavailable] and never a denial; see package fallback, and
// a policy's OnStoreError. A script is sent again only where it certainly did not run, so a lost reply never counts twice:
// it may have counted once. A refused password, a missing permission and the like are [limiter.ErrInvalid], for a mistake
// in a configuration must not open a gate.
//
// A server that is failed over loses the writes that its replica had not received. A key then has at most what it had
// before them: each fail-over can admit once more what was admitted in that moment, and never more than a full quota for a
// key. Redis bounds the moment with min-replicas-to-write and min-replicas-max-lag.
//
// # The client
//
// The hooks of a plain client, such as OpenTelemetry's, see the calls only if it was built with ContextTimeoutEnabled, and
// with a ReadTimeout and a WriteTimeout of at least Config.Timeout, as the defaults are. Of any other plain client the
// connections are shared, but go-redis drops the hooks where it changes a time-out; one for a Cluster or a Ring gets
// connections of its own, which its hooks do not see either. With DialerRetries: 1 a plain client tells a refused connection
// at once, and not at the end of the time-out.
//
// Its user needs the commands EVALSHA, EVAL, TIME, GET, SET, DEL and PTTL, for logs also GETRANGE, SETRANGE, STRLEN and
// PEXPIRE. MGET is used where it is allowed.
//
// # Cluster
//
// The braces in a key make all policies and windows of one identity share a slot, so they are one round trip on a Cluster
// too. Takes of different identities in one call (a limit for an IP and one for everybody) are decided by one script for
// each, all at once; where one refuses, the others get their units back in a second trip, and until then others may see
// those units missing. A LeakyBucket is asked last, as its places cannot be given back; a place that a shadow policy took at
// another node stays taken. A refund that is lost in a failure leaves the units charged, and so does one of a log with more
// than 4096 later entries, for Redis would be busy with it for too long.
//
// # Sharing round trips
//
// Decisions that are waiting at the same moment share a trip: who finds the line free sends at once, who comes meanwhile
// queues, and the first of them leads the next trip for all. There is no timer and no worker, so alone a decision costs what
// it costs without. Equal takes are asked for once. A decision may wait for the trip under way, so Timeout should be at
// least twice what a round trip takes at its slowest. Config.NoSharing turns it off.
//
// # Denials
//
// A denial is remembered in the process for at most a second, and answers equal and larger takes for as long as the pure
// steps, run on what was seen, refuse them: a flood on a spent quota hardly reaches Redis. Within the process no decision
// differs from Redis' own. A refund, a reset or a raised limit in another process is seen when the time is over. Takes
// marked NoCache or Shadow are always asked for; a guard marks those of policies with Refund.
package redislimit
