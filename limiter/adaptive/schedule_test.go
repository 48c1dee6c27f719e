package adaptive_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/adaptive"
)

// in returns an instant of a zone, which it must have.
func in(t require.TestingT, zone, at string) time.Time {
	loc, err := time.LoadLocation(zone)
	require.NoError(t, err)
	x, err := time.ParseInLocation("2006-01-02 15:04:05", at, loc)
	require.NoError(t, err)
	require.Equal(t, at, x.Format("2006-01-02 15:04:05"), "there is no such time")
	return x
}

func TestRulesAreOn(t *testing.T) {
	for _, c := range []struct {
		when, on, off string // instants in UTC, split by |
	}{
		{
			"Mon-Fri 09:00-18:00", "2026-11-30 09:00:00|2026-11-30 17:59:59|2026-12-04 12:00:00",
			"2026-11-30 08:59:59|2026-11-30 18:00:00|2026-12-05 12:00:00|2026-12-06 12:00:00",
		},
		{"Sat,Sun", "2026-12-05 00:00:00|2026-12-06 23:59:59", "2026-12-04 23:59:59|2026-12-07 00:00:00"},
		{"saturday,SUN", "2026-12-05 00:00:00", "2026-12-04 23:59:59"},
		{"Fri-Mon", "2026-12-04 00:00:00|2026-12-06 12:00:00|2026-12-07 23:59:59", "2026-12-03 23:59:59|2026-12-08 00:00:00"},
		{"Mon-Mon", "2026-11-30 12:00:00", "2026-12-01 12:00:00|2026-11-29 12:00:00"},
		{"22:00-02:00", "2026-12-01 22:00:00|2026-12-01 23:59:59|2026-12-02 00:00:00|2026-12-02 01:59:59", "2026-12-01 21:59:59|2026-12-02 02:00:00"},
		{"Fri 22:00-02:00", "2026-12-04 22:00:00|2026-12-05 01:59:59", "2026-12-04 01:00:00|2026-12-05 02:00:00|2026-12-05 22:00:00"},
		{"22:00-00:00", "2026-12-01 23:59:59", "2026-12-02 00:00:00|2026-12-01 21:59:59"},
		{"22:00-24:00", "2026-12-01 23:59:59", "2026-12-02 00:00:00"},
		{"00:00-24:00", "2026-12-01 00:00:00|2026-12-01 23:59:59", ""},
		{"2026-11-11 00:00-02:00", "2026-11-11 00:00:00|2026-11-11 01:59:59", "2026-11-10 23:59:59|2026-11-11 02:00:00|2026-11-12 00:00:00"},
		{"2026-11-11 23:00-01:00", "2026-11-11 23:00:00|2026-11-12 00:59:59", "2026-11-11 00:30:00|2026-11-12 23:00:00"},
		{"2026-12-31 22:00-02:00", "2026-12-31 22:00:00|2027-01-01 01:59:59", "2027-01-01 02:00:00"},
		{"2026-10-01..2026-10-07", "2026-10-01 00:00:00|2026-10-07 23:59:59", "2026-09-30 23:59:59|2026-10-08 00:00:00"},
		{"2026-12-30..2027-01-02", "2026-12-31 00:00:00|2027-01-01 00:00:00", "2027-01-03 00:00:00"},
		{"2028-02-28..2028-03-01", "2028-02-29 12:00:00", "2028-02-27 12:00:00"},
		{"Mon,2026-12-02 09:00-12:00,14:00-18:00", "2026-11-30 09:00:00|2026-12-02 17:00:00", "2026-12-01 10:00:00|2026-12-02 13:00:00"},
		{" \tMon   09:00-18:00 ", "2026-11-30 09:00:00", "2026-12-01 10:00:00"},
		{"holiday", "", "2026-11-30 09:00:00"},
	} {
		s, err := adaptive.NewSchedule([]adaptive.Rule{{When: c.when, Scale: 2}}, adaptive.Calendar{})
		require.NoError(t, err, c.when)
		for want, list := range map[int]string{200: c.on, 100: c.off} {
			for at := range strings.SplitSeq(list, "|") {
				if at != "" {
					require.Equal(t, limiter.PerSecond(want), s.Adjust(in(t, "UTC", at), limiter.PerSecond(100)), "%s at %s", c.when, at)
				}
			}
		}
	}
}

