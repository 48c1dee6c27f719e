package adaptive

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// Calendar names the days on which a week is not as usual. Each entry is a date, "2026-10-10", or a range of dates with both
// ends, "2026-10-01..2026-10-07", of at most 3,700 days. The dates are those of the zone of the rule that is looked at.
type Calendar struct {
	// Holidays count as Sundays. If a rule of the schedule names holiday, they are days of their own instead, which rules of
	// weekdays do not match.
	Holidays []string
	// Workdays, such as those that make up for a holiday, count as weekdays: a Saturday as the Friday before it, a Sunday as the
	// Monday after it. A day that is in both lists is a workday.
	Workdays []string
}

// date is a day of the calendar, without a zone.
type date struct {
	year  int
	month time.Month
	day   int
}

func dateOf(t time.Time) date {
	y, m, d := t.Date()
	return date{y, m, d}
}

func (d date) before(e date) bool {
	switch {
	case d.year != e.year:
		return d.year < e.year
	case d.month != e.month:
		return d.month < e.month
	}
	return d.day < e.day
}

func (d date) weekday() time.Weekday {
	return time.Date(d.year, d.month, d.day, 0, 0, 0, 0, time.UTC).Weekday()
}

// number counts days from 1 January 1970.
func (d date) number() int {
	const daySeconds = 24 * 60 * 60
	seconds := time.Date(d.year, d.month, d.day, 0, 0, 0, 0, time.UTC).Unix() // a multiple of a day, of any sign
	return int(seconds / daySeconds)
}

func (d date) String() string { return fmt.Sprintf("%04d-%02d-%02d", d.year, int(d.month), d.day) }

// dates is a range of days with both ends.
type dates struct{ from, to date }

func (r dates) has(d date) bool { return !d.before(r.from) && !r.to.before(d) }

const mostDays = 3700

// parseDate reads YYYY-MM-DD, which has to exist.
func parseDate(s string) (date, error) {
	t, err := time.Parse(time.DateOnly, s)
	if err != nil || len(s) != len(time.DateOnly) || t.Year() < 1 {
		return date{}, fmt.Errorf("%s is no date such as 2026-10-01", shown(s))
	}
	return dateOf(t), nil
}

// parseDates reads a date or a range of dates.
func parseDates(s string) (dates, error) {
	first, last, isRange := strings.Cut(s, "..")
	if !isRange {
		last = first
	}
	from, err := parseDate(first)
	if err != nil {
		return dates{}, err
	}
	to, err := parseDate(last)
	if err != nil {
		return dates{}, err
	}
	if to.before(from) {
		return dates{}, fmt.Errorf("%s ends before it begins", shown(s))
	}
	days := time.Date(to.year, to.month, to.day, 0, 0, 0, 0, time.UTC).Sub(time.Date(from.year, from.month, from.day, 0, 0, 0, 0, time.UTC))
	if days >= mostDays*24*time.Hour {
		return dates{}, fmt.Errorf("%s is more than %d days", shown(s), mostDays)
	}
	return dates{from, to}, nil
}

// shown quotes a text for an error, shortened: it may be long.
func shown(s string) string {
	const most = 60
	if len(s) > most {
		return strconv.Quote(s[:most]) + "…"
	}
	return strconv.Quote(s)
}

// calendar is a parsed [Calendar].
type calendar struct {
	holidays, workdays spans // of days
	isOwnDay           bool  // a rule names holiday
}

func (c Calendar) parse() (p calendar, err error) {
	var errs []error
	list := func(name string, texts []string) spans {
		var out []span
		for k, text := range texts {
			r, err := parseDates(strings.TrimSpace(text))
			if err != nil {
				errs = append(errs, fmt.Errorf("adaptive: %w: %s[%d]: %w", limiter.ErrInvalid, name, k, err))
				continue
			}
			out = append(out, span{r.from.number(), r.to.number()})
		}
		return merged(out)
	}
	p.holidays = list("Holidays", c.Holidays)
	p.workdays = list("Workdays", c.Workdays)
	return p, errors.Join(errs...)
}

// Validate returns nil, or an error wrapping [limiter.ErrInvalid] that names every entry that is no date and no range of dates.
func (c Calendar) Validate() error {
	_, err := c.parse()
	return err
}

// day is what a date counts as.
type day struct {
	date      date
	weekday   time.Weekday
	isHoliday bool
	isWorkday bool // by the calendar, not by the week
}

func (c *calendar) day(d date) day {
	x, number := day{date: d, weekday: d.weekday()}, d.number()
	switch {
	case c.workdays.has(number):
		x.isWorkday = true
		switch x.weekday {
		case time.Saturday:
			x.weekday = time.Friday
		case time.Sunday:
			x.weekday = time.Monday
		}
	case c.holidays.has(number):
		x.isHoliday, x.weekday = true, time.Sunday
	}
	return x
}

// String says what a day is and counts as.
func (x day) String() string {
	text := x.date.String() + " " + x.date.weekday().String()[:3]
	switch {
	case x.isHoliday:
		return text + ", a holiday"
	case x.isWorkday:
		return text + ", a workday that counts as " + x.weekday.String()
	}
	return text
}
