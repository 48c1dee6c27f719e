package leased

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
)

// timed is the script with its clock in two more arguments, and with how long it keeps the key in another key.
func timed(t testing.TB) *redis.Script {
	const clock = "local t = call('TIME')"
	require.Equal(t, 1, strings.Count(source, "'TIME'"))
	require.Equal(t, 1, strings.Count(source, clock))
	const expire = "call('PEXPIRE', key, "
	require.Equal(t, 1, strings.Count(source, expire))
	return redis.NewScript(strings.NewReplacer(clock, "local t = {ARGV[3], ARGV[4]}", expire, "call('SET', KEYS[2], ").Replace(source))
}

// stored reads the state of a key back.
func stored(t testing.TB, c *redis.Client, key string) *bucket {
	fields := c.HGetAll(t.Context(), key).Val()
	if len(fields) == 0 { // nobody but looked
		return &bucket{records: map[string]record{}}
	}
	number := func(s string, i int) float64 {
		return math.Float64frombits(binary.LittleEndian.Uint64([]byte(s[8*i : 8*i+8])))
	}
	h := fields["h"][1:]
	whole := func(i int) int64 { return int64(number(h, i)) }
	b := &bucket{
		terms: terms{rate: whole(0), period: whole(1), burst: whole(2)}, level: level{whole(3), whole(4)},
		seen: true, at: whole(5), out: whole(6), demand: whole(7), nodes: whole(8), next: whole(9), latest: whole(10),
		records: map[string]record{},
	}
	for id, r := range fields {
		if id == "h" {
			continue
		}
		v := func(i int) int64 { return int64(number(r, i)) }
		b.records[id] = record{
			seq: v(0), held: v(1), demand: v(2), leased: v(3), credit: number(r, 4), at: v(5), expiry: v(6),
			last: reply{status: v(7), grant: v(8), level: level{v(9), v(10)}, wait: v(11), nodes: v(12), room: v(13), ends: v(14)},
		}
	}
	return b
}

