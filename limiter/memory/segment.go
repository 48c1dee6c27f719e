package memory

import (
	"math"
	"sync"
	"sync/atomic"
)

// segment is the part of the table whose hashes begin with prefix. It is searched without a lock, by linear probing. It
// never gives up a place within its life: to grow, split, shrink or merge, its contents move to new segments.
type segment struct {
	id     uint64 // unlike that of any other
	cells  []cell
	side   atomic.Pointer[[]*side] // beside the cells, once one of them needs it
	idle   atomic.Int64            // no cell becomes idle before
	prefix uint64
	depth  uint8 // bits of prefix
	shared bool  // holds overflow cells: exempt from the cap

	mu     sync.Mutex // who adds or frees cells; guards what follows
	moved  bool       // the contents are in other segments
	filled int        // cells that are not unused
	live   int        // cells of a key
}

// sizes are the lengths of segments. Those of 32 and more are size classes of the allocator.
var sizes = [...]int{32, 48, 64, 96, 128, 192, 256, 320, 384, 512, 640, 768}

// most is how many cells of a segment are filled at most: longer searches cost more than memory.
func most(size int) int { return size - size/8 }

// fit returns the length of a segment for so many keys, with room to grow.
func fit(live int) int {
	want := live + live/3
	for _, s := range sizes {
		if s >= want {
			return s
		}
	}
	return (want + 63) &^ 63
}

// Segments split when they do not fit the longest size, and merge when both together are far below.
const (
	mostLive  = 672 // most(768)
	fewLive   = 224
	maxDepth  = 24 // beyond, which no random hash reaches, segments become longer
	noInstant = math.MaxInt64
	perLine   = 2 // cells of 32 bytes in a cache line
)

var segmentIDs atomic.Uint64

func newSegment(prefix uint64, depth uint8, size int) *segment {
	s := &segment{id: segmentIDs.Add(1), prefix: prefix, depth: depth, cells: make([]cell, size)}
	s.idle.Store(noInstant)
	return s
}

// start returns where the search for h begins. The top bits of h choose the segment, the low ones the place: the first
// cell of a cache line, for the line is what a search pays for.
func (s *segment) start(h uint64) int {
	return int(uint64(uint32(h))*uint64(len(s.cells))>>32) &^ (perLine - 1)
}

// find returns the cell of h, −1 if there is none. What it finds must be checked again once it is locked. What it does
// not find may have been added meanwhile, unless the caller holds mu.
func (s *segment) find(h uint64) int {
	cells := s.cells
	i := s.start(h)
	for range cells {
		switch cells[i].hash.Load() {
		case h:
			return i
		case unused:
			return -1
		}
		if i++; i == len(cells) {
			i = 0
		}
	}
	return -1
}

// vacancy returns a cell to use for h, which is not in the segment; −1: none without exceeding most. mu must be held.
func (s *segment) vacancy(h uint64) int {
	i := s.start(h)
	for range s.cells {
		switch s.cells[i].hash.Load() {
		case freed:
			return i
		case unused:
			if s.filled >= most(len(s.cells)) {
				return -1
			}
			return i
		}
		if i++; i == len(s.cells) {
			i = 0
		}
	}
	return -1
}

// claim makes cell i that of h, without a rule yet, and leaves it locked. mu must be held.
func (s *segment) claim(i int, h uint64, now int64) *cell {
	c := &s.cells[i]
	c.lock()
	if c.hash.Load() == unused {
		s.filled++
	}
	s.live++
	c.at, c.frac, c.units = now, 0, 0
	c.hash.Store(h)
	return c
}

// lower notes that a cell becomes idle at an instant. The cell must be locked.
func (s *segment) lower(at int64) {
	for {
		x := s.idle.Load()
		if at >= x || s.idle.CompareAndSwap(x, at) {
			return
		}
	}
}

// sideOf returns what cell i keeps beside itself, nil if nothing. The cell must be locked.
func (s *segment) sideOf(i int) *side {
	if p := s.side.Load(); p != nil {
		return (*p)[i]
	}
	return nil
}

// makeSide is sideOf, and creates it.
func (s *segment) makeSide(i int) *side {
	p := s.side.Load()
	if p == nil {
		all := make([]*side, len(s.cells))
		if s.side.CompareAndSwap(nil, &all) {
			p = &all
		} else {
			p = s.side.Load()
		}
	}
	if (*p)[i] == nil {
		(*p)[i] = new(side)
	}
	return (*p)[i]
}

// directory maps the top bits of a hash to a segment. A slot is replaced when its segment splits; the directory is when
// it must become longer or shorter.
type directory struct {
	shift uint8 // 64 − depth
	slots []atomic.Pointer[segment]
}

func newDirectory(s *segment) *directory {
	d := &directory{shift: 64, slots: make([]atomic.Pointer[segment], 1)}
	d.slots[0].Store(s)
	return d
}

func (d *directory) of(h uint64) *segment { return d.slots[h>>d.shift].Load() }

func (d *directory) depth() uint8 { return 64 - d.shift }

// resized returns a copy with another depth. A shorter one keeps the first slot of each run.
func (d *directory) resized(depth uint8) *directory {
	n := &directory{shift: 64 - depth, slots: make([]atomic.Pointer[segment], 1<<depth)}
	for i := range n.slots {
		n.slots[i].Store(d.of(uint64(i) << n.shift))
	}
	return n
}