func TestRulesThatAreNone(t *testing.T) {
	for when, want := range map[string]string{
		"": "empty", "   ": "empty", "Mon Fri 09:00-18:00": "no spaces", "Mon-Fri 09:00 - 18:00": "no spaces", "09:00-18:00 Mon": "days come first",
		"09:00-12:00 14:00-18:00": "a list", "Mo": `"Mo"`, "Mon-": `"Mon-"`, "-Mon": `"-Mon"`, "Mon,,Tue": `""`, "Mon-Tue-Wed": "Mon-Tue-Wed",
		"Mon-2026-10-01": "none of", "workday": "none of", "25:00-26:00": "25:00-26:00", "09:60-10:00": "09:60-10:00", "9:00-18:00": "9:00-18:00",
		"09:00": "09:00", "09:00-": "09:00-", "24:00-01:00": "24:00-01:00", "24:01-01:00": "24:01", "09:00-09:00": "is empty", "00:00-00:00": "is empty",
		"09:00-18:00,": `""`, "2026-02-29": "2026-02-29", "2100-02-29": "2100-02-29", "2026-13-01": "2026-13-01", "2026-1-1": "2026-1-1", "20261001": "20261001",
		"2026-10-07..2026-10-01": "ends before", "2026-10-01..": `""`, "2026-10-01...2026-10-07": ".2026-10-07", "2026-01-01..2050-01-01": "3700",
		"0000-01-01": "0000-01-01", "Mon\u00a0Tue": "no stretch", "Ｍon": "none of", strings.Repeat("Mon,", 300): "1000",
	} {
		_, err := adaptive.NewSchedule([]adaptive.Rule{{When: when, Scale: 2}}, adaptive.Calendar{})
		require.ErrorIs(t, err, limiter.ErrInvalid, when)
		require.ErrorContains(t, err, want, when)
		require.ErrorContains(t, err, "rule 1: When: ", when)
	}
}

func TestScheduleTellsAllThatIsWrong(t *testing.T) {
	_, err := adaptive.NewSchedule([]adaptive.Rule{
		{When: "Mon", Scale: 2, Limit: limiter.PerSecond(1)},
		{When: "Mon"},
		{When: "Mon", Scale: -1},
		{When: "Mon", Scale: 1001},
		{When: "Mon", Scale: math.NaN()},
		{When: "Mon", Limit: limiter.Limit{Rate: -1}},
		{When: "Mon", Scale: 1, Zone: "Local"},
		{When: "Mon", Scale: 1, Zone: "Asia/Atlantis"},
		{When: "Mon", Scale: 1, Zone: "../etc/passwd"},
		{When: "never", Scale: math.Inf(1)},
	}, adaptive.Calendar{Holidays: []string{"2026-10-01", "tomorrow"}, Workdays: []string{"2026-10-10..2026-10-09"}})
	require.ErrorIs(t, err, limiter.ErrInvalid)
	for _, want := range []string{
		"rule 1: both", "rule 2: neither", "rule 3: Scale -1", "rule 4: Scale 1001", "rule 5: Scale NaN", "rule 6: Limit: ", `rule 7: Zone: "Local"`,
		`rule 8: Zone: "Asia/Atlantis"`, "rule 9: Zone: ", "rule 10: When: ", "rule 10: Scale +Inf", "Holidays[1]", "Workdays[0]",
	} {
		require.ErrorContains(t, err, want)
	}
	require.Error(t, adaptive.Calendar{Holidays: []string{"x"}}.Validate())
	require.NoError(t, adaptive.Calendar{Holidays: []string{" 2026-10-01 "}}.Validate())
	_, err = adaptive.NewSchedule(make([]adaptive.Rule, adaptive.MaxRules+1), adaptive.Calendar{})
	require.ErrorContains(t, err, "5001 rules")
}

// The week of a national holiday in October 2026: seven days off, and a Saturday and a Sunday to make up for two of them.
var october = adaptive.Calendar{Holidays: []string{"2026-10-01..2026-10-07"}, Workdays: []string{"2026-09-27", "2026-10-10"}}

