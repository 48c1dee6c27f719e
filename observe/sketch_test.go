package observe_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/observe"
)

// name is what a counter belongs to.
type name struct{ policy, key string }

func refusal(n name, at time.Time) limiter.Event {
	return limiter.Event{
		Kind: limiter.EventRejected, Reason: limiter.ReasonQuota, Time: at, Policy: n.policy, Key: limiter.Key{ID: n.key},
	}
}

func newTop(t testing.TB, c observe.TopConfig) *observe.Top {
	t.Helper()
	top, err := observe.NewTop(c)
	require.NoError(t, err)
	return top
}

// ledger remembers every refusal, and when it was on a line of time that never goes back.
type ledger struct {
	half   time.Duration
	newest time.Time
	age    time.Duration
	at     map[name][]time.Duration
}

// note is for instants far ahead of the clock, where one that is more than a half-life back is a clock that was set back.
func (l *ledger) note(n name, at time.Time) {
	switch d := at.Sub(l.newest); {
	case l.newest.IsZero():
		l.newest = at
	case d > 0:
		l.newest, l.age = at, l.age+d
	case d < -l.half:
		l.newest = at
	}
	l.at[n] = append(l.at[n], l.age)
}

// counts returns the exact decayed counts at the newest instant, and their sum.
func (l *ledger) counts() (map[name]float64, float64) {
	out, total := map[name]float64{}, 0.0
	for n, ages := range l.at {
		for _, age := range ages {
			out[n] += math.Exp2(-float64(l.age-age) / float64(l.half))
		}
		total += out[n]
	}
	return out, total
}

// streams give the i-th name of a stream. keys is the number of counters.
var streams = map[string]func(r *rand.Rand, keys int) func(i int) name{
	"zipf": func(r *rand.Rand, keys int) func(int) name {
		z := rand.NewZipf(r, 1.1, 1, uint64(20*keys))
		return func(int) name { return name{"p" + strconv.Itoa(r.IntN(3)), strconv.FormatUint(z.Uint64(), 10)} }
	},
	// Each key comes again just after its counter was taken over.
	"one too many": func(_ *rand.Rand, keys int) func(int) name {
		return func(i int) name { return name{"p", strconv.Itoa(i % (keys + 1))} }
	},
	// Keys that never come again, around one that does as often as is just enough.
	"new ones": func(_ *rand.Rand, keys int) func(int) name {
		return func(i int) name {
			if i%(keys-1) == 0 {
				return name{"p", "heavy"}
			}
			return name{"p", strconv.Itoa(i)}
		}
	},
	// Counters are filled with what counts more than once, then pushed out from below.
	"waves": func(r *rand.Rand, keys int) func(int) name {
		return func(i int) name {
			wave := i / (4 * keys)
			if wave%2 == 0 {
				return name{"p", fmt.Sprint(wave, " ", i%keys)}
			}
			return name{"p", strconv.Itoa(r.IntN(1 << 40))}
		}
	},
	// The first has the most, and must not be the first to go.
	"heavy first": func(_ *rand.Rand, keys int) func(int) name {
		return func(i int) name { return name{"p", strconv.Itoa(max(0, i-10*keys))} }
	},
	"few": func(r *rand.Rand, keys int) func(int) name {
		return func(int) name { return name{strconv.Itoa(r.IntN(2)), strconv.Itoa(r.IntN(keys / 2))} }
	},
	// Texts of all lengths, so that buffers are used again for longer and shorter ones.
	"lengths": func(r *rand.Rand, keys int) func(int) name {
		return func(int) name {
			n := r.IntN(4 * keys)
			return name{"p", strings.Repeat("x", n*7%240) + strconv.Itoa(n)}
		}
	},
}

