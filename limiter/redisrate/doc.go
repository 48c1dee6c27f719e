// Package redisrate is the limiter that lets redis_rate decide, [github.com/go-redis/redis_rate/v10], for whoever has its
// counters in Redis and wants to keep them. New installations are better off with package redislimit.
//
//	store, err := redisrate.New(redisrate.Config{Client: rdb, Prefix: "shop"})
//
// It serves [limiter.TokenBucket] limits alone. Others are [limiter.ErrInvalid]. [limiter.Unlimited] and
// [limiter.DenyAll] are answered without Redis.
//
// # What differs from redislimit
//
//	                 redisrate                                      redislimit
//	algorithms       TokenBucket                                    all
//	several policies one trip each, each by itself: no              one trip for all, all are charged or none
//	                 limiter.Batcher, so a guard refuses several
//	                 enforced ones in a stage
//	refunds          none: no limiter.Refunder, Mark is 0           exact
//	arithmetic       floating point in whole ticks of 60 ns; the    integers, exact
//	                 interval of a unit is rounded up by two of
//	                 them at most
//	rate             lower than asked by up to 0.12 % at            as asked
//	                 10,000/s, 0.012 % at 1000/s, 0.0002 % at 10/s
//	waits            up to 2 µs longer than that slower bucket's;   rounded up to 1 µs
//	                 above eleven days rounded up to 14 digits
//	range            at most one unit in 100 µs; at most 285 years  all limits
//	                 from empty to full; else limiter.ErrInvalid
//	changed limit    the instant of the full bucket stays: a        the units stay
//	                 raised Burst is there at once, and a new
//	                 Rate waits as long as the old one had to
//	clock            Redis TIME; set back, keys wait until it has   Redis TIME; set back, time goes on from
//	                 caught up                                      where it was
//	keys             rate:prefix:Space:{ID}, a string               prefix:Space:{ID}:tb
//
// Because a changed limit moves what is left, do not use it with limits that move all the time, such as adaptive ones.
//
// # Keeping the keys of a running redis_rate
//
// A [limiter.Key] with an empty Space is its ID and nothing else, so Key{ID: "user:1"} is the counter of redis_rate's
// Allow(ctx, "user:1", …). A policy's StoreKey makes such keys. Old and new processes may count together.
//
// # What it guards against
//
// redis_rate by itself lets more through than asked where intervals are near the 60 ns grid of its numbers: 5 % more at
// 1.6 million per second, everything above 33 million. It answers a finite wait to a cost that can never pass, 0 left to
// every refusal, credits a negative cost, writes when only looking, waits a fraction of a microsecond too short, fails on
// a rate of 0, wraps waits above 292 years, lets everything pass under a key that holds a nan, and panics on a malformed
// reply. Its AllowAtMost charges fractions that it does not report, and is not used here. A call that may have
// run is never repeated, so a lost reply counts once.
package redisrate
