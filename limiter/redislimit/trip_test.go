package redislimit

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
)

func limiterOn(t testing.TB, rdb redis.UniversalClient) *Limiter {
	t.Helper()
	l, err := New(Config{Client: rdb, Prefix: strings.ReplaceAll(redistest.Prefix(t), ":", "."), Timeout: 10 * time.Second, DenyCache: -1})
	require.NoError(t, err)
	return l
}

// trip sends takes as groups of their own, all in one round trip, and decides them.
func (l *Limiter) trip(t require.TestingT, takes [][]limiter.Take) (groups []*group) {
	for _, of := range takes {
		g := new(group)
		require.NoError(t, l.gather(g, of))
		groups = append(groups, g)
	}
	l.send(context.Background(), groups)
	for k, g := range groups {
		if g.err == nil {
			g.err = l.decide(g)
		}
		if g.err == nil {
			g.answer(takes[k])
		}
	}
	return groups
}

// Whatever takes share a trip, each unit is handed out once: what passed of a key and what is left of it are its quota. There
// are takes of one key that are not equal, in and out of runs, groups, looks, and keys seen and not seen.
func TestEveryUnitOfATripIsHandedOutOnce(t *testing.T) {
	l := limiterOn(t, redistest.Shared(t).Client())
	trips := 0
	rapid.Check(t, func(t *rapid.T) {
		trips++
		quota := rapid.IntRange(1, 12).Draw(t, "quota")
		limit := limiter.Per(quota, limiter.MaxPeriod)
		if rapid.IntRange(0, 3).Draw(t, "algorithm") == 0 {
			limit = limit.With(limiter.SlidingWindow)
		}
		key := func(what string) limiter.Key {
			return limiter.Key{Space: "trip", ID: fmt.Sprint(trips, rapid.IntRange(0, 4).Draw(t, what))}
		}
		passed := map[limiter.Key]int{}
		for range rapid.IntRange(1, 3).Draw(t, "trips") {
			var takes [][]limiter.Take
			for range rapid.IntRange(1, 24).Draw(t, "groups") {
				group := []limiter.Take{{Key: key("key"), Limit: limit, N: rapid.IntRange(0, 3).Draw(t, "n")}}
				if rapid.IntRange(0, 5).Draw(t, "several") == 0 {
					group = append(group, limiter.Take{Key: key("other"), Limit: limit, N: rapid.IntRange(0, 3).Draw(t, "m")})
				}
				takes = append(takes, group)
			}
			for k, g := range l.trip(t, takes) {
				require.NoError(t, g.err)
				for _, take := range takes[k] {
					if g.verdict == booked {
						passed[take.Key] += take.N
					}
				}
			}
		}
		for k := range 5 {
			who := limiter.Key{Space: "trip", ID: fmt.Sprint(trips, k)}
			d, err := l.Allow(context.Background(), who, limit, 0)
			require.NoError(t, err)
			require.Equal(t, quota, d.Remaining+passed[who], who.ID)
		}
	})
}

// A key that another program wrote fails nobody else of its run, and stays as it is.
func TestKeyOfAnotherProgramInARun(t *testing.T) {
	rdb, ctx := redistest.Shared(t).Client(), t.Context()
	l := limiterOn(t, rdb)
	limit := limiter.Per(10, limiter.MaxPeriod)
	who := func(id string) limiter.Key { return limiter.Key{Space: "run", ID: id} }
	for kind, put := range map[string]func(key string) error{
		"list":  func(key string) error { return rdb.RPush(ctx, key, "a").Err() },
		"text":  func(key string) error { return rdb.Set(ctx, key, "a", 0).Err() },
		"state": func(key string) error { return rdb.Set(ctx, key, "12345678901234567890123456789012345678901", 0).Err() },
	} {
		key := l.render(who(kind), limiter.TokenBucket)
		require.NoError(t, put(key))
		was := rdb.Dump(ctx, key).Val()
		var takes [][]limiter.Take
		for _, id := range []string{kind + "before", kind, kind + "after"} {
			takes = append(takes, []limiter.Take{{Key: who(id), Limit: limit, N: 1}})
		}
		for round := range 2 { // of keys not seen, then of keys seen
			groups := l.trip(t, takes)
			require.ErrorIs(t, groups[1].err, limiter.ErrInvalid, kind)
			for _, k := range []int{0, 2} {
				require.NoError(t, groups[k].err, kind)
				require.Equal(t, 9-round, takes[k][0].Decision.Remaining, kind)
			}
		}
		require.Equal(t, was, rdb.Dump(ctx, key).Val(), kind)
	}
}

// MGET spares a run time and is not needed: who gave a user the other commands alone gets the same answers.
func TestRunWithoutMGET(t *testing.T) {
	s := redistest.Start(t)
	ctx := t.Context()
	require.NoError(t, s.Client().Do(ctx, "ACL", "SETUSER", "few", "on", ">word", "~*", "-@all",
		"+evalsha", "+eval", "+time", "+get", "+set", "+pttl").Err())
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr(), Username: "few", Password: "word", Protocol: 2, DisableIdentity: true})
	defer func() { _ = rdb.Close() }()
	l := limiterOn(t, rdb)
	for round := range 2 {
		var takes [][]limiter.Take
		for k := range 8 {
			takes = append(takes, []limiter.Take{{Key: limiter.Key{Space: "few", ID: fmt.Sprint(k)}, Limit: limiter.Per(10, limiter.MaxPeriod), N: 1}})
		}
		for k, g := range l.trip(t, takes) {
			require.NoError(t, g.err)
			require.Equal(t, 9-round, takes[k][0].Decision.Remaining)
		}
	}
}
