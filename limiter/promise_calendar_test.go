package limiter_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/limiter"
)

// Zones whose clocks change at midnight, or skip a day: there a date does not start at 0:00, or 0:00 comes twice.
var hardZones = []struct {
	zone  string
	about time.Time
}{
	{"America/Sao_Paulo", time.Date(2018, 11, 4, 3, 0, 0, 0, time.UTC)},  // 0:00 → 1:00
	{"America/Sao_Paulo", time.Date(2018, 2, 18, 2, 0, 0, 0, time.UTC)},  // 0:00 → 23:00 of the day before
	{"Asia/Beirut", time.Date(2022, 3, 26, 22, 0, 0, 0, time.UTC)},       // 0:00 → 1:00
	{"Asia/Beirut", time.Date(2022, 10, 29, 21, 0, 0, 0, time.UTC)},      // 0:00 → 23:00
	{"Africa/Cairo", time.Date(2023, 4, 27, 22, 0, 0, 0, time.UTC)},      // Friday 0:00 → 1:00
	{"Africa/Cairo", time.Date(2023, 10, 26, 21, 0, 0, 0, time.UTC)},     // Thursday 24:00 → 23:00
	{"America/Havana", time.Date(2024, 3, 10, 5, 0, 0, 0, time.UTC)},     // 0:00 → 1:00
	{"America/Havana", time.Date(2024, 11, 3, 5, 0, 0, 0, time.UTC)},     // 1:00 → 0:00
	{"Pacific/Apia", time.Date(2011, 12, 30, 10, 0, 0, 0, time.UTC)},     // Friday the 30th was left out
	{"America/Asuncion", time.Date(2024, 3, 24, 3, 0, 0, 0, time.UTC)},   // 0:00 → 23:00, in a month's last week
	{"Atlantic/Azores", time.Date(2024, 3, 31, 1, 0, 0, 0, time.UTC)},    // 0:00 → 1:00, a Sunday
	{"Asia/Amman", time.Date(2022, 2, 24, 22, 0, 0, 0, time.UTC)},        // 0:00 → 1:00
	{"Europe/Berlin", time.Date(2024, 3, 31, 1, 0, 0, 0, time.UTC)},      // 2:00 → 3:00
	{"", time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC)},                  // leap days
	{"", time.Date(2100, 3, 1, 0, 0, 0, 0, time.UTC)},                    // no leap year
	{"Asia/Kathmandu", time.Date(1986, 1, 1, 0, 0, 0, 0, time.UTC)},      // a new offset at New Year
	{"Pacific/Kwajalein", time.Date(1993, 8, 21, 12, 0, 0, 0, time.UTC)}, // the 21st was left out
}

// windowEnd asks a rule for the end of the window that holds an instant: one unit used, it is when that is back.
func windowEnd(t require.TestingT, r *limiter.Rule, at int64) int64 {
	var s limiter.State
	d := r.Take(&s, limiter.Reading{Now: at}, 1, 0)
	require.True(t, d.Allowed)
	return at + int64(d.ResetAfter)
}

// sameUnit reports whether two instants fall into one calendar unit of a zone.
func sameUnit(u limiter.Unit, a, b time.Time) bool {
	switch u {
	case limiter.Month:
		return a.Year() == b.Year() && a.Month() == b.Month()
	case limiter.Week:
		return monday(a) == monday(b)
	}
	return a.Year() == b.Year() && a.YearDay() == b.YearDay()
}

// monday returns the date of the Monday of a's week, as a number of days.
func monday(a time.Time) int64 {
	y, m, d := a.Date()
	days := time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / 86400
	return floorDiv(days+3, 7)*7 - 3 // the 1st of January 1970 was a Thursday
}

