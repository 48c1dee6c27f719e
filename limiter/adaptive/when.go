package adaptive

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// when is a parsed Rule.When.
type when struct {
	everyDay bool
	weekdays [7]bool
	holiday  bool
	dates    []dates
	times    []clock // none: the whole day
}

// clock is a stretch of a day on the clock on the wall, in minutes; to is not part of it. One that ends before it begins
// goes on until that time of the next day.
type clock struct{ from, to int }

const (
	maxWhen    = 1000 // bytes
	dayMinutes = 24 * 60
)

var weekdayNames = map[string]time.Weekday{
	"sun": time.Sunday, "mon": time.Monday, "tue": time.Tuesday, "wed": time.Wednesday, "thu": time.Thursday, "fri": time.Friday,
	"sat": time.Saturday, "sunday": time.Sunday, "monday": time.Monday, "tuesday": time.Tuesday, "wednesday": time.Wednesday,
	"thursday": time.Thursday, "friday": time.Friday, "saturday": time.Saturday,
}

// parseWhen reads "DAYS", "TIMES" or "DAYS TIMES".
func parseWhen(s string) (w when, err error) {
	if len(s) > maxWhen {
		return when{}, fmt.Errorf("%d bytes are more than %d", len(s), maxWhen)
	}
	words := strings.Fields(s)
	if len(words) == 0 {
		return when{}, errors.New(`empty; write days, times or both, such as "Mon-Fri 09:00-18:00"`)
	}
	if len(words) > 2 {
		return when{}, fmt.Errorf("%s: one word for days and one for times, no spaces inside of a list or a range", shown(s))
	}
	days, times := words[0], ""
	if len(words) == 2 {
		times = words[1]
	} else if isTimes(days) {
		days, times = "", words[0]
	}
	if len(words) == 2 && isTimes(days) {
		return when{}, fmt.Errorf("%s: the days come first, and several times are a list: 09:00-12:00,14:00-18:00", shown(s))
	}
	w.everyDay = days == ""
	if !w.everyDay {
		for item := range strings.SplitSeq(days, ",") {
			if err := w.addDays(item); err != nil {
				return when{}, err
			}
		}
	}
	if times != "" {
		for item := range strings.SplitSeq(times, ",") {
			c, err := parseClock(item)
			if err != nil {
				return when{}, err
			}
			w.times = append(w.times, c)
		}
	}
	return w, nil
}

func isTimes(s string) bool { return strings.Contains(s, ":") }

func (w *when) addDays(item string) error {
	name := strings.ToLower(item)
	if name == "holiday" {
		w.holiday = true
		return nil
	}
	if item != "" && item[0] >= '0' && item[0] <= '9' {
		r, err := parseDates(item)
		w.dates = append(w.dates, r)
		return err
	}
	first, last, isRange := strings.Cut(name, "-")
	if !isRange {
		last = first
	}
	from, ok := weekdayNames[first]
	to, ok2 := weekdayNames[last]
	if !ok || !ok2 {
		return fmt.Errorf("%s is none of a weekday (Mon), a range (Mon-Fri), a date (2026-10-01), a range of dates "+
			"(2026-10-01..2026-10-07), holiday", shown(item))
	}
	for d := from; ; d = (d + 1) % 7 {
		w.weekdays[d] = true
		if d == to {
			return nil
		}
	}
}

// parseClock reads HH:MM-HH:MM.
func parseClock(s string) (c clock, err error) {
	first, last, ok := strings.Cut(s, "-")
	if ok {
		c.from, ok = parseMinute(first)
	}
	if ok {
		c.to, ok = parseMinute(last)
	}
	switch {
	case !ok || c.from == dayMinutes:
		return clock{}, fmt.Errorf("%s is no stretch of a day such as 09:00-18:00 or 22:00-02:00", shown(s))
	case c.from == c.to:
		return clock{}, fmt.Errorf("%s is empty; leave the times out for the whole day", shown(s))
	}
	return c, nil
}

// parseMinute reads HH:MM, up to 24:00.
func parseMinute(s string) (minute int, ok bool) {
	if len(s) != 5 || s[2] != ':' {
		return 0, false
	}
	for _, k := range [...]int{0, 1, 3, 4} {
		if s[k] < '0' || s[k] > '9' {
			return 0, false
		}
	}
	h, m := int(s[0]-'0')*10+int(s[1]-'0'), int(s[3]-'0')*10+int(s[4]-'0')
	minute = h*60 + m
	return minute, m < 60 && minute <= dayMinutes
}

// matches reports whether a rule's days have a day.
func (w *when) matches(x day, isOwnDay bool) bool {
	if w.everyDay {
		return true
	}
	for _, r := range w.dates {
		if r.has(x.date) {
			return true
		}
	}
	if x.isHoliday && (isOwnDay || w.holiday) {
		return w.holiday
	}
	return w.weekdays[x.weekday]
}

// active reports whether the rule is on at an instant of its zone, and on account of which day: the one before, where a
// stretch goes on over midnight.
func (w *when) active(t time.Time, c *calendar) (on day, ok bool) {
	today := c.day(dateOf(t))
	if len(w.times) == 0 {
		return today, w.matches(today, c.isOwnDay)
	}
	minute := t.Hour()*60 + t.Minute()
	for _, s := range w.times {
		switch isLong := s.to < s.from; {
		case !isLong && minute >= s.from && minute < s.to, isLong && minute >= s.from:
			if w.matches(today, c.isOwnDay) {
				return today, true
			}
		case isLong && minute < s.to:
			if before := c.day(dayBefore(t)); w.matches(before, c.isOwnDay) {
				return before, true
			}
		}
	}
	return day{}, false
}

// dayBefore returns the day that ended when that of t began: in a zone that left one out, it is not always the date before.
func dayBefore(t time.Time) date {
	y, m, d := t.Date()
	return dateOf(time.Date(y, m, d, 12, 0, 0, 0, t.Location()).Add(-24 * time.Hour))
}