func TestSketchBounds(t *testing.T) {
	for stream, of := range streams {
		t.Run(stream, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				keys := rapid.IntRange(16, 40).Draw(t, "keys")
				half := time.Duration(rapid.Int64Range(int64(time.Second), int64(time.Minute)).Draw(t, "half"))
				seed := rapid.Uint64().Draw(t, "seed")
				pace := rapid.SampledFrom([]time.Duration{0, time.Nanosecond, half / 1000, half / 20, 3 * half}).Draw(t, "pace")
				jumps := rapid.Bool().Draw(t, "jumps")
				n := rapid.IntRange(1, 1500).Draw(t, "n")

				top, err := observe.NewTop(observe.TopConfig{Keys: keys, HalfLife: half, Clear: true})
				require.NoError(t, err)
				book := ledger{half: half, at: map[name][]time.Duration{}}
				r := rand.New(rand.NewPCG(seed, 0))
				next := of(r, keys)
				at := time.Now().Add(10_000 * time.Hour).Round(0)
				for i := range n {
					x := next(i)
					book.note(x, at)
					top.Observe(refusal(x, at))
					at = at.Add(time.Duration(r.Int64N(int64(2*pace) + 1)))
					if jumps && r.IntN(100) == 0 {
						at = at.Add([]time.Duration{-half / 2, -2 * half, -300 * half, 9 * half, 300 * half, 2500 * half}[r.IntN(6)])
					}
				}
				checkBounds(t, top.Refused(keys), &book, keys)
			})
		})
	}
}

func checkBounds(t require.TestingT, list []observe.TopKey, book *ledger, keys int) {
	const rounding = 1e-9
	exact, total := book.counts()
	require.LessOrEqual(t, len(list), keys)
	require.True(t, slices.IsSortedFunc(list, func(a, b observe.TopKey) int { return cmp.Compare(b.Count, a.Count) }))
	listed, sum := map[name]bool{}, 0.0
	for _, k := range list {
		n := name{k.Policy, k.Key}
		require.False(t, listed[n], "%v is listed twice", n)
		require.Contains(t, exact, n)
		require.LessOrEqual(t, exact[n], k.Count*(1+rounding), n)
		require.GreaterOrEqual(t, exact[n], k.Count-k.Error-k.Count*rounding, n)
		require.LessOrEqual(t, k.Error, total/float64(keys)*(1+rounding), n)
		if len(exact) <= keys {
			require.Zero(t, k.Error)
		}
		listed[n] = true
		sum += k.Count
	}
	for n, count := range exact {
		if count > total/float64(keys)*(1+rounding) && count > 1.0/128*(1+rounding) {
			require.True(t, listed[n], "%v has %v of %v", n, count, total)
		}
	}
	// All that was counted is in some counter, or in one that is too small to be shown.
	require.LessOrEqual(t, sum, total*(1+rounding))
	require.GreaterOrEqual(t, sum, total*(1-rounding)-float64(keys)/128)
}

// A million keys that come once, and one that is more than one in Keys: memory stays what it was, and it is found.
func TestSketchOfAMillionKeys(t *testing.T) {
	const keys, others, every = 256, 1_000_000, 100
	top := newTop(t, observe.TopConfig{Keys: keys, Clear: true})
	at := time.Now()
	text := []byte("user=00000000")
	observed := func(from, to int) {
		for i := from; i < to; i++ {
			if i%every == 0 {
				top.Observe(refusal(name{"login", "ip=203.0.113.7"}, at))
			}
			for d, v := len(text)-1, i; d >= len("user="); d, v = d-1, v/10 {
				text[d] = byte('0' + v%10)
			}
			top.Observe(refusal(name{"login", string(text)}, at))
			at = at.Add(time.Microsecond)
		}
	}
	var before, after runtime.MemStats
	observed(0, 2*keys) // every counter has had a text
	runtime.GC()
	runtime.ReadMemStats(&before)
	observed(2*keys, others)
	runtime.GC()
	runtime.ReadMemStats(&after)

	// Of the whole process: a little is the runtime's.
	require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(100_000))
	list := top.Refused(keys)
	require.Len(t, list, keys)
	require.Equal(t, "ip=203.0.113.7", list[0].Key)
	require.InEpsilon(t, others/every, list[0].Count, 0.5)
	require.LessOrEqual(t, list[0].Count-list[0].Error, float64(others/every))
	require.LessOrEqual(t, list[0].Error, (others+others/every)/float64(keys))
}

