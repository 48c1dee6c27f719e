package limiter_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/limiter"
)

const hours24 = 24 * time.Hour

func TestParseLimit(t *testing.T) {
	tests := []struct {
		text      string
		want      limiter.Limit
		canonical string // empty: the text itself
	}{
		{text: "600/m", want: limiter.PerMinute(600)},
		{text: "1/s", want: limiter.PerSecond(1)},
		{text: "5/s burst 20", want: limiter.PerSecond(5).WithBurst(20)},
		{text: "5/s burst 5", want: limiter.PerSecond(5).WithBurst(5)}, // explicit stays explicit
		{text: "10/500ms sliding_window cells 10", want: limiter.Per(10, 500*time.Millisecond).WithCells(10)},
		{text: "10/s sliding_window", want: limiter.PerSecond(10).With(limiter.SlidingWindow)},
		{text: "10/s sliding_window cells 1", want: limiter.PerSecond(10).WithCells(1)},
		{text: "1000/d fixed_window", want: limiter.PerDay(1000).With(limiter.FixedWindow)},
		{text: "3/h sliding_log", want: limiter.PerHour(3).With(limiter.SlidingLog)},
		{text: "10/s leaky_bucket burst 5", want: limiter.PerSecond(10).With(limiter.LeakyBucket).WithBurst(5)},
		{text: "unlimited", want: limiter.Unlimited},
		{text: "deny_all", want: limiter.DenyAll},
		{text: " DENY_ALL\t", want: limiter.DenyAll, canonical: "deny_all"},
		{text: "25 fixed_window align day", want: limiter.Limit{Rate: 25}.Aligned(limiter.Day, "")},
		{text: "25 fixed_window align day UTC", want: limiter.Limit{Rate: 25}.Aligned(limiter.Day, "UTC")},
		{
			text: "25/day fixed_window align day Asia/Shanghai", want: limiter.Limit{Rate: 25}.Aligned(limiter.Day, "Asia/Shanghai"),
			canonical: "25 fixed_window align day Asia/Shanghai",
		},
		{text: "25/24h fixed_window align day", want: limiter.Limit{Rate: 25}.Aligned(limiter.Day, ""), canonical: "25 fixed_window align day"},
		{text: "25/d fixed_window align DAY", want: limiter.Limit{Rate: 25}.Aligned(limiter.Day, ""), canonical: "25 fixed_window align day"},
		{text: "9/7d fixed_window align week", want: limiter.Limit{Rate: 9}.Aligned(limiter.Week, ""), canonical: "9 fixed_window align week"},
		{text: "9/week fixed_window align week", want: limiter.Limit{Rate: 9}.Aligned(limiter.Week, ""), canonical: "9 fixed_window align week"},
		{text: "9/MONTH align month fixed_window", want: limiter.Limit{Rate: 9}.Aligned(limiter.Month, ""), canonical: "9 fixed_window align month"},
		{text: "9 align month Europe/Berlin fixed_window", want: limiter.Limit{Rate: 9}.Aligned(limiter.Month, "Europe/Berlin"), canonical: "9 fixed_window align month Europe/Berlin"},
		{text: "5/s GCRA Burst 20", want: limiter.PerSecond(5).WithBurst(20), canonical: "5/s burst 20"},
		{text: "  5/SEC \t burst 20 token_bucket ", want: limiter.PerSecond(5).WithBurst(20), canonical: "5/s burst 20"},
		{text: "0600/minute", want: limiter.PerMinute(600), canonical: "600/m"},
		{text: "600/60s", want: limiter.PerMinute(600), canonical: "600/m"},
		{text: "600/M", want: limiter.PerMinute(600), canonical: "600/m"},
		{text: "1/1h30m", want: limiter.Per(1, 90*time.Minute), canonical: "1/90m"},
		{text: "1/1d12h", want: limiter.Per(1, 36*time.Hour), canonical: "1/36h"},
		{text: "1/7d", want: limiter.Per(1, 7*hours24)},
		{text: "1/168h", want: limiter.Per(1, 7*hours24), canonical: "1/7d"},
		{text: "1/1h1ns", want: limiter.Per(1, time.Hour+1)},
		{text: "1/1500ns", want: limiter.Per(1, 1500)},
		{text: "1/us", want: limiter.Per(1, time.Microsecond)},
		{text: "1/366d", want: limiter.Per(1, limiter.MaxPeriod)},
		{text: "1000000000/us burst 1000000000", want: limiter.Per(limiter.MaxRate, time.Microsecond).WithBurst(limiter.MaxRate)},
	}
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			got, err := limiter.ParseLimit(tt.text)
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
			want := tt.canonical
			if want == "" {
				want = tt.text
			}
			require.Equal(t, want, got.String())
		})
	}
}

