package memory

import (
	"math"
	"sync"
	"sync/atomic"

	"github.com/spillway-go/spillway/limiter"
)

// rule is a limit in use. Cells name it by its index.
type rule struct {
	*limiter.Rule
	limit limiter.Limit
	index uint32
	quota int
	side  bool // a cell is not enough for its state
	log   bool
	// stateless limits decide without a look at the key.
	stateless bool

	_    [64]byte     // what is above is read by every call
	refs atomic.Int32 // cells that name it; below zero: given up
}

// acquire counts one more cell. false: the rule has been given up; get another.
func (r *rule) acquire() bool {
	if r.refs.Add(1) > 0 {
		return true
	}
	r.refs.Add(-1)
	return false
}

func (r *rule) release() {
	if r != nil {
		r.refs.Add(-1)
	}
}

// same is a == b, in the order in which limits differ and without a call.
func same(a, b *limiter.Limit) bool {
	return a.Rate == b.Rate && a.Period == b.Period && a.Burst == b.Burst && a.Algorithm == b.Algorithm && a.Cells == b.Cells &&
		a.Align.Unit == b.Align.Unit && len(a.Align.Zone) == len(b.Align.Zone) && (a.Align.Zone == "" || a.Align.Zone == b.Align.Zone)
}

// ruleTable gives limits an index and takes it back when no cell names it any more, so limits that come and go need no
// more memory than those in use.
type ruleTable struct {
	list   atomic.Pointer[[]atomic.Pointer[rule]] // by index; 0 is no rule
	recent [64]atomic.Pointer[rule]

	mu      sync.Mutex // what follows, and writers of list
	byLimit map[limiter.Limit]*rule
	free    []uint32
	next    uint32
	gather  int // so many limits are worth a look for unused ones
}

const minGather = 64

func (t *ruleTable) init() {
	list := make([]atomic.Pointer[rule], 8)
	t.list.Store(&list)
	t.byLimit = make(map[limiter.Limit]*rule)
	t.next = 1
	t.gather = minGather
}

// at returns the rule a cell's word names, nil if none. The cell must be locked.
func (t *ruleTable) at(word uint32) *rule { return (*t.list.Load())[word>>ruleShift].Load() }

func (t *ruleTable) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.byLimit)
}

// get returns the rule of a limit, or an error wrapping [limiter.ErrInvalid].
func (t *ruleTable) get(l *limiter.Limit) (*rule, error) {
	x := uint64(l.Rate)*0x9e3779b97f4a7c15 ^ uint64(l.Period)*0xbf58476d1ce4e5b9 ^ uint64(l.Burst)*0x94d049bb133111eb ^ uint64(l.Algorithm)<<58
	slot := &t.recent[x>>58]
	if r := slot.Load(); r != nil && same(&r.limit, l) && r.refs.Load() >= 0 {
		return r, nil
	}
	r, err := t.intern(*l)
	if err == nil {
		slot.Store(r)
	}
	return r, err
}

func (t *ruleTable) intern(l limiter.Limit) (*rule, error) {
	t.mu.Lock()
	r := t.byLimit[l]
	t.mu.Unlock()
	if r != nil {
		return r, nil
	}
	made, err := limiter.NewRule(l)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.byLimit[l]; r != nil {
		return r, nil
	}
	if len(t.byLimit) >= t.gather {
		t.collect()
	}
	r = &rule{
		Rule:  made,
		limit: l,
		quota: l.Quota(),
		log:   l.Algorithm == limiter.SlidingLog,
		side:  l.Algorithm == limiter.SlidingLog || l.Algorithm == limiter.SlidingWindow && l.Cells > 1,

		stateless: l == limiter.Unlimited || l == limiter.DenyAll,
	}
	if n := len(t.free); n > 0 {
		r.index, t.free = t.free[n-1], t.free[:n-1]
	} else {
		r.index = t.next
		t.next++
	}
	list := *t.list.Load()
	if int(r.index) == len(list) {
		longer := make([]atomic.Pointer[rule], 2*len(list))
		for i := range list {
			longer[i].Store(list[i].Load())
		}
		list = longer
		t.list.Store(&longer)
	}
	list[r.index].Store(r)
	t.byLimit[l] = r
	return r, nil
}

// collect gives up the rules no cell names. Who has got one and not yet acquired it gets another.
func (t *ruleTable) collect() {
	list := *t.list.Load()
	for l, r := range t.byLimit {
		if r.refs.CompareAndSwap(0, math.MinInt32/2) {
			delete(t.byLimit, l)
			list[r.index].Store(nil)
			t.free = append(t.free, r.index)
		}
	}
	t.gather = max(minGather, 2*len(t.byLimit))
}