func TestCalendar(t *testing.T) {
	const zone = "Asia/Shanghai"
	rules := []adaptive.Rule{
		{When: "Mon 10:00-11:00", Zone: zone, Scale: 5},
		{When: "Fri 10:00-11:00", Zone: zone, Scale: 6},
		{When: "Mon-Fri 09:00-18:00", Zone: zone, Scale: 2},
		{When: "Sun", Zone: zone, Scale: 3},
	}
	own := append([]adaptive.Rule{{When: "holiday 09:00-18:00", Zone: zone, Scale: 4}, {When: "2026-10-03", Zone: zone, Scale: 7}}, rules...)
	for _, c := range []struct {
		at          string
		rate, rate2 int // of rules, of own
	}{
		{"2026-09-25 12:00:00", 200, 200}, // a Friday
		{"2026-09-26 12:00:00", 100, 100}, // a Saturday
		{"2026-09-27 12:00:00", 200, 200}, // a Sunday that is worked
		{"2026-09-27 10:30:00", 500, 500}, // like a Monday
		{"2026-09-27 20:00:00", 100, 100},
		{"2026-10-01 12:00:00", 300, 400}, // a Thursday off
		{"2026-10-01 20:00:00", 300, 100}, // no Sunday where holidays are days of their own
		{"2026-10-03 20:00:00", 300, 700}, // a rule of its date
		{"2026-10-04 12:00:00", 300, 400}, // a Sunday off
		{"2026-10-07 23:59:59", 300, 100},
		{"2026-10-08 12:00:00", 200, 200},
		{"2026-10-10 12:00:00", 200, 200}, // a Saturday that is worked
		{"2026-10-10 10:30:00", 600, 600}, // like a Friday
		{"2026-10-11 12:00:00", 300, 300},
	} {
		for want, list := range map[*int][]adaptive.Rule{&c.rate: rules, &c.rate2: own} {
			s, err := adaptive.NewSchedule(list, october)
			require.NoError(t, err)
			require.Equal(t, *want, s.Adjust(in(t, zone, c.at), limiter.PerSecond(100)).Rate, "%s, %d rules", c.at, len(list))
		}
	}

	// A day in both lists is a workday.
	s, err := adaptive.NewSchedule(rules, adaptive.Calendar{Holidays: []string{"2026-10-08"}, Workdays: []string{"2026-10-08"}})
	require.NoError(t, err)
	require.Equal(t, 200, s.Adjust(in(t, zone, "2026-10-08 12:00:00"), limiter.PerSecond(100)).Rate)

	// What goes on over midnight belongs to the day on which it began.
	s, err = adaptive.NewSchedule([]adaptive.Rule{{When: "Mon-Fri 22:00-02:00", Zone: zone, Scale: 2}}, october)
	require.NoError(t, err)
	for at, want := range map[string]int{
		"2026-10-01 01:00:00": 200, "2026-10-01 23:00:00": 100, "2026-10-08 01:00:00": 100, "2026-10-11 01:00:00": 200, "2026-10-11 23:00:00": 100,
	} {
		require.Equal(t, want, s.Adjust(in(t, zone, at), limiter.PerSecond(100)).Rate, at)
	}
}

