package client

import (
	"cmp"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"
)

// told is what one policy of a destination has left for this process, until when.
type told struct {
	name  string
	said  int64     // what was left by the answer
	read  time.Time // when it was read
	until time.Time
	left  int64
	gap   time.Duration // 0: not spread
}

const (
	// A request that tries keeps others from trying too for four times as long as answers take, within these bounds: it may
	// be one that is never answered.
	leastTrial, mostTrial = time.Second, 30 * time.Second
	// The pause after a 429 that names none, doubled for each in a row.
	leastPenalty, mostPenalty = time.Second, time.Minute
	// mostShared bounds the pause of a line that several destinations share: one of them must not silence the others.
	mostShared = time.Minute
)

// flight is a request under way.
type flight struct {
	at     time.Time
	number uint64 // of departures when it left, itself included
	before uint64 // under way when it left
	done   func(error)
}

// closedLocked returns for how long nothing may leave on account of what was told; 0: go. firm: no answer that is still to
// come can make it shorter.
func (l *lane) closedLocked(now time.Time) (wait time.Duration, firm bool) {
	if w := l.paused.Sub(now); w > 0 {
		return w, true
	}
	stale := l.trying
	for i := range l.told {
		switch t := &l.told[i]; {
		case !now.Before(t.until):
			stale = true
		case t.left <= 0:
			wait = max(wait, t.until.Sub(now))
		case t.gap > 0:
			wait = max(wait, l.last.Add(t.gap).Sub(now))
		}
	}
	firm = l.underWay == 0
	// Nobody knows what is left now. One request asks, the others wait for its answer.
	if stale && !firm {
		wait = max(wait, l.last.Add(l.trial()).Sub(now))
	}
	return wait, firm
}

func (l *lane) trial() time.Duration { return min(max(4*l.takes, leastTrial), mostTrial) }

// spacedLocked reports whether what was told sets the pace, so that nobody may decide ahead.
func (l *lane) spacedLocked() bool { return len(l.told) > 0 || l.trying }

// leaveLocked books a departure.
func (l *lane) leaveLocked(now time.Time) *flight {
	f := &flight{at: now, before: l.underWay}
	l.underWay++
	l.departures++
	f.number = l.departures
	l.last = now
	for i := range l.told {
		l.told[i].left--
	}
	return f
}

// answered takes note of a response, and returns how long the destination asks to be left alone, if it does.
func (l *lane) answered(f *flight, status int, a *advice, now time.Time) (pause time.Duration, refused bool) {
	c := &l.t.config
	l.mu.Lock()
	defer l.mu.Unlock()
	l.underWay--
	defer l.signal()
	l.takes = max(min(now.Sub(f.at), mostTrial), l.takes-l.takes/8)
	// What left before the last refusal was known tells nothing of what has been refused since.
	later := f.number > l.refused
	pause, refused = l.pauseLocked(status, a, later, now)
	pause = min(pause, c.MaxPause)
	switch {
	case len(a.bounds) > 0:
		// The server counted this request at some instant of its flight. Whatever else was under way in that time may be
		// counted later, so what is left is theirs first.
		l.toldLocked(a, f, refused, pause, now)
	case !refused:
		// Of what has run out, it does not tell any more.
		l.told = slices.DeleteFunc(l.told, func(t told) bool { return !f.at.Before(t.until) })
	}
	switch {
	case refused:
		// One that comes late and tells of nothing longer is no news: whoever tries now has left after it.
		if later || pause > 0 && now.Add(pause).After(l.paused) {
			l.tryLocked()
			l.pauseForLocked(pause, now)
		}
	case later:
		l.trying = l.trying && status >= http.StatusInternalServerError
		if status < http.StatusBadRequest {
			l.refusals = 0
		}
	}
	return pause, refused
}

// tryLocked lets one request at a time go until one that leaves from now on is answered.
func (l *lane) tryLocked() { l.trying, l.refused = true, l.departures }

