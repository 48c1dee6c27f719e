package adaptive

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A schedule is looked up in what its rules were compiled to, and what was found is remembered until something may change: in
// no zone does a rule begin or end before the next minute that a rule of it names, the next midnight, or the next time that
// its clocks are put forward or back.

// span is a stretch of whole numbers with both ends: of days since 1970, or of minutes of a day.
type span struct{ from, to int }

// spans are in order, and do not touch.
type spans []span

// merged returns spans that have what any of s has.
func merged(s []span) (out spans) {
	s = slices.Clone(s)
	slices.SortFunc(s, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	for _, x := range s {
		if n := len(out); n > 0 && x.from <= out[n-1].to+1 {
			out[n-1].to = max(out[n-1].to, x.to)
		} else {
			out = append(out, x)
		}
	}
	return out
}

// has reports whether n is in one of them.
func (s spans) has(n int) bool {
	low, high := 0, len(s)
	for low < high {
		if mid := (low + high) / 2; s[mid].to < n {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low < len(s) && s[low].from <= n
}

// compiled is a rule that is looked up.
type compiled struct {
	rule     int // which one of the schedule
	zone     int // of the table
	everyDay bool
	holiday  bool
	weekdays [7]bool
	dates    spans // of days
	wholeDay bool
	within   spans // of minutes of a day that matches
	until    int   // minutes of the day after one that matches, as over midnight
}

// place is one zone of a table.
type place struct {
	zone  *time.Location
	edges []int // minutes at which a rule begins or ends, midnight at least, in order
}

// table is what rules were compiled to. Two rules for the same time are one: the second never decides.
type table struct {
	calendar *calendar
	rules    []compiled
	places   []place

	last   atomic.Pointer[[2]answer] // the latest first
	lookup sync.Mutex                // one looks up what many want to know
}

// answer is the rule from an instant to another, in seconds since 1970; to is not part of it.
type answer struct {
	from, to int64
	rule     int // −1: none
}

func newTable(rules []scheduled, c *calendar) *table {
	t := &table{calendar: c}
	places, seen := map[string]int{}, map[string]bool{}
	for k := range rules {
		r := &rules[k]
		name := r.zone.String()
		key := name + " " + strings.ToLower(strings.Join(strings.Fields(r.When), " "))
		if seen[key] {
			continue
		}
		seen[key] = true
		z, known := places[name]
		if !known {
			z = len(t.places)
			places[name] = z
			t.places = append(t.places, place{r.zone, []int{0}})
		}
		t.rules = append(t.rules, r.when.compile(k, z, &t.places[z]))
	}
	for k := range t.places {
		slices.Sort(t.places[k].edges)
		t.places[k].edges = slices.Compact(t.places[k].edges)
	}
	return t
}

func (w *when) compile(rule, zone int, p *place) compiled {
	c := compiled{rule: rule, zone: zone, everyDay: w.everyDay, holiday: w.holiday, weekdays: w.weekdays, wholeDay: len(w.times) == 0}
	var days, minutes []span
	for _, r := range w.dates {
		days = append(days, span{r.from.number(), r.to.number()})
	}
	for _, s := range w.times {
		p.edges = append(p.edges, s.from, s.to%dayMinutes)
		if s.to > s.from {
			minutes = append(minutes, span{s.from, s.to - 1})
		} else {
			minutes = append(minutes, span{s.from, dayMinutes - 1})
			c.until = max(c.until, s.to)
		}
	}
	c.dates, c.within = merged(days), merged(minutes)
	return c
}

// matches is that of a rule's days.
func (c *compiled) matches(x *day, number int, isOwnDay bool) bool {
	switch {
	case c.everyDay:
		return true
	case len(c.dates) > 0 && c.dates.has(number):
		return true
	case x.isHoliday && (isOwnDay || c.holiday):
		return c.holiday
	}
	return c.weekdays[x.weekday]
}

// local is what time it is in a zone.
type local struct {
	minute          int
	today, before   day
	number, numberB int // of these days
}

// find returns the rule that is on at an instant, −1 for none.
func (t *table) find(now time.Time) int {
	if len(t.rules) == 0 {
		return -1
	}
	at := now.Unix()
	if a := t.remembered(at); a != nil {
		return a.rule
	}
	t.lookup.Lock()
	defer t.lookup.Unlock()
	if a := t.remembered(at); a != nil {
		return a.rule
	}
	a := t.look(now)
	// Two are kept: around a change, requests do not come in order.
	both := &[2]answer{a, {from: math.MaxInt64, to: math.MaxInt64}}
	if was := t.last.Load(); was != nil {
		both[1] = was[0]
	}
	t.last.Store(both)
	return a.rule
}

func (t *table) remembered(at int64) *answer {
	if both := t.last.Load(); both != nil {
		for k := range both {
			if both[k].from <= at && at < both[k].to {
				return &both[k]
			}
		}
	}
	return nil
}

// look finds the rule, and how long it stays.
func (t *table) look(now time.Time) answer {
	a := answer{from: math.MinInt64, to: math.MaxInt64, rule: -1}
	locals := make([]local, len(t.places))
	for k := range t.places {
		p := &t.places[k]
		from, to, at := p.around(now)
		a.from, a.to = max(a.from, from), min(a.to, to)
		x := &locals[k]
		x.minute = at.Hour()*60 + at.Minute()
		x.today = t.calendar.day(dateOf(at))
		x.before = t.calendar.day(dayBefore(at))
		x.number, x.numberB = x.today.date.number(), x.before.date.number()
	}
	for k := range t.rules {
		c := &t.rules[k]
		x := &locals[c.zone]
		isOn := (c.wholeDay || c.within.has(x.minute)) && c.matches(&x.today, x.number, t.calendar.isOwnDay) ||
			x.minute < c.until && c.matches(&x.before, x.numberB, t.calendar.isOwnDay)
		if isOn {
			a.rule = c.rule
			break
		}
	}
	return a
}

// around returns the seconds since 1970 between which nothing changes in a zone, and what time it is there.
func (p *place) around(now time.Time) (from, to int64, at time.Time) {
	at = now.In(p.zone)
	unix, second := now.Unix(), at.Hour()*3600+at.Minute()*60+at.Second()
	next, _ := slices.BinarySearch(p.edges, second/60+1) // the first that is yet to come
	from, to = unix-int64(second-60*p.edges[next-1]), unix+int64(60*dayMinutes-second)
	if next < len(p.edges) {
		to = unix + int64(60*p.edges[next]-second)
	}
	begins, ends := at.ZoneBounds()
	if !begins.IsZero() {
		from = max(from, begins.Unix())
	}
	if !ends.IsZero() {
		to = min(to, ends.Unix())
	}
	return from, to, at
}
