package client

import (
	"cmp"
	"slices"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// spare is a departure that was booked and given up. A queue takes nothing back, so whoever comes next leaves then.
type spare struct {
	key   limiter.Key
	limit limiter.Limit
	place
	shown limiter.Decision
}

// mostSpares bounds what is kept for a lane. Few can be booked at once: those of the next [ahead].
const mostSpares = 64

// leftOver keeps a departure for the next one.
func (l *lane) leftOver(s spare) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.spares = slices.DeleteFunc(l.spares, func(old spare) bool { return old.at.Before(now) })
	if s.at.Before(now) || len(l.spares) >= mostSpares {
		return
	}
	at, _ := slices.BinarySearchFunc(l.spares, s.at, func(old spare, at time.Time) int { return cmp.Compare(old.at.Sub(at), 0) })
	l.spares = slices.Insert(l.spares, at, s)
}

// takeSpare returns the first departure that fits, if there is one from now to until.
func (l *lane) takeSpare(key limiter.Key, limit limiter.Limit, until time.Time) (spare, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for i, s := range l.spares {
		// One that is over is lost: a later instant may be that of another process.
		if s.key == key && s.limit == limit && !s.at.Before(now) && !s.at.After(until) {
			l.spares = slices.Delete(l.spares, i, i+1)
			return s, true
		}
	}
	return spare{}, false
}

// sparesLocked returns how many departures are left over under a limit, and the one of that place, if there is one.
func (l *lane) sparesLocked(limit limiter.Limit, place int, now time.Time) (n int, at time.Time) {
	for _, s := range l.spares {
		if s.limit != limit || s.at.Before(now) {
			continue
		}
		if n == place {
			at = s.at
		}
		n++
	}
	return n, at
}