// The script and the model answer alike and leave alike, to the last bit: for random calls in any order, with any clock, under
// limits from one extreme to the other that change all the time.
func TestScriptIsTheModel(t *testing.T) {
	c, s := redistest.Shared(t).Client(), timed(t)
	limits := []limiter.Limit{
		limiter.PerSecond(100), limiter.PerSecond(2000), limiter.Per(7, 3*time.Second), limiter.Per(700, 333*time.Millisecond).WithBurst(50),
		limiter.Per(1, limiter.MaxPeriod).WithBurst(5), limiter.Per(limiter.MaxRate, limiter.MinPeriod), limiter.Per(limiter.MaxRate, limiter.MaxPeriod),
		limiter.Per(999_999_937, limiter.MaxPeriod-time.Microsecond).WithBurst(limiter.MaxRate), limiter.PerSecond(1), limiter.Per(1, time.Microsecond),
	}
	syncs := []time.Duration{sync100, sync100, shortestSync, time.Second, longestSync}
	runs, steps := 60, 250
	if raceEnabled || testing.Short() {
		runs, steps = 20, 100
	}
	seen := map[int64]int{}
	for run := range runs {
		rng := rand.New(rand.NewPCG(uint64(run), 5))
		key := fmt.Sprintf("differential:%d:{%d}", time.Now().UnixNano(), run)
		b := &bucket{}
		now := int64(1_800_000_000_000_000) + rng.Int64N(1e9)
		l := limits[run%len(limits)]
		seqs, last := map[string]int64{}, map[string]request{}
		for step := range steps {
			switch rng.IntN(20) {
			case 0:
				now += rng.Int64N(5_000_000)
			case 1:
				now -= rng.Int64N(2_500_000)
			case 2:
				now += rng.Int64N(3_600_000_000)
			case 3:
				now -= rng.Int64N(3_600_000_000)
			case 4:
				l = limits[rng.IntN(len(limits))]
			default:
				now += rng.Int64N(60_000)
			}
			id := fmt.Sprintf("n%d", rng.IntN(4))
			q := request{terms: newTerms(l, syncs[rng.IntN(len(syncs))]), id: id, demand: 1 + rng.Int64N(1e12), dither: rng.Int64N(ditherRange), step: 1}
			seqs[id]++
			q.seq, q.ack = seqs[id], seqs[id]-1
			known := b.records[id]
			q.kept = rng.Int64N(known.held + 1)
			q.back = rng.Int64N(known.held - q.kept + 1)
			if rng.IntN(2) == 0 {
				q.step = 1 + rng.Int64N(min(q.burst, 12))
			}
			q.spend = q.step * rng.Int64N(max(1, min(q.burst/q.step, 20)))
			if rng.IntN(3) == 0 { // and they need not want alike
				q.spend = 0
				for range 1 + rng.IntN(6) {
					cost := 1 + rng.Int64N(q.step)
					q.costs, q.spend = append(q.costs, cost), q.spend+cost
				}
			}
			q.due = q.spend
			if rng.IntN(3) == 0 {
				q.due += rng.Int64N(5)
			}
			q.want = min(q.burst, q.due+rng.Int64N(max(2, q.burst/8)))
			switch rng.IntN(12) {
			case 0: // the same again, or one that is late
				if was, ok := last[id]; ok {
					q, seqs[id] = was, seqs[id]-1
				}
			case 1:
				q.seq, seqs[id] = max(1, q.seq-2), seqs[id]-1
			case 2:
				q.ack = max(0, q.ack-1)
			case 3:
				q.ack = 0
			case 4:
				q.kept += 1 + rng.Int64N(10)
			case 5:
				q.seq, seqs[id] = 0, seqs[id]-1
			case 6:
				q.want, q.due, q.spend, q.step, q.kept, q.costs = 0, 0, 0, 1, 0, nil
			}
			last[id] = q
			text, err := s.Run(t.Context(), c, []string{key, key + ":kept"}, id, q.append(nil), now/1_000_000, now%1_000_000).Text()
			require.NoError(t, err)
			any := request{want: never, terms: terms{burst: never, period: never, tick: never / patience}} // a repeated reply is to what was asked first
			got, err := parseReply(text, &any)
			require.NoError(t, err, "run %d step %d: %+v", run, step, q)
			want := b.acquire(now, q)
			require.Equal(t, want, got, "run %d step %d: %+v", run, step, q)
			if b.seen {
				kept, err := c.Get(t.Context(), key+":kept").Int64()
				require.NoError(t, err)
				require.Equal(t, b.kept, kept, "run %d step %d: %+v", run, step, q)
			}
			seen[got.status]++
			if step%5 == 0 {
				model := b.clone()
				model.tick, model.life, model.kept, model.expires = 0, 0, 0, 0 // told with every call, and below
				require.Equal(t, model, stored(t, c, key), "run %d step %d: %+v", run, step, q)
			}
			if b.seen {
				require.LessOrEqual(t, b.whole+min(b.out, b.burst), b.burst)
			}
		}
	}
	require.Positive(t, min(seen[statusOK], seen[statusReset], seen[statusStale]))
}

// A field that is not ours is found before anything is written, and what is out is what its records say: a script that once failed
// half-way costs nothing for good.
func TestForeignFieldsAndHealing(t *testing.T) {
	c, s := redistest.Shared(t).Client(), timed(t)
	key := fmt.Sprintf("heals:%d", time.Now().UnixNano())
	run := func(at int64, q request) reply {
		t.Helper()
		text, err := s.Run(t.Context(), c, []string{key, key + ":kept"}, q.id, q.append(nil), at/1_000_000, at%1_000_000).Text()
		require.NoError(t, err)
		r, err := parseReply(text, &q)
		if err != nil {
			require.ErrorIs(t, err, errForeign)
			return reply{status: statusForeign}
		}
		return r
	}
	require.Equal(t, int64(3), run(begin, asks("dead", 1, 0, 0, 0, 3, 0)).grant)
	require.Equal(t, int64(2), run(begin+seconds(4), asks("b", 1, 0, 0, 0, 2, 0)).grant)
	require.NoError(t, c.HSet(t.Context(), key, "note", "hello").Err())
	was := c.HGetAll(t.Context(), key).Val()
	later := begin + ten.life
	for i := range int64(3) {
		require.Equal(t, statusForeign, run(later+i, asks("a", 1, 0, 0, 0, 1, 1)).status)
		require.Equal(t, was, c.HGetAll(t.Context(), key).Val(), "nothing was written")
	}
	require.NoError(t, c.HDel(t.Context(), key, "note", "dead").Err()) // as if it had been, and the rest not
	run(later+3, asks("a", 1, 0, 0, 0, 1, 1))
	b := stored(t, c, key)
	require.Equal(t, int64(2), b.out, "b's")
	require.Equal(t, int64(1), b.nodes)
	require.Equal(t, begin+seconds(4)+ten.life, b.latest)
}
