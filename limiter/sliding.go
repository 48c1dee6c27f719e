package limiter

// counts returns the cells of a SlidingWindow, the newest first. With one cell a window the two counts live in Units and
// Frac, so that a store of fixed-size state holds them.
func (s *State) counts() []int32 {
	if s.Rule.cells == 1 {
		return []int32{int32(s.Units), int32(s.Frac)}
	}
	return s.Counts
}

// window is a SlidingWindow brought to an instant and converted to a rule.
type window struct {
	instant
	c       []int32 // counts of the cells, c[0] of the one holding e, c[K] of the one that is only partly inside
	off     int64   // ns from the start of the newest cell to e
	fresh   bool
	changed bool
}

// roll brings s to i in the cells of r, using buf, which must be zero.
func (r *Rule) roll(s *State, i instant, buf []int32) window {
	v := window{instant: i, c: buf}
	old := s.Rule
	if old == nil {
		v.fresh = true
		v.off = floorMod(v.e, r.cell)
		return v
	}
	v.changed = !r.sameTerms(old)
	gone := (i.e-floorMod(i.e, old.cell))/old.cell - (s.At-floorMod(s.At, old.cell))/old.cell // cells that passed
	if gone > old.cells {
		return r.roll(&State{}, i.fresh(), buf)
	}
	if r.cell == old.cell && r.cells == old.cells {
		s.copyCounts(buf[gone:])
	} else {
		// Another grid: what counts now goes into the current cell. Not as the old rate would read it: a window knows what
		// it admitted also when it was lowered meanwhile, or limits that take turns would mint.
		var grid [MaxCells + 1]int32
		s.copyCounts(grid[gone : old.cells+1])
		buf[0] = int32(min(old.weigh(grid[:old.cells+1], floorMod(i.e, old.cell), MaxRate), MaxRate))
	}
	if newest(buf) < 0 {
		return r.roll(&State{}, i.fresh(), buf)
	}
	v.off = floorMod(v.e, r.cell)
	return v
}

// copyCounts copies the newest counts into dst.
func (s *State) copyCounts(dst []int32) {
	if s.Rule.cells > 1 {
		copy(dst, s.Counts)
		return
	}
	dst[0] = int32(s.Units)
	if len(dst) > 1 {
		dst[1] = int32(s.Frac)
	}
}

func (r *Rule) storeWindow(s *State, v window) {
	s.At, s.Shift, s.Rule = v.e, v.shift, r
	if r.cells == 1 {
		s.Units, s.Frac = int64(v.c[0]), int64(v.c[1])
		return
	}
	s.Counts = append(s.Counts[:0], v.c...)
}

// newest returns the index of the newest cell with a count, −1 if there is none.
func newest(c []int32) int {
	for a, n := range c {
		if n > 0 {
			return a
		}
	}
	return -1
}

// counted is a cell's count as it counts: a lowered rate caps it, so that nobody waits longer than the new rate alone
// could make him.
func (r *Rule) counted(c int32) int64 { return min(int64(c), r.rate) }

// estimate returns ⌈Σ c[0…K−1] + c[K]·(1 − off/cell)⌉ of the counts as they count.
func (r *Rule) estimate(c []int32, off int64) int64 { return r.weigh(c, off, r.rate) }

// weigh is estimate with counts capped at most.
func (r *Rule) weigh(c []int32, off, most int64) int64 {
	var sum int64
	for _, n := range c[:r.cells] {
		sum += min(int64(n), most)
	}
	if last := c[r.cells]; last > 0 {
		sum += mulAddDivUp(min(int64(last), most), r.cell-off, 0, r.cell)
	}
	return sum
}

// slidingRetry returns the wait on the key's clock until n units fit. In closed form: of the cells from the oldest on,
// take the first whose younger ones leave room for n; n fits when that cell has slid out far enough.
func (r *Rule) slidingRetry(c []int32, off, n int64) int64 {
	var younger int64
	for _, k := range c[:r.cells] {
		younger += r.counted(k)
	}
	a := r.cells
	for younger > r.rate-n {
		a--
		younger -= r.counted(c[a])
	}
	var part int64 // of that cell which has to be outside
	if room, k := r.rate-n-younger, r.counted(c[a]); room < k {
		inside, _ := mulDiv(room, r.cell, k)
		part = r.cell - inside
	}
	return (r.cells-a)*r.cell + part - off
}

// slidingReset returns the wait on the key's clock from e until nothing counts any more.
func (r *Rule) slidingReset(c []int32, e int64) int64 {
	a := newest(c)
	if a < 0 {
		return 0
	}
	return (r.cells+1-int64(a))*r.cell - floorMod(e, r.cell)
}

func (r *Rule) takeSliding(d *Decision, s *State, now Reading, n int64, book bool) {
	// Two bodies of one function: the usual single cell does not pay for a hundred.
	if r.cells == 1 {
		var buf [2]int32
		r.slide(d, s, now, n, book, buf[:])
		return
	}
	var buf [MaxCells + 1]int32
	r.slide(d, s, now, n, book, buf[:r.cells+1])
}

func (r *Rule) slide(d *Decision, s *State, now Reading, n int64, book bool, buf []int32) {
	v := r.roll(s, s.instant(now), buf)
	at := s.At
	if v.changed || v.fresh {
		at = v.e
	}
	used := r.estimate(v.c, v.off)
	switch {
	case n > r.rate:
		d.RetryAfter = Never
		at = s.At
	case n == 0 || used+n <= r.rate:
		d.Allowed = true
		if n > 0 {
			v.c[0] += int32(n)
			used += n
			at = v.e
			if book {
				r.storeWindow(s, v)
				d.Mark = v.e
			}
		}
	default:
		d.RetryAfter = clip(v.after(r.slidingRetry(v.c, v.off, n), at))
		if book && (v.changed || v.stepped) {
			r.storeWindow(s, v)
		}
	}
	d.Remaining = int(max(0, r.rate-used))
	if used > 0 {
		d.ResetAfter = clip(v.after(r.slidingReset(v.c, v.e), at))
		d.NextAfter = d.ResetAfter
		if int64(d.Remaining) < r.rate {
			d.NextAfter = clip(v.after(r.slidingRetry(v.c, v.off, int64(d.Remaining)+1), at))
		}
	}
}

func (r *Rule) learnSliding(s *State, i instant) {
	var buf [MaxCells + 1]int32
	if v := r.roll(s, i, buf[:r.cells+1]); !v.fresh {
		r.storeWindow(s, v)
	}
}

func (r *Rule) refundSliding(s *State, i instant, n, taken int64) {
	var buf [MaxCells + 1]int32
	v := r.roll(s, i, buf[:r.cells+1])
	if v.fresh {
		return
	}
	a := (v.e - v.off - (taken - floorMod(taken, r.cell))) / r.cell
	if a < 0 || a > r.cells || v.c[a] == 0 {
		return
	}
	v.c[a] = int32(max(0, int64(v.c[a])-n))
	if newest(v.c) < 0 {
		s.forget()
		return
	}
	r.storeWindow(s, v)
}