// Clocks on the wall that are put forward and back, and a day that was left out.
func TestRulesWhereClocksChange(t *testing.T) {
	for _, c := range []struct {
		zone, when string
		from, to   string // UTC, of the time it is on; to is not part of it
		off        string // in between, if there is such a time
	}{
		{"Europe/Berlin", "01:30-02:30", "2026-03-29 00:30:00", "2026-03-29 01:00:00", ""},                    // to 3:00 at once
		{"Europe/Berlin", "01:30-03:30", "2026-03-29 00:30:00", "2026-03-29 01:30:00", ""},                    // an hour
		{"Europe/Berlin", "02:00-03:00", "2026-10-25 00:00:00", "2026-10-25 02:00:00", ""},                    // two hours
		{"Europe/Berlin", "02:30-03:30", "2026-10-25 00:30:00", "2026-10-25 02:30:00", "2026-10-25 01:15:00"}, // 2:15 again
		{"Europe/Berlin", "Sat 23:00-04:00", "2026-03-28 22:00:00", "2026-03-29 02:00:00", ""},                // four hours
		{"America/Sao_Paulo", "2018-11-03 22:00-02:00", "2018-11-04 01:00:00", "2018-11-04 04:00:00", ""},     // 0:00 was 1:00
		{"America/Sao_Paulo", "2018-11-04", "2018-11-04 03:00:00", "2018-11-05 02:00:00", ""},                 // 23 hours
		{"Pacific/Apia", "2011-12-29 22:00-02:00", "2011-12-30 08:00:00", "2011-12-30 12:00:00", ""},          // the 30th was left out
		{"Pacific/Apia", "2011-12-30", "", "", "2011-12-30 10:00:00"},                                         // and never was
		{"Asia/Kathmandu", "09:00-10:00", "2026-05-05 03:15:00", "2026-05-05 04:15:00", ""},                   // a quarter of an hour off
		{"Africa/Monrovia", "09:00-10:00", "1971-05-05 09:44:30", "1971-05-05 10:44:30", ""},                  // half a minute off
		{"Africa/Monrovia", "1971-05-05..1971-05-06", "1971-05-05 00:44:30", "1971-05-07 00:44:30", ""},       // half a minute off
		{"Pacific/Kiritimati", "2026-01-01", "2025-12-31 10:00:00", "2026-01-01 10:00:00", ""},                // the first
		{"Etc/GMT+12", "2026-12-31 12:00-24:00", "2027-01-01 00:00:00", "2027-01-01 12:00:00", ""},            // the last
	} {
		s, err := adaptive.NewSchedule([]adaptive.Rule{{When: c.when, Zone: c.zone, Scale: 2}}, adaptive.Calendar{})
		require.NoError(t, err)
		is := func(on bool, at time.Time) {
			t.Helper()
			want := limiter.PerSecond(100)
			if on {
				want = limiter.PerSecond(200)
			}
			require.Equal(t, want, s.Adjust(at, limiter.PerSecond(100)), "%s %s at %v", c.zone, c.when, at)
			l, _ := s.Explain(at, limiter.PerSecond(100))
			require.Equal(t, want, l)
		}
		if c.off != "" {
			is(false, in(t, "UTC", c.off))
		}
		if c.from != "" {
			from, to := in(t, "UTC", c.from), in(t, "UTC", c.to)
			is(false, from.Add(-1))
			is(true, from)
			is(true, to.Add(-1))
			is(false, to)
		}
	}
}

func TestRulesInOrder(t *testing.T) {
	s, err := adaptive.NewSchedule([]adaptive.Rule{
		{When: "2026-11-11", Limit: limiter.PerMinute(7)},
		{When: "Wed", Scale: 0.5},
		{When: "00:00-24:00", Limit: limiter.DenyAll},
	}, adaptive.Calendar{})
	require.NoError(t, err)
	for at, want := range map[string]limiter.Limit{
		"2026-11-11 12:00:00": limiter.PerMinute(7), "2026-11-18 12:00:00": limiter.PerSecond(50).WithBurst(10), "2026-11-19 12:00:00": limiter.DenyAll,
	} {
		require.Equal(t, want, s.Adjust(in(t, "UTC", at), limiter.PerSecond(100).WithBurst(20)), at)
	}
	require.Len(t, s.Rules(), 3)
	s, err = adaptive.NewSchedule(nil, adaptive.Calendar{})
	require.NoError(t, err)
	require.Equal(t, limiter.PerSecond(1), s.Adjust(epoch, limiter.PerSecond(1)))
}

func ExampleSchedule_Explain() {
	s, err := adaptive.NewSchedule([]adaptive.Rule{
		{When: "2026-11-11 00:00-02:00", Zone: "Asia/Shanghai", Limit: limiter.PerMinute(6000)},
		{When: "Mon-Fri 09:00-18:00", Zone: "Asia/Shanghai", Scale: 1.5},
	}, adaptive.Calendar{Holidays: []string{"2026-10-01..2026-10-07"}, Workdays: []string{"2026-10-10"}})
	if err != nil {
		panic(err)
	}
	for _, at := range []time.Time{
		time.Date(2026, 10, 9, 2, 0, 0, 0, time.UTC), time.Date(2026, 10, 10, 2, 0, 0, 0, time.UTC),
		time.Date(2026, 10, 5, 2, 0, 0, 0, time.UTC), time.Date(2026, 11, 10, 17, 0, 0, 0, time.UTC),
	} {
		limit, why := s.Explain(at, limiter.PerMinute(600))
		fmt.Println(limit.Rate, why)
	}
	// Output:
	// 900 rule 2, "Mon-Fri 09:00-18:00", is on at 2026-10-09 10:00:00 CST (2026-10-09 Fri): 600/m × 1.5 = 900/m
	// 900 rule 2, "Mon-Fri 09:00-18:00", is on at 2026-10-10 10:00:00 CST (2026-10-10 Sat, a workday that counts as Friday): 600/m × 1.5 = 900/m
	// 600 no rule is on: the limit is 600/m; it is 10:00:00 in Asia/Shanghai (2026-10-05 Mon, a holiday)
	// 6000 rule 1, "2026-11-11 00:00-02:00", is on at 2026-11-11 01:00:00 CST (2026-11-11 Wed): the limit is 6000/m
}

