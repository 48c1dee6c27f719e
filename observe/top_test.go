package observe_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/middleware"
	"github.com/spillway-go/spillway/observe"
)

// A team looks at who is refused most. The page shows hashes; whoever knows a key finds its line.
func ExampleTop() {
	top, err := observe.NewTop(observe.TopConfig{Secret: []byte("sixteen bytes or more")})
	if err != nil {
		panic(err)
	}
	store, err := memory.New(memory.Config{})
	if err != nil {
		panic(err)
	}
	defer store.Close()
	guard, err := middleware.New(middleware.Config{
		Limiter:  store,
		Observer: top,
		Policies: []middleware.Policy{{Name: "search", Key: keyfunc.IP(), Limit: limiter.PerHour(5)}},
	})
	if err != nil {
		panic(err)
	}
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for range 8 {
		guard.Serve(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil), next)
	}

	for _, k := range top.Refused(10) {
		fmt.Printf("refused %s %s %.0f times: %s\n", k.Policy, k.Key, k.Count, k.Reason)
	}
	for _, k := range top.Near(10) {
		fmt.Printf("near %s %s: %d of %d left\n", k.Policy, k.Key, k.Remaining, k.Quota)
	}
	fmt.Println(top.Hash("ip=192.0.2.1"))
	// Output:
	// refused search $FS3dL7E_Y6ADPN5bTmwKLQ 3 times: quota
	// near search $FS3dL7E_Y6ADPN5bTmwKLQ: 0 of 5 left
	// $FS3dL7E_Y6ADPN5bTmwKLQ
}

var (
	minute = limiter.PerMinute(100)
	start  = time.Now().Add(time.Hour).Round(0) // ahead of the clock, so that readers decay nothing
)

func decided(o limiter.Outcome, l limiter.Limit, remaining int) limiter.Event {
	return limiter.Event{
		Kind: limiter.EventDecision, Outcome: o, Time: start, Policy: "p", Key: limiter.Key{Space: "p", ID: "user=7"}, N: 1,
		Decision: limiter.Decision{Allowed: o == limiter.OutcomeAllowed, Limit: l, Remaining: remaining},
	}
}

func rejected(reason string) limiter.Event {
	e := decided(limiter.OutcomeBlocked, minute, 0)
	e.Kind, e.Reason = limiter.EventRejected, reason
	return e
}

func with(e limiter.Event, f func(*limiter.Event)) limiter.Event { f(&e); return e }

