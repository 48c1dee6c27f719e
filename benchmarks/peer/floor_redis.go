package peer

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// luaTrivial is what any script costs that does nothing.
const luaTrivial = `return 1`

// luaGCRA is the least script that limits: one read, one write, whole microseconds, and one integer from which a client
// can tell all the rest. It is the time until the bucket is full again or, below zero, until the next unit.
// ARGV: microseconds per unit, microseconds of the burst.
const luaGCRA = `
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local full = math.max(tonumber(redis.call('GET', KEYS[1]) or 0), now) + ARGV[1] - now
if full > tonumber(ARGV[2]) then
  return ARGV[2] - full
end
redis.call('SET', KEYS[1], string.format('%d', now + full), 'PX', math.ceil(full / 1000))
return full`

// evaler sends scripts: a client or its automatic pipeline.
type evaler interface {
	EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd
}

// floorScript decides by a script that has been loaded. The arguments are boxed once.
func floorScript(rdb redis.UniversalClient, by evaler, src string, args ...any) (Decider, error) {
	sha, err := rdb.ScriptLoad(context.Background(), src).Result()
	return DeciderFunc(func(ctx context.Context, key string) (bool, error) {
		n, err := by.EvalSha(ctx, sha, []string{"g:" + key}, args...).Int64()
		return n >= 0, err
	}), err
}

func (p Profile) gcraArgs() []any {
	unit := p.Period.Microseconds() / p.Rate
	return []any{unit, unit * p.Burst}
}

func redisFloors() []Redis {
	return []Redis{
		{
			Name: "floor:ping", Note: "a round trip, no decision", Scenarios: []string{spreadKeys},
			New: overGoRedis(func(rdb redis.UniversalClient, _ Profile, _ int) (Decider, error) {
				return DeciderFunc(func(ctx context.Context, _ string) (bool, error) {
					err := rdb.Ping(ctx).Err()
					return err == nil, err
				}), nil
			}),
		},
		{
			Name: "floor:evalsha", Note: "a script that does nothing", Scenarios: []string{spreadKeys, hotKey, onCluster},
			New: overGoRedis(func(rdb redis.UniversalClient, _ Profile, _ int) (Decider, error) {
				return floorScript(rdb, rdb, luaTrivial)
			}),
		},
		{
			Name: "floor:gcra", Note: "the least script", Scenarios: []string{spreadKeys, hotKey, deniedKeys, onCluster},
			New: overGoRedis(func(rdb redis.UniversalClient, p Profile, _ int) (Decider, error) {
				return floorScript(rdb, rdb, luaGCRA, p.gcraArgs()...)
			}),
		},
		{
			Name: "floor:gcra+autopipeline", Note: "the least script, joined by go-redis", Scenarios: []string{spreadKeys, hotKey, deniedKeys, onCluster},
			New: overGoRedis(func(rdb redis.UniversalClient, p Profile, _ int) (Decider, error) {
				ap, err := autoPipelined(rdb)
				if err != nil {
					return nil, err
				}
				return floorScript(rdb, ap, luaGCRA, p.gcraArgs()...)
			}),
		},
	}
}
