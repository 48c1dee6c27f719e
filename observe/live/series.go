package live

import "math"

// What charts show: a point a second for two minutes, and one for ten seconds for the thirteen before.
const (
	fine   = 120
	coarse = 78
	ratio  = 10 // fine points in a coarse one
)

// What is kept of each policy, and of all together.
const (
	sAllowed = iota
	sRefused
	sDegraded
	sUndecided // passed, as the store could not be asked
	kinds
)

// series is the last quarter of an hour, in events a second. Its points are those of the sampler's ticks, 0, 1, 2, …
type series struct {
	fine   [fine][kinds]float32
	coarse [coarse][kinds]float32
	used   bool // anything but zero is in it
}

// put sets the point of tick n. What it replaces goes into a coarse point.
func (s *series) put(n int64, p [kinds]float32) {
	if !s.used {
		if p == ([kinds]float32{}) {
			return
		}
		*s = series{used: true}
	}
	at := &s.fine[n%fine]
	if old := n - fine; old >= 0 {
		c := &s.coarse[old/ratio%coarse]
		if old%ratio == 0 {
			*c = [kinds]float32{}
		}
		for k := range c {
			c[k] += at[k] / ratio
		}
	}
	*at = p
}

// clock is the times of the points: a second apart if all went well.
type clock struct {
	fine   [fine]int64 // Unix seconds
	coarse [coarse]int64
}

func (c *clock) put(n, at int64) {
	if old := n - fine; old >= 0 && old%ratio == 0 {
		c.coarse[old/ratio%coarse] = c.fine[n%fine]
	}
	c.fine[n%fine] = at
}

// shift moves all times, as the clock that they are by was set.
func (c *clock) shift(seconds int64) {
	for k := range c.fine {
		c.fine[k] += seconds
	}
	for k := range c.coarse {
		c.coarse[k] += seconds
	}
}

// points calls f for the coarse points up to tick n and then the fine ones: those of the last fine seconds alone if short.
func points(n int64, short bool, f func(isCoarse bool, k int)) {
	if !short {
		last := (n - fine) / ratio // this one may be under way, and is left out with less than a whole one in it
		for c := max(0, last-coarse+1); c < last || c == last && n >= fine && (n-fine)%ratio == ratio-1; c++ {
			f(true, int(c%coarse))
		}
	}
	for k := max(0, n-fine+1); k <= n; k++ {
		f(false, int(k%fine))
	}
}

// times are the instants of points.
func (c *clock) times(n int64, short bool) (out []int64) {
	points(n, short, func(isCoarse bool, k int) {
		if isCoarse {
			out = append(out, c.coarse[k])
		} else {
			out = append(out, c.fine[k])
		}
	})
	return out
}

// values are one kind of the points; nil if all are zero.
func (s *series) values(n int64, short bool, kind int) (out []float64) {
	if !s.used {
		return nil
	}
	some := false
	points(n, short, func(isCoarse bool, k int) {
		v := s.fine[k][kind]
		if isCoarse {
			v = s.coarse[k][kind]
		}
		some = some || v != 0
		out = append(out, tenth(float64(v)))
	})
	if !some {
		return nil
	}
	return out
}

// tenth rounds, so that little is sent.
func tenth(v float64) float64 { return math.Round(v*10) / 10 }