func TestWhatCounts(t *testing.T) {
	const refused, near, neither = "refused", "near", ""
	for name, c := range map[string]struct {
		event limiter.Event
		want  string
	}{
		"quota":       {rejected(limiter.ReasonQuota), refused},
		"never":       {rejected(limiter.ReasonNever), refused},
		"in flight":   {rejected(limiter.ReasonInFlight), refused},
		"adaptive":    {rejected(limiter.ReasonAdaptive), refused},
		"waiting":     {rejected(limiter.ReasonWaiting), refused},
		"no key":      {rejected(limiter.ReasonNoKey), neither},
		"outage":      {rejected(limiter.ReasonUnavailable), neither},
		"invalid":     {rejected(limiter.ReasonInvalid), neither},
		"unsupported": {rejected(limiter.ReasonUnsupported), neither},
		"canceled":    {rejected(limiter.ReasonCanceled), neither},
		"panic":       {rejected(limiter.ReasonPanic), neither},
		"no reason":   {rejected(""), neither},

		"empty key":           {with(rejected(limiter.ReasonQuota), func(e *limiter.Event) { e.Key = limiter.Key{} }), neither},
		"error":               {with(rejected(limiter.ReasonQuota), func(e *limiter.Event) { e.Kind = limiter.EventError }), neither},
		"degraded":            {with(rejected(limiter.ReasonQuota), func(e *limiter.Event) { e.Kind = limiter.EventDegraded }), neither},
		"blocked, told apart": {decided(limiter.OutcomeBlocked, minute, 0), neither},
		"shadow":              {decided(limiter.OutcomeShadowBlocked, minute, 0), refused},
		"shadow of deny all":  {decided(limiter.OutcomeShadowBlocked, limiter.DenyAll, 0), refused},
		"shadow of no limit":  {decided(limiter.OutcomeShadowBlocked, limiter.Unlimited, math.MaxInt), refused},
		"shadow in flight":    {decided(limiter.OutcomeShadowBlocked, limiter.Limit{Burst: 10}, 0), refused},

		"plenty":             {decided(limiter.OutcomeAllowed, minute, 99), neither},
		"just not near":      {decided(limiter.OutcomeAllowed, minute, 11), neither},
		"just near":          {decided(limiter.OutcomeAllowed, minute, 10), near},
		"the last":           {decided(limiter.OutcomeAllowed, minute, 0), near},
		"burst is the quota": {decided(limiter.OutcomeAllowed, minute.WithBurst(1000), 100), near},
		"quota of one":       {decided(limiter.OutcomeAllowed, limiter.PerSecond(1), 0), near},
		"in flight, near":    {decided(limiter.OutcomeAllowed, limiter.Limit{Burst: 20}, 2), near},
		"in flight, free":    {decided(limiter.OutcomeAllowed, limiter.Limit{Burst: 20}, 3), neither},
		"the last in flight": {decided(limiter.OutcomeAllowed, limiter.Limit{Burst: 5}, 0), near},
		"few in flight":      {decided(limiter.OutcomeAllowed, limiter.Limit{Burst: 5}, 1), neither},
		"a look":             {with(decided(limiter.OutcomeAllowed, minute, 0), func(e *limiter.Event) { e.N = 0 }), neither},
		"unlimited":          {decided(limiter.OutcomeAllowed, limiter.Unlimited, 0), neither},
		"deny all":           {decided(limiter.OutcomeAllowed, limiter.DenyAll, 0), neither},
		"no limit":           {decided(limiter.OutcomeAllowed, limiter.Limit{}, 0), neither},
		"no key, near":       {with(decided(limiter.OutcomeAllowed, minute, 0), func(e *limiter.Event) { e.Key.ID = "" }), neither},
	} {
		t.Run(name, func(t *testing.T) {
			top := newTop(t, observe.TopConfig{Clear: true})
			top.Observe(c.event)
			lists := map[string][]observe.TopKey{refused: top.Refused(9), near: top.Near(9)}
			for list, got := range lists {
				if list != c.want {
					require.Empty(t, got, list)
					continue
				}
				require.Len(t, got, 1)
				require.Equal(t, "user=7", got[0].Key)
				require.Equal(t, "p", got[0].Policy)
				require.Equal(t, 1.0, got[0].Count)
				require.Equal(t, c.event.Outcome == limiter.OutcomeShadowBlocked, got[0].Shadow)
				require.Equal(t, c.event.Reason, got[0].Reason)
				require.Equal(t, start, got[0].Last)
				require.NotEqual(t, math.MaxInt, got[0].Quota)
				require.NotEqual(t, math.MaxInt, got[0].Remaining)
			}
		})
	}
}

// What a line says beside its count is the latest of its key.
func TestTheLatest(t *testing.T) {
	top := newTop(t, observe.TopConfig{Clear: true})
	early := with(decided(limiter.OutcomeShadowBlocked, minute, 3), func(e *limiter.Event) { e.Time = start.Add(-time.Second) })
	top.Observe(early)
	require.True(t, top.Refused(1)[0].Shadow)
	top.Observe(rejected(limiter.ReasonNever))
	top.Observe(early)
	require.Equal(t, []observe.TopKey{{
		Policy: "p", Key: "user=7", Count: top.Refused(1)[0].Count, Reason: limiter.ReasonNever, Last: start, Quota: 100,
	}}, top.Refused(9))
	require.InDelta(t, 3, top.Refused(1)[0].Count, 0.01)
}

func TestNearRatio(t *testing.T) {
	off := newTop(t, observe.TopConfig{NearRatio: -1})
	off.Observe(decided(limiter.OutcomeAllowed, minute, 0))
	require.Empty(t, off.Near(9))
	require.NotNil(t, off.Near(9), "a list in JSON is [], not null")

	all := newTop(t, observe.TopConfig{NearRatio: 1})
	all.Observe(decided(limiter.OutcomeAllowed, minute, 100))
	require.Len(t, all.Near(9), 1)
	require.Empty(t, all.Near(0))
	require.Empty(t, all.Near(-1))
	require.Empty(t, all.Refused(9))
}

