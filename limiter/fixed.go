package limiter

import (
	"math"
	"time"
)

// span is a calendar window [start, end) in ticks.
type span struct{ start, end int64 }

// Window returns the window [start, end) of a [FixedWindow] that holds an instant, all in ticks. Windows are [w·P, (w+1)·P) from the Unix epoch, or calendar units.
func (r *Rule) Window(at int64) (start, end int64) {
	if r.zone == nil {
		start = at - floorMod(at, r.period)
		return start, addSat(start, r.period)
	}
	// The calendar is slow and its answer holds for days.
	if w := r.window.Load(); w != nil && at >= w.start && at < w.end {
		return w.start, w.end
	}
	w := calendarWindow(at*r.tick, r.limit.Align.Unit, r.zone)
	w.start, w.end = w.start/r.tick, w.end/r.tick
	r.window.Store(&w)
	return w.start, w.end
}

// calendarWindow returns the calendar unit holding an instant in a zone, in Unix ns.
func calendarWindow(at int64, u Unit, zone *time.Location) span {
	y, m, d := time.Unix(0, at).In(zone).Date()
	// edge returns where the k-th unit from here starts. Around a change of the zone's offset at midnight the date of an
	// instant and the start of that date can disagree, so the window is searched among edges, which are ordered.
	edge := func(k int) int64 {
		switch u {
		case Week:
			back := (int(time.Date(y, m, d, 12, 0, 0, 0, time.UTC).Weekday()) + 6) % 7
			return midnight(y, m, d-back+7*k, zone)
		case Month:
			return midnight(y, m+time.Month(k), 1, zone)
		}
		return midnight(y, m, d+k, zone)
	}
	// Two steps either way are more than the dates and offsets of the world need.
	k := 0
	for k > -2 && edge(k) > at {
		k--
	}
	for k < 2 && edge(k+1) <= at {
		k++
	}
	return span{edge(k), edge(k + 1)}
}

// midnight returns the first instant of a date in a zone, clipped to what int64 nanoseconds hold.
func midnight(y int, m time.Month, d int, zone *time.Location) int64 {
	t := time.Date(y, m, d, 0, 0, 0, 0, zone)
	start, end := t.ZoneBounds()
	// Where clocks skip midnight, Date may name an instant of the day before: the day then starts at the change.
	if want := time.Date(y, m, d, 0, 0, 0, 0, time.UTC); t.Day() != want.Day() && !end.IsZero() {
		t = end
	}
	// Where they are set back over midnight it comes twice, and Date may name the second one.
	if !start.IsZero() {
		_, now := t.Zone()
		_, before := start.Add(-1).Zone()
		if first := t.Add(time.Duration(now-before) * time.Second); first.Before(start) && first.Day() == t.Day() {
			t = first
		}
	}
	switch secs := t.Unix(); {
	case secs >= math.MaxInt64/int64(time.Second):
		return math.MaxInt64
	case secs <= math.MinInt64/int64(time.Second):
		return math.MinInt64
	}
	return t.UnixNano()
}

// count brings a FixedWindow to i. The count is that of the window of State.At under the stored limit; under a new one
// it goes into the window that holds e.
func (r *Rule) count(s *State, i instant) level {
	old := s.Rule
	if old == nil {
		return level{instant: i, fresh: true}
	}
	if _, end := old.Window(s.At); i.e >= end || s.Units == 0 {
		return level{instant: i.fresh(), fresh: true}
	}
	return level{instant: i, whole: s.Units, changed: !r.sameTerms(old)}
}

func (r *Rule) takeFixed(d *Decision, s *State, now Reading, n int64, book bool) {
	v := r.count(s, s.instant(now))
	at := v.keep(s)
	_, end := r.Window(v.e)
	switch {
	case n > r.rate:
		d.RetryAfter = Never
		at = s.At
	case n == 0 || v.whole+n <= r.rate:
		d.Allowed = true
		if n > 0 {
			v.whole += n
			at = v.e
			if book {
				r.storeLevel(s, v)
				d.Mark = v.e
			}
		}
	default:
		d.RetryAfter = clip(v.after(end-v.e, at))
		if book && (v.changed || v.stepped) {
			r.storeLevel(s, v)
		}
	}
	d.Remaining = int(max(0, r.rate-v.whole))
	if v.whole > 0 {
		d.ResetAfter = clip(v.after(end-v.e, at))
		d.NextAfter = d.ResetAfter
	}
}

func (r *Rule) refundFixed(s *State, i instant, n, taken int64) {
	v := r.count(s, i)
	if v.fresh {
		return
	}
	if start, end := r.Window(v.e); taken < start || taken >= end {
		return
	}
	if v.whole -= n; v.whole <= 0 {
		s.forget()
		return
	}
	r.storeLevel(s, v)
}
