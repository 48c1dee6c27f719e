package adaptive

import "time"

// pinned sees whether the limit has been at its least for a minute, refusing requests, while nothing hurts: then it is not the
// limit that helps. A minute is judged as a whole, in quarters: traffic that comes in bunches refuses nobody in most windows,
// and a single failure is much of the few requests of one.
type pinned struct {
	since    time.Time // zero: it is not
	quarter  time.Time // when the one at hand began
	refused  bool      // somebody in it
	failed   [pinnedQuarters]int
	measured [pinnedQuarters]int
	at       int // the one at hand
}

const (
	pinnedFor      = time.Minute
	pinnedQuarters = 4
)

func (p *pinned) reset() { *p = pinned{} }

// see takes a window in which the limit was at its least and the processors idle. true: it is in vain.
func (p *pinned) see(now time.Time, w *Window, errorsAt float64) bool {
	if p.since.IsZero() {
		if w.Rejected > 0 {
			p.since, p.quarter = now, now
		}
		return false
	}
	p.refused = p.refused || w.Rejected > 0
	p.failed[p.at] += w.Failed
	p.measured[p.at] += w.Measured
	if now.Sub(p.quarter) < pinnedFor/pinnedQuarters {
		return false
	}
	if !p.refused {
		p.reset()
		return false
	}
	var minute Window
	for k := range pinnedQuarters {
		minute.Failed += p.failed[k]
		minute.Measured += p.measured[k]
	}
	if now.Sub(p.since) >= pinnedFor && minute.ErrorRatio() <= errorsAt {
		return true
	}
	p.at = (p.at + 1) % pinnedQuarters
	p.quarter, p.refused, p.failed[p.at], p.measured[p.at] = now, false, 0, 0
	return false
}