func TestCountsFade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		top := newTop(t, observe.TopConfig{HalfLife: time.Minute, Clear: true})
		require.Empty(t, top.Refused(10))
		for range 8 {
			top.Observe(refusal(name{"p", "early"}, time.Time{})) // now
		}
		require.Equal(t, 8.0, top.Refused(1)[0].Count)
		time.Sleep(time.Minute)
		require.Equal(t, 4.0, top.Refused(1)[0].Count)
		for range 5 {
			top.Observe(refusal(name{"p", "late"}, time.Now()))
		}
		list := top.Refused(2)
		require.Equal(t, []string{"late", "early"}, []string{list[0].Key, list[1].Key})
		require.Equal(t, []float64{5, 4}, []float64{list[0].Count, list[1].Count})

		time.Sleep(9*time.Minute + time.Second) // 4 halved nine times, and 5
		require.Len(t, top.Refused(9), 1)
		time.Sleep(365 * 24 * time.Hour)
		require.Empty(t, top.Refused(9))
		top.Observe(refusal(name{"p", "early"}, time.Now()))
		require.Equal(t, 1.0, top.Refused(9)[0].Count)
	})
}

func TestClocksThatMove(t *testing.T) {
	const half = time.Minute
	type step struct {
		offset time.Duration // of the event's time from now
		sleep  time.Duration // before
	}
	for what, c := range map[string]struct {
		steps []step
		want  float64
	}{
		"a straggler counts as of the newest":                  {[]step{{}, {offset: -time.Hour}}, 2},
		"and changes nothing for those after":                  {[]step{{}, {offset: -time.Hour}, {sleep: half}}, 2},
		"a little late":                                        {[]step{{}, {offset: -time.Second}, {sleep: half, offset: -time.Second}, {}}, 2 + math.Exp2(-1.0/60)},
		"a clock that was ahead and is set back":               {[]step{{offset: time.Hour}, {}}, 2},
		"goes on from there":                                   {[]step{{offset: time.Hour}, {}, {sleep: half}}, 2},
		"a little ahead stands still":                          {[]step{{offset: half}, {}, {sleep: half}}, 3},
		"a clock set forward ages the counts":                  {[]step{{}, {offset: half}}, 1.5},
		"by as much as there is":                               {[]step{{}, {offset: math.MaxInt64}}, 1},
		"some time later":                                      {[]step{{}, {sleep: half}, {offset: math.MaxInt64}}, 1},
		"and back again by as much":                            {[]step{{offset: math.MaxInt64}, {offset: math.MinInt64}, {}}, 1},
		"from one end of time to the other":                    {[]step{{offset: math.MinInt64}, {offset: math.MaxInt64}, {offset: math.MaxInt64}}, 2},
		"many half-lives, one by one, are not too much to add": {slices.Repeat([]step{{sleep: half}}, 5000), 2 - math.Exp2(-4999)},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				top := newTop(t, observe.TopConfig{HalfLife: half})
				for _, s := range c.steps {
					time.Sleep(s.sleep)
					top.Observe(refusal(name{"p", "k"}, time.Now().Add(s.offset)))
				}
				list := top.Refused(9)
				require.Len(t, list, 1)
				require.InDelta(t, c.want, list[0].Count, 1e-9)
			})
		})
	}
}

func TestTogether(t *testing.T) {
	const workers, each, keys = 8, 2000, 100
	top := newTop(t, observe.TopConfig{HalfLife: 7 * 24 * time.Hour, Clear: true})
	at := time.Now().Add(time.Hour) // readers decay nothing
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				x := refusal(name{"p", strconv.Itoa((i + w) % keys)}, at)
				top.Observe(x)
				x.Kind, x.N, x.Decision.Limit, x.Decision.Allowed = limiter.EventDecision, 1, limiter.PerSecond(1), true
				top.Observe(x)
				if i%100 == 0 {
					top.Refused(5)
					top.Near(keys)
				}
			}
		})
	}
	wg.Wait()
	for _, list := range [][]observe.TopKey{top.Refused(2 * keys), top.Near(2 * keys)} {
		require.Len(t, list, keys)
		for _, k := range list {
			require.Equal(t, float64(workers*each/keys), k.Count)
			require.Zero(t, k.Error)
		}
	}
}
