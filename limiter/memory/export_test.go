package memory

import (
	"fmt"
	"time"
)

// PassTime is how long the sweep takes for a pass.
const PassTime = passTime

// MostOverflow bounds the overflow cells.
const MostOverflow = mostOverflow

// OverflowCells returns how many overflow cells there are.
func (l *Limiter) OverflowCells() int {
	l.overMu.Lock()
	defer l.overMu.Unlock()
	if s := l.over.Load(); s != nil {
		return s.live
	}
	return 0
}

// Rules returns for how many limits there is room in the table of rules.
func (l *Limiter) Rules() int { return len(*l.rules.list.Load()) }

// Verify checks all that must hold of the table while nobody uses it.
func (l *Limiter) Verify() error {
	d := l.dir.Load()
	if d == nil {
		return nil
	}
	refs := map[*rule]int32{}
	var logged int64
	live, segments := 0, 0
	check := func(s *segment) error {
		filled, keys := 0, 0
		for i := range s.cells {
			c := &s.cells[i]
			h := c.hash.Load()
			w := c.word.Load()
			if w&wordBits != 0 {
				return fmt.Errorf("cell %d of %x: word %x is locked or moved", i, s.prefix, w)
			}
			if h != unused {
				filled++
			}
			if h <= freed {
				if s.sideOf(i) != nil || w != 0 {
					return fmt.Errorf("cell %d of %x is free and holds something", i, s.prefix)
				}
				continue
			}
			keys++
			if s.find(h) != i {
				return fmt.Errorf("cell %d of %x: its hash is found in cell %d", i, s.prefix, s.find(h))
			}
			if r := l.rules.at(w); r != nil {
				refs[r]++
			} else if w != 0 {
				return fmt.Errorf("cell %d of %x names rule %d, which is gone", i, s.prefix, w>>ruleShift)
			}
			if x := s.sideOf(i); x != nil {
				logged += int64(x.log.Cap())
			}
			if at := l.idleAt(ref{seg: s, i: i}, w); at < s.idle.Load() {
				return fmt.Errorf("cell %d of %x is idle at %d, before %d", i, s.prefix, at, s.idle.Load())
			}
		}
		if filled != s.filled || keys != s.live || s.moved {
			return fmt.Errorf("segment %x: filled %d (%d), live %d (%d), moved %v", s.prefix, s.filled, filled, s.live, keys, s.moved)
		}
		return nil
	}
	for i := 0; i < len(d.slots); {
		s := d.slots[i].Load()
		n := 1 << (d.depth() - s.depth)
		for j := range n {
			if d.slots[i+j].Load() != s {
				return fmt.Errorf("slot %d of depth %d does not hold the segment of slot %d, depth %d", i+j, d.depth(), i, s.depth)
			}
		}
		if uint64(i)<<d.shift != s.prefix {
			return fmt.Errorf("slot %d holds the segment of prefix %x", i, s.prefix)
		}
		if err := check(s); err != nil {
			return err
		}
		for c := range s.cells {
			if h := s.cells[c].hash.Load(); h > freed && d.of(h) != s {
				return fmt.Errorf("hash %x is in the segment of %x", h, s.prefix)
			}
		}
		live += s.live
		segments++
		i += n
	}
	if int64(live) != l.used.Load() || int64(segments) != l.segments.Load() {
		return fmt.Errorf("%d keys (%d) in %d segments (%d)", live, l.used.Load(), segments, l.segments.Load())
	}
	if s := l.over.Load(); s != nil {
		if err := check(s); err != nil {
			return fmt.Errorf("overflow: %w", err)
		}
	}
	if logged != l.logged.Load() {
		return fmt.Errorf("logs have memory for %d entries, %d are counted", logged, l.logged.Load())
	}
	for _, r := range l.rules.byLimit {
		if refs[r] != r.refs.Load() {
			return fmt.Errorf("%v is named by %d cells and has %d references", r.limit, refs[r], r.refs.Load())
		}
		delete(refs, r)
	}
	if len(refs) > 0 {
		return fmt.Errorf("%d rules in use have been given up", len(refs))
	}
	return nil
}

// Tend visits all segments as the sweep does, as if it were a given time.
func (l *Limiter) Tend(at time.Time) {
	now := l.clock.of(at)
	for cursor := uint64(0); ; {
		s := l.advance(&cursor)
		if s == nil {
			return
		}
		s.mu.Lock()
		l.tend(s, now)
		if cursor == 0 {
			break
		}
	}
	l.reapOverflow(now)
}
