package limiter

import (
	"math"
	"sort"
)

// Entry is one instant of a [SlidingLog] and the units taken at it.
type Entry struct {
	At    int64
	Units int32
}

// Log is the entries of a [SlidingLog] in a ring, ascending, one per instant.
type Log struct {
	// Full makes a take join the newest entry instead of adding one, which moves that entry's units to the later
	// instant: never more is let in, and no memory is needed. A store sets it while its bound on entries is reached.
	Full bool

	ring []Entry // len is a power of two
	head int
	n    int
	sum  int64
}

// Len returns the number of entries.
func (l *Log) Len() int { return l.n }

// Cap returns the number of entries there is memory for.
func (l *Log) Cap() int { return len(l.ring) }

func (l *Log) at(k int) *Entry { return &l.ring[(l.head+k)&(len(l.ring)-1)] }

func (l *Log) newest() int64 {
	if l.n == 0 {
		return math.MinInt64
	}
	return l.at(l.n - 1).At
}

func (l *Log) clear() { l.head, l.n, l.sum = 0, 0, 0 }

// drop removes the k oldest entries and gives back memory that a smaller log does not need.
func (l *Log) drop(k int) {
	for ; k > 0; k-- {
		l.sum -= int64(l.at(0).Units)
		l.head = (l.head + 1) & (len(l.ring) - 1)
		l.n--
	}
	if len(l.ring) > 64 && l.n < len(l.ring)/8 {
		l.resize(len(l.ring) / 4)
	}
}

func (l *Log) resize(size int) {
	ring := make([]Entry, size)
	for k := range l.n {
		ring[k] = *l.at(k)
	}
	l.ring, l.head = ring, 0
}

// Append adds an entry, which must not be older than the newest.
func (l *Log) Append(e Entry) { l.add(e.At, e.Units) }

// add books n units at e, which is not before the newest entry.
func (l *Log) add(e int64, n int32) {
	l.sum += int64(n)
	if l.n > 0 {
		if last := l.at(l.n - 1); last.At == e || l.Full {
			last.At = e
			last.Units += n
			return
		}
	}
	if l.n == len(l.ring) {
		l.resize(max(2*len(l.ring), 4))
	}
	l.n++
	*l.at(l.n - 1) = Entry{At: e, Units: n}
}

// remove takes out entry k, moving the shorter side: what was given back must not stay for a period.
func (l *Log) remove(k int) {
	if k < l.n/2 {
		for ; k > 0; k-- {
			*l.at(k) = *l.at(k - 1)
		}
		l.head = (l.head + 1) & (len(l.ring) - 1)
	} else {
		for ; k < l.n-1; k++ {
			*l.at(k) = *l.at(k + 1)
		}
	}
	l.n--
}

// counting is a log seen at an instant under a rule.
type counting struct {
	instant
	skip    int   // entries that do not count any more
	sum     int64 // units that do
	fresh   bool
	changed bool
}

// counting brings a SlidingLog to i: an entry counts while it is younger than the period, and under a new limit than
// both periods.
func (r *Rule) counting(s *State, i instant) counting {
	if s.Rule == nil {
		return counting{instant: i, fresh: true}
	}
	v := counting{instant: i, sum: s.Log.sum, changed: !r.sameTerms(s.Rule)}
	period := min(r.period, s.Rule.period)
	for v.skip < s.Log.n {
		x := s.Log.at(v.skip)
		if i.e-x.At < period {
			break
		}
		v.sum -= int64(x.Units)
		v.skip++
	}
	if v.sum == 0 {
		return counting{instant: i.fresh(), skip: s.Log.n, fresh: true}
	}
	return v
}

// logRetry returns the wait on the key's clock until n units fit: entries leave from the oldest on.
func (r *Rule) logRetry(l *Log, v counting, extra, n int64) int64 {
	free := r.rate - v.sum - extra
	for k := v.skip; k < l.n; k++ {
		x := l.at(k)
		if free += int64(x.Units); free >= n {
			return x.At + r.period - v.e
		}
	}
	return r.period // what is taken now leaves last
}

func (r *Rule) takeLogged(d *Decision, s *State, now Reading, n int64, book bool) {
	v := r.counting(s, s.instant(now))
	at := s.At
	if v.changed || v.fresh {
		at = v.e
	}
	var taken int64
	switch {
	case n > r.rate:
		d.RetryAfter = Never
		at = s.At
	case n == 0 || v.sum+n <= r.rate:
		d.Allowed = true
		taken = n
		if n > 0 {
			at = v.e
		}
	default:
		d.RetryAfter = clip(v.after(r.logRetry(&s.Log, v, 0, n), at))
	}
	d.Remaining = int(max(0, r.rate-v.sum-taken))
	if v.sum+taken > 0 {
		last := v.e
		if taken == 0 {
			last = s.Log.newest()
		}
		d.ResetAfter = clip(v.after(last+r.period-v.e, at))
		d.NextAfter = clip(v.after(r.logRetry(&s.Log, v, taken, int64(d.Remaining)+1), at))
	}
	switch {
	case !book:
	case taken > 0:
		r.storeLog(s, v)
		s.Log.add(v.e, int32(taken))
		d.Mark = v.e
	case !d.Allowed && d.RetryAfter != Never && (v.changed || v.stepped):
		r.storeLog(s, v)
	}
}

func (r *Rule) storeLog(s *State, v counting) {
	s.Log.drop(v.skip)
	s.At, s.Shift, s.Rule = v.e, v.shift, r
}

func (r *Rule) learnLog(s *State, i instant) {
	if v := r.counting(s, i); !v.fresh {
		r.storeLog(s, v)
	}
}

func (r *Rule) refundLogged(s *State, i instant, n, taken int64) {
	v := r.counting(s, i)
	if v.fresh {
		return
	}
	l := &s.Log
	k := v.skip + sort.Search(l.n-v.skip, func(k int) bool { return l.at(v.skip+k).At >= taken })
	if k == l.n || l.at(k).At != taken || l.at(k).Units == 0 {
		return
	}
	give := min(n, int64(l.at(k).Units))
	l.at(k).Units -= int32(give)
	l.sum -= give
	if v.sum -= give; v.sum == 0 {
		s.forget()
		return
	}
	if l.at(k).Units == 0 {
		l.remove(k)
	}
	r.storeLog(s, v)
}
