// Package leased is a token bucket for a cluster that decides without a network: each process spends quota it has leased from
// Redis, and asks for more in the background, ahead of demand. A busy key costs each process about one call in Config.Sync
// whatever its traffic; a key that is asked for seldom costs a call for each take, as with package redislimit.
//
// # The promise
//
// In every interval of length t, all processes together admit at most Burst + Rate·t/Period units: for any number of processes,
// for crashes, for messages that are lost, late or sent twice, and for processes that are cut off. Leases are taken from the
// bucket before they are spent, and a token is at any time either in the bucket, or held by one process, or gone. The
// interval counts to the clock of Redis; where it is measured at the processes, units that were waited for may pass later than
// they were counted, by the time of one reply: never more than Config.Timeout, as a reply that is later counts as none. Processes
// need not agree on Config.Sync: each lease lives as long as its own process says.
//
// The exceptions are those of any store. A replica that takes over has not heard of the last grants, and grants as much again:
// what was granted since it last heard, at most one Burst, and that at once, as a grant can be a whole one. A flush gives one
// more Burst. A clock of Redis that jumps ahead mints what it jumped over, at most a Burst, and may forget what is held. A machine
// that is suspended does not notice that its leases ended, and may spend what it held once more when it goes on. A refund is not
// counted as admitted.
//
// # What it costs
//
// What others hold cannot be taken here: all processes together hold about half of Burst at most beyond the demand of the moment, so a
// single take of more than half the Burst may be refused while they do. What a process holds that dies is burnt, as nobody knows
// what of it was spent: when its lease ends, after five times Sync and at least a second, the room for it is free again and
// refills at the limit's rate. That is soon with a rate per second, and not with one per day. A lowered Burst acts at once on
// what is not leased, and on what is when its lease ends.
//
// When Redis is away a process spends what it holds until its lease ends, and then fails with [limiter.ErrUnavailable]; it tries
// again after Sync and then less and less often, up to 16 times that. Put package fallback around it to decide then.
//
// # Decisions
//
// Remaining and the waits follow from what Redis last told and what is held: they never say more than Burst, and what other
// processes hold is not in them. RetryAfter is when this process can serve such a take if no other process takes it first; where
// others hold so much that only the end of a lease can make room, it is when the first of them ends. Via is ViaLease where no
// call was needed, and ViaStore where the take waited for one.
//
// A take that needs a call waits for the one that is under way, if there is one, and for the next, which asks for all who wait
// under the same limit, whatever they cost: two time-outs at most. What Redis grants them is served in order, as far as it fits.
// Takes of one key under two limits are decided each under its own, in turns.
//
// Only [limiter.TokenBucket] limits can be leased; a window or a queue is not a sum of parts. See [Limiter.Serves].
package leased
