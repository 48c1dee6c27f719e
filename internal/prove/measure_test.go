package prove_test

import (
	"math"
	"slices"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// pass is one request that a handler saw: it entered the guard at began and came out at at, in Unix nanoseconds. Whatever
// decided it did so in between.
type pass struct{ began, at int64 }

// bound is what is promised for every interval of length t: units + rate·t.
type bound struct{ units, rate float64 } // rate: units a second

func boundOf(l limiter.Limit) bound {
	return bound{units: float64(l.Quota()), rate: float64(l.Rate) / l.Period.Seconds()}
}

func (b bound) plus(o bound) bound           { return bound{b.units + o.units, b.rate + o.rate} }
func (b bound) times(n float64) bound        { return bound{b.units * n, b.rate * n} }
func (b bound) over(t time.Duration) float64 { return b.units + b.rate*t.Seconds() }

// excess is by how much the fullest interval, measured where requests come out, is above b, and how long that interval is.
// It is below 0 if none is full, and exact over all intervals: the best beginning for each end is the running minimum.
func excess(passes []pass, b bound) (worst float64, length time.Duration) {
	passes = slices.Clone(passes)
	slices.SortFunc(passes, func(x, y pass) int { return int(x.at - y.at) })
	worst = math.Inf(-1)
	least, from := math.Inf(1), int64(0)
	for k, p := range passes {
		before := float64(k) - b.rate*seconds(p.at-passes[0].at)
		if before < least {
			least, from = before, p.at
		}
		if over := before + 1 - least - b.units; over > worst {
			worst, length = over, time.Duration(p.at-from)
		}
	}
	return worst, length
}

// certainExcess is by how much the fullest interval is above b wherever in its span each request was decided: it counts only
// requests that both entered and came out in the interval. Delays of replies, and of a busy machine, cannot raise it.
func certainExcess(passes []pass, b bound) float64 {
	passes = slices.Clone(passes)
	slices.SortFunc(passes, func(x, y pass) int { return int(x.at - y.at) })
	worst := math.Inf(-1)
	for _, first := range passes {
		n := 0.0
		for _, p := range passes {
			if p.began < first.began {
				continue
			}
			n++
			worst = max(worst, n-b.units-b.rate*seconds(p.at-first.began))
		}
	}
	return worst
}

// wronglyRefused returns the refusals that a bucket of b cannot have made, wherever in its span each request was decided. A
// booking is a pass, or a request that may have been booked without passing. lost are units that may be gone without one.
func wronglyRefused(refusals, bookings []pass, b bound, lost float64) (wrong []pass) {
	bookings = slices.Clone(bookings)
	slices.SortFunc(bookings, func(x, y pass) int { return int(y.at - x.at) }) // latest first
	for _, r := range refusals {
		// The least that can have been there in all of the refusal's span: for any beginning, a full bucket then and what was
		// booked since.
		least, booked := b.units, 0.0
		for _, k := range bookings {
			if k.began > r.at {
				continue
			}
			booked++
			least = min(least, b.units+b.rate*max(0, seconds(r.began-k.at))-booked)
		}
		if least >= 1+lost {
			wrong = append(wrong, r)
		}
	}
	return wrong
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }
