package adaptive_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/adaptive"
)

// What is looked up in the compiled rules, and remembered, is what the rules say one by one, at any instant in any order.
func TestLookupsAgreeWithRules(t *testing.T) {
	day := rapid.SampledFrom([]string{
		"", "Mon-Fri", "Sat,Sun", "Fri-Mon", "holiday", "holiday,Wed", "2026-03-29", "2011-12-29..2011-12-31", "1960-02-29", "2026-12-31..2027-01-02,Tue", "2026-10-24,2026-10-26",
	})
	minute := rapid.IntRange(0, 24*60-1)
	zone := rapid.SampledFrom([]string{
		"", "Europe/Berlin", "America/New_York", "America/St_Johns", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Monrovia", "America/Sao_Paulo", "Asia/Kathmandu", "Antarctica/Troll",
	})
	clock := func(m int) string { return fmt.Sprintf("%02d:%02d", m/60, m%60) }
	rapid.Check(t, func(t *rapid.T) {
		var rules []adaptive.Rule
		for k := range rapid.IntRange(1, 6).Draw(t, "rules") {
			var times []string
			for range rapid.IntRange(0, 4).Draw(t, "times") {
				from, to := minute.Draw(t, "from"), minute.Draw(t, "to")+1
				if from != to {
					times = append(times, clock(from)+"-"+clock(to))
				}
			}
			when := strings.TrimSpace(day.Draw(t, "day") + " " + strings.Join(times, ","))
			if when == "" {
				when = "00:00-24:00"
			}
			rules = append(rules, adaptive.Rule{When: when, Zone: zone.Draw(t, "zone"), Scale: float64(k + 2)})
		}
		if len(rules) > 2 {
			rules = append(rules, rules[0], rules[1]) // which never decide
		}
		s, err := adaptive.NewSchedule(rules, adaptive.Calendar{
			Holidays: []string{"2026-10-24..2026-10-25", "2026-03-28", "1960-02-28..1960-03-01", "2026-10-25", "2011-12-29"},
			Workdays: []string{"2026-03-28", "2026-10-31", "1960-02-27"},
		})
		require.NoError(t, err)
		// Clocks that change, a day that was left out, the turn of years, eras before 1970 and far ones.
		base := rapid.SampledFrom([]int64{
			1_774_746_000, 1_792_890_000, 1_325_239_200, 1_798_761_600, 63_590_400, 1_541_300_400, 0, -310_500_000, -62_135_596_800, 4_102_444_800, 253_402_300_000,
		}).Draw(t, "base")
		for range 40 {
			at := time.Unix(base+rapid.Int64Range(-90_000, 90_000).Draw(t, "second"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns"))
			for range 2 {
				got := s.Adjust(at, limiter.PerSecond(1000))
				want, why := s.Explain(at, limiter.PerSecond(1000))
				require.Equal(t, want, got, "%v: %s", at, why)
			}
		}
	})
}

// An answer is remembered until something changes, in any era: looking up allocates, remembering does not.
func TestAnswersAreRemembered(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s, err := adaptive.NewSchedule([]adaptive.Rule{
		{When: "Mon-Fri 09:00-18:00", Zone: "Africa/Monrovia", Scale: 2}, {When: "holiday", Zone: "Europe/Berlin", Scale: 3},
	}, october)
	require.NoError(t, err)
	for _, year := range []int{1955, 1971, 2026, 2400} {
		at, n := time.Date(year, 5, 5, 10, 0, 0, 0, time.UTC), 0
		s.Adjust(at, limiter.PerSecond(10))
		require.Zero(t, testing.AllocsPerRun(400, func() {
			s.Adjust(at.Add(time.Duration(n)*time.Minute), limiter.PerSecond(10))
			n++
		}), year)
		// Around a change, what comes too late is remembered as well.
		noon := time.Date(year, 5, 5, 22, 0, 0, 0, time.UTC)
		s.Adjust(noon, limiter.PerSecond(10))
		require.Zero(t, testing.AllocsPerRun(100, func() {
			s.Adjust(at, limiter.PerSecond(10))
			s.Adjust(noon, limiter.PerSecond(10))
		}), year)
	}
}

// Everybody asks at once, at times around a change.
func TestLookupsAtOnce(t *testing.T) {
	s, err := adaptive.NewSchedule([]adaptive.Rule{{When: "12:00-13:00", Scale: 2}}, adaptive.Calendar{})
	require.NoError(t, err)
	var all sync.WaitGroup
	wrong := make(chan time.Time, 1000)
	for k := range 8 {
		all.Go(func() {
			for i := range 500 {
				at := epoch.Truncate(24 * time.Hour).Add(12*time.Hour + time.Duration((i*7+k*13)%11-5)*time.Minute)
				want := 10
				if at.Hour() == 12 {
					want = 20
				}
				if s.Adjust(at, limiter.PerSecond(10)).Rate != want {
					wrong <- at
				}
			}
		})
	}
	all.Wait()
	require.Empty(t, wrong)
}

// worst is a schedule of as many different rules as there may be, none of which is on, each with as many times as it can name.
func worst(b testing.TB, n int) *adaptive.Schedule {
	var c adaptive.Calendar
	for k := range 1000 {
		c.Holidays = append(c.Holidays, time.Date(2200, 1, 1+2*k, 0, 0, 0, 0, time.UTC).Format(time.DateOnly))
		c.Workdays = append(c.Workdays, time.Date(2300, 1, 1+2*k, 0, 0, 0, 0, time.UTC).Format(time.DateOnly))
	}
	var rules []adaptive.Rule
	zones := []string{"Europe/Berlin", "Asia/Shanghai", "America/New_York", "UTC"}
	for k := range n {
		var times []string
		for m := range 40 {
			from := 36*m + k%30
			times = append(times, fmt.Sprintf("%02d:%02d-%02d:%02d", from/60, from%60, (from+33)/60%24, (from+33)%60))
		}
		times = append(times, fmt.Sprintf("23:59-23:%02d", k%59)) // most minutes are in a stretch of the day, and of the day before
		dates := ""
		for m := range 40 {
			dates += fmt.Sprintf("2%03d-01-%02d,", 100+k%800, 1+m%28)
		}
		rules = append(rules, adaptive.Rule{When: strings.TrimSuffix(dates, ",") + " " + strings.Join(times, ","), Zone: zones[k%4], Scale: 2})
	}
	s, err := adaptive.NewSchedule(rules, c)
	require.NoError(b, err)
	return s
}

func BenchmarkScheduleWorst(b *testing.B) {
	for _, n := range []int{1000, adaptive.MaxRules} {
		b.Run(fmt.Sprintf("%d rules, a new minute each", n), func(b *testing.B) {
			s := worst(b, n)
			b.ReportAllocs()
			for at := epoch; b.Loop(); at = at.Add(time.Minute) {
				s.Adjust(at, limiter.PerMinute(600))
			}
		})
	}
}