func TestParseLimitErrors(t *testing.T) {
	tests := []struct{ name, text, says string }{
		{"empty", "", "empty"},
		{"blank", " \t ", "empty"},
		{"no period", "600", "period is missing"},
		{"no period after the slash", "600/", "the period after / is missing"},
		{"no rate", "/m", "the number of rate is missing"},
		{"blanks around the slash", "600 / m", `"/" is none of`},
		{"rate of letters", "ten/s", `rate "ten"`},
		{"negative rate", "-5/s", `rate "-5"`},
		{"signed rate", "+5/s", `rate "+5"`},
		{"float rate", "1.5/s", `rate "1.5"`},
		{"exponent", "1e6/s", `rate "1e6"`},
		{"underscore", "1_000/s", `rate "1_000"`},
		{"hexadecimal", "0x10/s", `rate "0x10"`},
		{"infinity", "inf/s", `rate "inf"`},
		{"rate over the range", "1000000001/s", "outside 1…1000000000"},
		{"rate over 64 bits", "99999999999999999999/s", "outside 1…1000000000"},
		{"rate of a log", "100001/s sliding_log", "rate 100001 is outside 1…100000"},
		{"two slashes", "5/s/s", `period "s/s"`},
		{"unit unknown", "5/fortnight", `period "fortnight"`},
		{"negative period", "5/-1s", `period "-1s"`},
		{"float period", "5/1.5h", `period "1.5h"`},
		{"number without unit", "5/60", `period "60"`},
		{"number without unit after one", "5/1h30", `period "1h30"`},
		{"unit without number", "5/hm", `period "hm"`},
		{"unit without number after one", "5/1h m", `"m" is none of`},
		{"units out of order", "5/30m1h", "longest first"},
		{"unit twice", "5/1s1s", "once each"},
		{"period zero", "5/0s", "outside 1us…366d"},
		{"period too short", "5/999ns", "outside 1us…366d"},
		{"period too long", "5/367d", "outside 1us…366d"},
		{"period too long by a sum", "5/366d1ns", "outside 1us…366d"},
		{"period over 64 bits", "5/99999999999999999999s", "outside 1us…366d"},
		{"period over 64 bits in ns", "5/9223372036854775807d", "outside 1us…366d"},
		{"week without align", "5/week", "needs align week"},
		{"month without align", "5/month fixed_window", "needs align month"},
		{"burst without number", "5/s burst", "the number of burst is missing"},
		{"burst float", "5/s burst 2.0", `burst "2.0"`},
		{"burst negative", "5/s burst -1", `burst "-1"`},
		{"burst over the range", "5/s burst 1000000001", "burst"},
		{"burst twice", "5/s burst 2 burst 2", "burst is given twice"},
		{"burst of a window", "5/s fixed_window burst 5", "burst belongs to"},
		{"burst of a log", "5/s burst 5 sliding_log", "burst belongs to"},
		{"cells zero", "5/s sliding_window cells 0", "cells 0"},
		{"cells over the range", "5/s sliding_window cells 101", "cells"},
		{"cells of a bucket", "5/s cells 10", "cells belong to sliding_window"},
		{"cells twice", "5/s sliding_window cells 10 cells 10", "cells is given twice"},
		{"cells that do not divide", "5/s sliding_window cells 7", "whole microseconds"},
		{"algorithm twice", "5/s gcra token_bucket", "the algorithm is given twice"},
		{"algorithm unknown", "5/s tokens", `"tokens" is none of`},
		{"align of a bucket", "25/day align day", "align belongs to fixed_window"},
		{"align without unit", "25 fixed_window align", `align "" is none of`},
		{"align unit unknown", "25 fixed_window align year", `align "year" is none of`},
		{"align to the epoch", "25 fixed_window align epoch", `align "epoch" is none of`},
		{"align twice", "25 fixed_window align day align day", "align is given twice"},
		{"align and another period", "25/h fixed_window align day", "contradicts align day"},
		{"align and garbage for a period", "25/x fixed_window align day", "contradicts align day"},
		{"align and an empty period", "25/ fixed_window align day", "contradicts align day"},
		{"zone unknown", "25 fixed_window align day Asia/Atlantis", `zone "Asia/Atlantis"`},
		{"zone of the machine", "25 fixed_window align day Local", "differs between machines"},
		{"zone outside of the database", "25 fixed_window align day ../../etc/passwd", "zone"},
		{"two zones", "25 fixed_window align day UTC UTC", `"utc" is none of`},
		{"trailing rubbish", "600/m;", `period "m;"`},
		{"trailing word", "600/m please", `"please" is none of`},
		{"more than unlimited", "unlimited burst 5", "nothing may follow"},
		{"more than deny_all", "deny_all/s", "rate"},
		{"NUL", "600/m\x00", "not printable ASCII"},
		{"line break", "600/m\n", "not printable ASCII"},
		{"other digits", "６００/m", "not printable ASCII"},
		{"other blank", "600/m\u00a0burst 5", "not printable ASCII"},
		{"micro sign", "5/10µs", "not printable ASCII"},
		{"Kelvin sign folds to k", "5/wee\u212A", "not printable ASCII"},
		{"very long", "600/m " + strings.Repeat("x", 100_000), "more than 200"},

		{"ZERO-02 rate 0", "0/s burst 1", "rate 0"},
		{"ZERO-06 rate 0 per minute", "0/m", "rate 0"},
		{"ZERO-07 burst 0 is not the default", "1/s burst 0", "burst 0"},
		{"ZERO-09 zero in both places", "0/60s burst 0", "rate 0"},
		{"ZERO-10 zero is neither absent nor unlimited", "00/s", "say deny_all or unlimited"},
		{"ZERO-11 zero is not one", "0/s", "rate 0"},
		{"ZERO-12 burst 0 computed from a share", "2/s burst 00", "burst 0"},
		{"OVF-11 window as a float", "5/60.0", `period "60.0"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := limiter.ParseLimit(tt.text)
			require.ErrorIs(t, err, limiter.ErrInvalid)
			require.ErrorContains(t, err, tt.says)
			require.Zero(t, got)
			require.Equal(t, 1, strings.Count(err.Error(), limiter.ErrInvalid.Error()), "one prefix: %v", err)
			require.Less(t, len(err.Error()), 400, "the text is shortened")
			require.NotContains(t, err.Error(), "\x00")
			require.NotContains(t, err.Error(), "\n")
		})
	}
}

func TestLimitStringOfInvalid(t *testing.T) {
	tests := []struct {
		limit limiter.Limit
		want  string
	}{
		{limiter.Limit{}, "zero limit"},
		{limiter.PerSecond(-5), "-5/s"},
		{limiter.PerSecond(0), "0/s"},
		{limiter.Limit{Rate: 5}, "5/0s"},
		{limiter.Per(5, -time.Second), "5/-1s"},
		{limiter.Per(5, math.MinInt64), "5/-2562047h47m16.854775808s"},
		{limiter.Per(math.MinInt, math.MaxInt64), "-9223372036854775808/9223372036854775807ns"},
		{limiter.PerSecond(5).WithBurst(-1), "5/s burst -1"},
		{limiter.PerSecond(5).With(limiter.SlidingLog).WithBurst(-1), "5/s sliding_log burst -1"},
		{limiter.PerSecond(5).WithCells(7).With(limiter.FixedWindow), "5/s fixed_window cells 7"},
		{limiter.PerSecond(5).With(77), "5/s Algorithm(77)"},
		{limiter.Unlimited.WithBurst(3), "0/0s unlimited"},
		{limiter.Limit{Rate: 5, Align: limiter.Align{Unit: 9, Zone: "a b\n"}}, `5 align Unit(9) "a b\n"`},
		{limiter.Limit{Rate: 5, Period: hours24, Align: limiter.Align{Zone: "UTC"}}, "5/d align epoch UTC"},
		{limiter.Limit{Rate: 5}.Aligned(limiter.Day, "burst"), "5 fixed_window align day burst"},
		{limiter.Limit{Rate: 5}.Aligned(limiter.Day, "gcra"), "5 fixed_window align day gcra"},
	}
	for _, tt := range tests {
		t.Run(tt.want, func(t *testing.T) {
			require.Equal(t, tt.want, tt.limit.String())
			require.ErrorIs(t, tt.limit.Validate(), limiter.ErrInvalid)
			_, err := limiter.ParseLimit(tt.want)
			require.ErrorIs(t, err, limiter.ErrInvalid, "an invalid limit must not come back as a valid one")
			_, err = tt.limit.MarshalText()
			require.ErrorIs(t, err, limiter.ErrInvalid)
		})
	}
}

func TestLimitStringLeavesOutWhatIsIgnored(t *testing.T) {
	tests := []struct {
		limit limiter.Limit
		want  string
	}{
		{limiter.PerSecond(5).WithBurst(9).With(limiter.FixedWindow), "5/s fixed_window"},
		{limiter.PerSecond(5).WithBurst(9).With(limiter.SlidingLog), "5/s sliding_log"},
		{limiter.PerSecond(5).WithBurst(9).WithCells(5), "5/s sliding_window cells 5"},
		{limiter.PerDay(25).Aligned(limiter.Day, "UTC"), "25 fixed_window align day UTC"},
		{limiter.Per(25, -1).Aligned(limiter.Month, ""), "25 fixed_window align month"},
	}
	for _, tt := range tests {
		t.Run(tt.want, func(t *testing.T) {
			require.NoError(t, tt.limit.Validate())
			require.Equal(t, tt.want, tt.limit.String())
			got, err := limiter.ParseLimit(tt.want)
			require.NoError(t, err)
			require.Equal(t, withoutIgnored(tt.limit), got)
		})
	}
}

// withoutIgnored clears the fields that the algorithm does not read.
func withoutIgnored(l limiter.Limit) limiter.Limit {
	if l.Algorithm != limiter.TokenBucket && l.Algorithm != limiter.LeakyBucket {
		l.Burst = 0
	}
	if l.Align.Unit != limiter.Epoch {
		l.Period = 0
	}
	return l
}

// validLimit draws from all valid limits, ignored fields included.
func validLimit() *rapid.Generator[limiter.Limit] {
	return rapid.Custom(func(t *rapid.T) limiter.Limit {
		if special := rapid.IntRange(0, 20).Draw(t, "special"); special == 0 {
			return rapid.SampledFrom([]limiter.Limit{limiter.Unlimited, limiter.DenyAll}).Draw(t, "whole")
		}
		l := limiter.Limit{Algorithm: rapid.SampledFrom(limiter.Algorithms()).Draw(t, "algorithm")}
		most := limiter.MaxRate
		if l.Algorithm == limiter.SlidingLog {
			most = limiter.MaxLogRate
		}
		l.Rate = rapid.IntRange(1, most).Draw(t, "rate")
		unit := rapid.SampledFrom([]time.Duration{
			1, time.Microsecond, time.Millisecond, time.Second, time.Minute, time.Hour, hours24,
		}).Draw(t, "unit")
		if l.Algorithm == limiter.SlidingWindow && unit == 1 {
			unit = time.Microsecond
		}
		low := max(1, int64(limiter.MinPeriod/unit))
		l.Period = time.Duration(rapid.Int64Range(low, int64(limiter.MaxPeriod/unit)).Draw(t, "period")) * unit
		if rapid.Bool().Draw(t, "has burst") {
			l.Burst = rapid.OneOf(rapid.IntRange(1, limiter.MaxRate), rapid.Just(l.Rate)).Draw(t, "burst")
		}
		if l.Algorithm == limiter.SlidingWindow {
			l.Cells = rapid.IntRange(0, limiter.MaxCells).Draw(t, "cells")
			for l.Cells > 0 && l.Period%(time.Duration(l.Cells)*time.Microsecond) != 0 {
				l.Cells--
			}
		}
		if l.Algorithm == limiter.FixedWindow && rapid.Bool().Draw(t, "aligned") {
			l.Align.Unit = rapid.SampledFrom([]limiter.Unit{limiter.Day, limiter.Week, limiter.Month}).Draw(t, "align")
			l.Align.Zone = rapid.SampledFrom([]string{
				"", "UTC", "Asia/Shanghai", "America/Argentina/Buenos_Aires", "Etc/GMT+5", "EST5EDT",
			}).Draw(t, "zone")
		}
		return l
	})
}

func TestLimitTextRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := validLimit().Draw(t, "limit")
		require.NoError(t, l.Validate())
		text := l.String()
		got, err := limiter.ParseLimit(text)
		require.NoError(t, err)
		require.Equal(t, withoutIgnored(l), got)
		require.Equal(t, text, got.String())
		upper, err := limiter.ParseLimit(strings.ToUpper(text))
		if l.Align.Zone == "" {
			require.NoError(t, err)
			require.Equal(t, got, upper)
		}
	})
}

func FuzzParseLimit(f *testing.F) {
	for _, s := range []string{
		"600/m", "10/500ms sliding_window cells 10", "5/s burst 20", "1000/d fixed_window", "unlimited", "deny_all",
		"25/day fixed_window align day Asia/Shanghai", "9 align month fixed_window", "1/1h30m", "1/366d1ns",
		"5/s leaky_bucket burst 9223372036854775808", "5/s\x00", "５/s", "0/s", "5/s burst 0", "1/1d1h1m1s1ms1us1ns", "zero limit",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		l, err := limiter.ParseLimit(s)
		if err != nil {
			require.ErrorIs(t, err, limiter.ErrInvalid)
			require.Zero(t, l)
			require.Less(t, len(err.Error()), 1000)
			return
		}
		require.NoError(t, l.Validate())
		require.Equal(t, withoutIgnored(l), l, "nothing ignored is set")
		text := l.String()
		require.LessOrEqual(t, len(text), max(len(s), 30), "canonical is short")
		again, err := limiter.ParseLimit(text)
		require.NoError(t, err)
		require.Equal(t, l, again)
		require.Equal(t, text, again.String())
	})
}

func TestLimitMarshal(t *testing.T) {
	t.Run("limit", func(t *testing.T) {
		var doc struct{ Limit limiter.Limit }
		require.NoError(t, json.Unmarshal([]byte(`{"Limit": "600/min burst 100"}`), &doc))
		require.Equal(t, limiter.PerMinute(600).WithBurst(100), doc.Limit)
		out, err := json.Marshal(doc)
		require.NoError(t, err)
		require.JSONEq(t, `{"Limit": "600/m burst 100"}`, string(out))

		require.ErrorIs(t, json.Unmarshal([]byte(`{"Limit": ""}`), &doc), limiter.ErrInvalid)
		require.Equal(t, limiter.PerMinute(600).WithBurst(100), doc.Limit, "a bad text changes nothing")
	})
	t.Run("the zero limit is not written", func(t *testing.T) {
		_, err := json.Marshal(limiter.Limit{})
		require.ErrorIs(t, err, limiter.ErrInvalid)
	})
	t.Run("var", func(t *testing.T) {
		var v limiter.Var
		_, err := v.MarshalText()
		require.ErrorIs(t, err, limiter.ErrInvalid)
		require.NoError(t, v.UnmarshalText([]byte("5/s burst 20")))
		require.Equal(t, limiter.PerSecond(5).WithBurst(20), v.Current())
		out, err := v.MarshalText()
		require.NoError(t, err)
		require.Equal(t, "5/s burst 20", string(out))
		require.ErrorIs(t, v.UnmarshalText([]byte("5/s burst 0")), limiter.ErrInvalid)
		require.Equal(t, limiter.PerSecond(5).WithBurst(20), v.Current(), "a bad text changes nothing")
	})
}

func ExampleParseLimit() {
	for _, text := range []string{
		"600/minute",
		"5/s gcra burst 20",
		"10/0.5s sliding_window",
		"25/day fixed_window align day Asia/Shanghai",
		"0/s",
	} {
		limit, err := limiter.ParseLimit(text)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println(limit)
	}
	// Output:
	// 600/m
	// 5/s burst 20
	// limiter: invalid: limit "10/0.5s sliding_window": period "0.5s" is not whole numbers with units d, h, m, s, ms, us, ns
	// 25 fixed_window align day Asia/Shanghai
	// limiter: invalid: limit "0/s": rate 0 is outside 1…1000000000; say deny_all or unlimited if that is meant
}