func TestKeysAreHashed(t *testing.T) {
	secret := []byte("0123456789abcdef")
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("user=7"))
	want := "$" + base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16])
	top := newTop(t, observe.TopConfig{Secret: secret})
	secret[0] = 'x' // a copy is kept
	top.Observe(rejected(limiter.ReasonQuota))
	require.Equal(t, want, top.Refused(1)[0].Key)
	require.Equal(t, want, top.Hash("user=7"))
	require.NotEqual(t, want, top.Hash("user=8"))
	for _, n := range []int{0, 1, 511, 512, 513, 5000} {
		k := strings.Repeat("k", n)
		mac.Reset()
		mac.Write([]byte(k))
		require.Equal(t, "$"+base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16]), top.Hash(k))
	}

	a, b := newTop(t, observe.TopConfig{}), newTop(t, observe.TopConfig{})
	require.NotEqual(t, a.Hash("user=7"), b.Hash("user=7"), "a random secret each")
	again := a.Hash("user=7")
	a.Hash("user=8")
	require.Equal(t, again, a.Hash("user=7"))
}

func TestLongKeys(t *testing.T) {
	long := strings.Repeat("k", 256)
	for _, shown := range []bool{false, true} {
		top := newTop(t, observe.TopConfig{Clear: shown})
		for _, id := range []string{long, long + "a", long + "b", long + "b", strings.Repeat(long, 4000)} {
			top.Observe(with(rejected(limiter.ReasonQuota), func(e *limiter.Event) { e.Key.ID = id }))
		}
		// A key that is called like the hash of another is another.
		top.Observe(with(rejected(limiter.ReasonQuota), func(e *limiter.Event) { e.Key.ID = top.Hash(long + "a") }))

		got := map[string]float64{}
		for _, k := range top.Refused(9) {
			got[k.Policy+" "+k.Key] += k.Count
		}
		short, fake := top.Hash(long), top.Hash(top.Hash(long+"a"))
		if shown {
			short, fake = long, top.Hash(long+"a")
		}
		want := map[string]float64{"p " + short: 1, "p " + top.Hash(long+"b"): 2, "p " + top.Hash(strings.Repeat(long, 4000)): 1}
		want["p "+top.Hash(long+"a")]++
		want["p "+fake]++
		require.Equal(t, want, got)
		require.Len(t, top.Refused(9), 5)
	}
}

// Guards lend the texts of keys to an observer that says it keeps none.
func TestKeepsNoKey(t *testing.T) {
	top := newTop(t, observe.TopConfig{Clear: true})
	var o limiter.Observer = top
	require.Same(t, top, o.(interface{ KeepsNoKey() limiter.Observer }).KeepsNoKey())

	buf := []byte("user=7")
	e := rejected(limiter.ReasonQuota)
	e.Key.ID = unsafe.String(&buf[0], len(buf))
	top.Observe(e)
	list := top.Refused(1)
	copy(buf, "user=8")
	require.Equal(t, "user=7", list[0].Key)
	require.Equal(t, "user=7", top.Refused(1)[0].Key)
	top.Observe(e)
	require.Len(t, top.Refused(9), 2)
}

func TestTopConfig(t *testing.T) {
	for name, c := range map[string]observe.TopConfig{
		"zero":  {},
		"least": {Keys: 16, HalfLife: time.Second, NearRatio: math.SmallestNonzeroFloat64, Secret: make([]byte, 16)},
		"most":  {Keys: 65536, HalfLife: 7 * 24 * time.Hour, NearRatio: 1, Secret: make([]byte, 1000)},
		"off":   {NearRatio: -1},
	} {
		_, err := observe.NewTop(c)
		require.NoError(t, err, name)
	}
	for name, c := range map[string]struct {
		config observe.TopConfig
		says   []string
	}{
		"below": {
			observe.TopConfig{Keys: 15, HalfLife: time.Second - 1, NearRatio: -0.1, Secret: make([]byte, 15)},
			[]string{"Keys 15", "HalfLife 999.999999ms", "NearRatio -0.1", "Secret of 15 bytes"},
		},
		"above": {
			observe.TopConfig{Keys: 65537, HalfLife: 7*24*time.Hour + 1, NearRatio: 1.1},
			[]string{"Keys 65537", "HalfLife 168h0m0.000000001s", "NearRatio 1.1"},
		},
		"negative": {observe.TopConfig{Keys: -1, HalfLife: -1, NearRatio: math.Inf(-1)}, []string{"Keys -1", "HalfLife -1ns", "NearRatio -Inf"}},
		"nan":      {observe.TopConfig{NearRatio: math.NaN()}, []string{"NearRatio NaN"}},
	} {
		top, err := observe.NewTop(c.config)
		require.Nil(t, top, name)
		require.ErrorIs(t, err, limiter.ErrInvalid, name)
		for _, says := range c.says {
			require.ErrorContains(t, err, says, name)
		}
	}
}