// What a minute's answer is remembered as is what is found without remembering, and a valid limit leads to a valid one.
func TestScheduleRemembersRightly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom([]string{"", "Europe/Berlin", "Asia/Kathmandu", "Africa/Monrovia", "America/Sao_Paulo", "Australia/Lord_Howe"})
		times := rapid.SampledFrom([]string{"Mon-Fri 09:00-18:00", "22:00-02:00", "Sat,Sun 01:30-03:30", "holiday", "2018-11-04", "Fri 23:59-00:01"})
		var rules []adaptive.Rule
		for range rapid.IntRange(1, 4).Draw(t, "rules") {
			rules = append(rules, adaptive.Rule{When: times.Draw(t, "when"), Zone: zone.Draw(t, "zone"), Scale: rapid.Float64Range(1e-9, 1000).Draw(t, "scale")})
		}
		s, err := adaptive.NewSchedule(rules, adaptive.Calendar{Holidays: []string{"2018-11-03..2018-11-05"}})
		require.NoError(t, err)
		nominal := limiter.Limit{
			Algorithm: rapid.SampledFrom(limiter.Algorithms()).Draw(t, "algorithm"), Rate: rapid.IntRange(1, limiter.MaxLogRate).Draw(t, "rate"),
			Period: time.Second, Burst: rapid.IntRange(0, limiter.MaxRate).Draw(t, "burst"),
		}
		base := rapid.SampledFrom([]int64{0, -1e9, 31_536_000, 1_541_300_400, 1_774_746_000, 4e9}).Draw(t, "base")
		for range 20 {
			at := time.Unix(base+rapid.Int64Range(-200_000, 200_000).Draw(t, "second"), 0)
			got := s.Adjust(at, nominal)
			want, why := s.Explain(at, nominal)
			require.Equal(t, want, got, why)
			require.NoError(t, got.Validate())
		}
	})
}

func FuzzSchedule(f *testing.F) {
	for _, when := range []string{"Mon-Fri 09:00-18:00", "2026-10-01..2026-10-07,holiday 22:00-02:00", "Sat,Sun", "2026-02-30", "::::", "-", "0000-00-00"} {
		f.Add(when, "Europe/Berlin", 1.5, int64(1_774_746_000), "2026-10-01..2026-10-07")
	}
	f.Fuzz(func(t *testing.T, when, zone string, factor float64, unix int64, day string) {
		s, err := adaptive.NewSchedule([]adaptive.Rule{{When: when, Zone: zone, Scale: factor}}, adaptive.Calendar{Holidays: []string{day}})
		if err != nil {
			require.ErrorIs(t, err, limiter.ErrInvalid)
			return
		}
		at := time.Unix(unix%1e11, 0)
		got := s.Adjust(at, limiter.PerSecond(100))
		want, why := s.Explain(at, limiter.PerSecond(100))
		require.Equal(t, want, got, why)
		require.NoError(t, got.Validate())
	})
}

func BenchmarkScheduleAdjust(b *testing.B) {
	s, err := adaptive.NewSchedule([]adaptive.Rule{
		{When: "2026-11-11", Zone: "Asia/Shanghai", Scale: 2}, {When: "Mon-Fri 09:00-18:00", Zone: "Asia/Shanghai", Scale: 1.5},
	}, october)
	require.NoError(b, err)
	for name, every := range map[string]time.Duration{"the same minute": 0, "a new minute each": time.Minute} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for at := epoch; b.Loop(); at = at.Add(every) {
				s.Adjust(at, limiter.PerMinute(600))
			}
		})
	}
}