func (l *lane) toldLocked(a *advice, f *flight, refused bool, pause time.Duration, now time.Time) {
	c := &l.t.config
	replicas := int64(c.Replicas)
	others := int64(f.before + l.departures - f.number)
	before := l.told
	l.told = make([]told, 0, mostBounds)
	for _, b := range a.bounds {
		window := b.span
		if b.left == 0 && refused && a.retry > 0 {
			window = pause // Retry-After goes before the window of the fields
		}
		t := told{name: b.name, said: b.left, read: now, until: now.Add(min(window, l.mostPause())), left: b.left/replicas - others}
		if c.PaceBelow > 0 && b.left > 0 && (b.quota == 0 || float64(b.left) < c.PaceBelow*float64(b.quota)) {
			// Rounded up; 9·10⁹ s of a million replicas do not fit.
			gap := float64(b.span) * float64(replicas) / float64(b.left)
			t.gap = min(time.Duration(min(gap, float64(c.MaxPause)))+1, l.mostPause())
		}
		// Of two answers that were under way together nobody knows which the server gave later: the one that leaves less.
		if i := slices.IndexFunc(before, func(old told) bool { return old.name == t.name }); i >= 0 {
			if old := before[i]; !old.read.Before(f.at) && (old.said < t.said || old.said == t.said && old.until.After(t.until)) && now.Before(old.until) {
				t = old
			}
		}
		l.told = append(l.told, t)
	}
	// A server may leave out a policy, as those that a refusal is not about. It holds for as long as it said.
	for _, old := range before {
		if now.Before(old.until) && !slices.ContainsFunc(l.told, func(t told) bool { return t.name == old.name }) {
			l.told = append(l.told, old)
		}
	}
	if len(l.told) > mostBounds {
		slices.SortStableFunc(l.told, func(a, b told) int { return cmp.Or(cmp.Compare(a.left, b.left), b.until.Compare(a.until)) })
		l.told = slices.Clip(l.told[:mostBounds])
	}
}

// pauseLocked says whether an answer refuses on account of a limit, and for how long.
// Requests that had left before a refusal was known are refused by the same event: they make the next penalty no longer.
func (l *lane) pauseLocked(status int, a *advice, later bool, now time.Time) (time.Duration, bool) {
	var spent time.Duration // until what is spent is back
	for _, b := range a.bounds {
		if b.left == 0 {
			spent = max(spent, b.span)
		}
	}
	switch status {
	case http.StatusTooManyRequests:
	case http.StatusServiceUnavailable:
		return a.retry, a.hasRetry
	case http.StatusForbidden: // as GitHub says it
		if a.retry == 0 && spent == 0 {
			return 0, false
		}
	default:
		return 0, false
	}
	if later {
		l.refusals = min(l.refusals+1, 16)
	}
	switch {
	case a.retry > 0: // no wait at all is none that is named: others would go on at once and be refused
		return a.retry, true
	case spent > 0:
		return spent, true
	case !later:
		return max(0, l.paused.Sub(now)), true
	}
	most := min(leastPenalty<<(l.refusals-1), mostPenalty)
	return most/2 + rand.N(most/2+1), true
}

// lost takes note of a request that got no answer.
func (l *lane) lost() {
	l.mu.Lock()
	l.underWay--
	l.signal()
	l.mu.Unlock()
}

// pauseFor closes the destination, for longer if it is already.
func (l *lane) pauseFor(d time.Duration, now time.Time) {
	l.mu.Lock()
	l.tryLocked()
	l.pauseForLocked(d, now)
	l.mu.Unlock()
}

func (l *lane) mostPause() time.Duration {
	if l.shared {
		return min(mostShared, l.t.config.MaxPause)
	}
	return l.t.config.MaxPause
}

func (l *lane) pauseForLocked(d time.Duration, now time.Time) {
	if until := now.Add(min(d, l.mostPause())); until.After(l.paused) {
		l.paused = until
	}
}