func TestTopKeyAsJSON(t *testing.T) {
	b, err := json.Marshal([]observe.TopKey{
		{
			Policy: "p", Key: "k", Count: 1.5, Error: 0.25, Shadow: true, Reason: "quota", Last: time.Unix(0, 0).UTC(),
			Remaining: 2, Quota: 3,
		},
		{},
	})
	require.NoError(t, err)
	require.Equal(t, `[{"policy":"p","key":"k","count":1.5,"error":0.25,"shadow":true,"reason":"quota",`+
		`"last":"1970-01-01T00:00:00Z","remaining":2,"quota":3},`+
		`{"policy":"","key":"","count":0,"error":0,"last":"0001-01-01T00:00:00Z","remaining":0,"quota":0}]`, string(b))
}

// ways are the paths of Observe, each with as many different events as it needs.
func ways() map[string]func(i int) limiter.Event {
	ids := make([]string, 1<<16)
	for i := range ids {
		ids[i] = "user=" + strconv.Itoa(i+1<<20) + strings.Repeat("x", i%40)
	}
	of := func(e limiter.Event, n int) func(int) limiter.Event {
		return func(i int) limiter.Event { e.Key.ID = ids[i%n]; return e }
	}
	long := rejected(limiter.ReasonQuota)
	long.Key.ID = strings.Repeat("k", 1000)
	return map[string]func(int) limiter.Event{
		"far":           of(decided(limiter.OutcomeAllowed, minute, 90), 1),
		"near":          of(decided(limiter.OutcomeAllowed, minute, 9), 1),
		"refused, one":  of(rejected(limiter.ReasonQuota), 1),
		"refused, 100":  of(rejected(limiter.ReasonQuota), 100),
		"refused, new":  of(rejected(limiter.ReasonQuota), len(ids)),
		"refused, long": func(int) limiter.Event { return long },
	}
}

func TestTopAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("pools drop what they are given at random under the race detector")
	}
	for name, event := range ways() {
		var o limiter.Observer = newTop(t, observe.TopConfig{})
		i := 0
		for ; i < 40_000; i++ { // every counter has had a text of every length
			o.Observe(event(i))
		}
		require.Zero(t, testing.AllocsPerRun(1000, func() { o.Observe(event(i)); i++ }), name)
	}
}

func BenchmarkTop(b *testing.B) {
	b.Run("floor", func(b *testing.B) { // what an event costs that nobody looks at
		event := ways()["far"]
		o := limiter.Observer(limiter.ObserverFunc(func(limiter.Event) {}))
		for i := 0; b.Loop(); i++ {
			o.Observe(event(i))
		}
	})
	for name, event := range ways() {
		b.Run(name, func(b *testing.B) {
			var o limiter.Observer = newTop(b, observe.TopConfig{})
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				o.Observe(event(i))
			}
		})
		b.Run(name+", parallel", func(b *testing.B) { parallel(b, 1, event) })
		// What shards would gain, were they not to loosen the bounds.
		b.Run(name+", parallel, 8 shards", func(b *testing.B) { parallel(b, 8, event) })
	}
}

func parallel(b *testing.B, shards int, event func(int) limiter.Event) {
	var os []limiter.Observer
	for range shards {
		os = append(os, newTop(b, observe.TopConfig{Keys: 256 / shards}))
	}
	var worker atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := int(worker.Add(1)) * 7919; pb.Next(); i++ {
			os[i%shards].Observe(event(i))
		}
	})
}

func BenchmarkTopList(b *testing.B) {
	for _, keys := range []int{256, 65536} {
		b.Run(strconv.Itoa(keys), func(b *testing.B) {
			top := newTop(b, observe.TopConfig{Keys: keys, Clear: true})
			for i := range keys {
				top.Observe(refusal(name{"p", strconv.Itoa(i)}, start))
			}
			b.ReportAllocs()
			for b.Loop() {
				top.Refused(20)
			}
		})
	}
}