// Calendar windows contain their instant, follow each other without a gap or an overlap, and change exactly where the date,
// the week or the month does. Where a day is cut in two by clocks that go back over midnight, it is the first instant of the
// later date that counts, so a window may hold an hour of the date before, but never two first instants.
func TestCalendarWindows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		z := rapid.SampledFrom(hardZones).Draw(t, "zone")
		u := rapid.SampledFrom([]limiter.Unit{limiter.Day, limiter.Week, limiter.Month}).Draw(t, "unit")
		zone, err := time.LoadLocation(z.zone)
		require.NoError(t, err)
		r := newRule(t, limiter.Limit{Rate: 2}.Aligned(u, z.zone))
		day := int64(24 * time.Hour)
		at := z.about.UnixNano() + rapid.OneOf(rapid.Int64Range(-2*day, 2*day), rapid.Int64Range(-400*day, 400*day),
			rapid.SampledFrom([]int64{0, -1, 1, int64(time.Hour), -int64(time.Hour), int64(time.Hour) - 1, -int64(time.Hour) - 1})).Draw(t, "instant")

		end := windowEnd(t, r, at)
		require.Greater(t, end, at, "a window contains its instant")
		next := windowEnd(t, r, end)
		require.Greater(t, next, end, "windows follow each other")
		if end-at > 1 {
			inside := rapid.Int64Range(at, end-1).Draw(t, "inside")
			require.Equal(t, end, windowEnd(t, r, inside), "every instant up to the end is in the same window")
		}
		require.Equal(t, end, windowEnd(t, r, end-1), "the last instant of the window")

		first, before := time.Unix(0, end).In(zone), time.Unix(0, end-1).In(zone)
		require.False(t, sameUnit(u, first, before), "%v and %v are one %v", before, first, u)
		y, m, d := first.Date()
		for back := int64(1); back <= 3*int64(time.Hour); back += int64(10 * time.Minute) { // the first time the date is seen
			earlier := time.Unix(0, end-back).In(zone)
			yy, mm, dd := earlier.Date()
			require.False(t, y == yy && m == mm && d == dd, "%v is before the start %v of its date", earlier, first)
		}
		switch u {
		case limiter.Week:
			if z.zone != "Pacific/Apia" && z.zone != "Pacific/Kwajalein" {
				require.Equal(t, time.Monday, first.Weekday())
			}
		case limiter.Month:
			require.Equal(t, 1, first.Day())
		}
		longest := map[limiter.Unit]int64{limiter.Day: 25 * int64(time.Hour), limiter.Week: 8 * day, limiter.Month: 32 * day}[u]
		require.LessOrEqual(t, next-end, longest)
	})
}

func TestCalendarWindowsOfNote(t *testing.T) {
	end := func(u limiter.Unit, zone string, at time.Time) time.Time {
		return time.Unix(0, windowEnd(t, newRule(t, limiter.Limit{Rate: 2}.Aligned(u, zone)), at.UnixNano())).UTC()
	}
	utc := func(y, m, d, h int) time.Time { return time.Date(y, time.Month(m), d, h, 0, 0, 0, time.UTC) }

	// The clock skipped 0:00: the 4th starts at 1:00, three hours before UTC's.
	require.Equal(t, utc(2018, 11, 4, 3), end(limiter.Day, "America/Sao_Paulo", utc(2018, 11, 3, 12)))
	require.Equal(t, utc(2018, 11, 5, 2), end(limiter.Day, "America/Sao_Paulo", utc(2018, 11, 4, 3)))
	// The 30th was left out: the 29th ends where the 31st starts.
	require.Equal(t, utc(2011, 12, 30, 10), end(limiter.Day, "Pacific/Apia", utc(2011, 12, 30, 9)))
	require.Equal(t, utc(2011, 12, 31, 10), end(limiter.Day, "Pacific/Apia", utc(2011, 12, 30, 10)))
	// 0:00 came twice: the day starts with the first of them, and has 25 hours.
	require.Equal(t, utc(2024, 11, 3, 4), end(limiter.Day, "America/Havana", utc(2024, 11, 3, 3)))
	require.Equal(t, utc(2024, 11, 4, 5), end(limiter.Day, "America/Havana", utc(2024, 11, 3, 4)))

	require.Equal(t, utc(2024, 3, 1, 0), end(limiter.Month, "", utc(2024, 2, 29, 23)))
	require.Equal(t, utc(2023, 3, 1, 0), end(limiter.Month, "", utc(2023, 2, 28, 23)))
	require.Equal(t, utc(2026, 1, 1, 0), end(limiter.Month, "", utc(2025, 12, 31, 23)))
	require.Equal(t, utc(2026, 1, 5, 0), end(limiter.Week, "", utc(2026, 1, 4, 23)))
	require.Equal(t, utc(2026, 1, 12, 0), end(limiter.Week, "", utc(2026, 1, 5, 0)))
	require.Equal(t, utc(2026, 3, 3, 16), end(limiter.Day, "Asia/Shanghai", utc(2026, 3, 3, 15)))
}
