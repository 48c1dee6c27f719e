package degrade

import (
	"errors"
	"fmt"
	"math/bits"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// ShedConfig says what [Shed] goes by.
type ShedConfig struct {
	// Class tells the class of a request: by its route, by the tier of an authenticated tenant, by a header only if a
	// gateway of yours sets it and removes it from what clients send. nil: [Critical] for all. Where it panics, or returns no
	// class of this package, the request is [Sheddable]: it gains nothing, and is served while there is room. A refusal
	// would make an outage of a mistake in what only ranks.
	Class func(*keyfunc.Request) Class
	// By tells whose place inside of the class a request has; nil: that of the policy's key. A policy that counts all
	// together, as by [keyfunc.Global], needs one, such as keyfunc.First(keyfunc.User(u), keyfunc.IP()): its key is the
	// same for all, who would then be shed together. A request without such a key, and one where By fails or panics, has the
	// lowest place of its class. Whoever can choose an identity can choose a place, but not the class.
	By keyfunc.Func
	// Keep is the share of the quota that only [CriticalPlus] can use, 0 < Keep < 1; 0: 0.2.
	Keep float64
	// Rotate is after how long a caller gets another place in the class, so that it is not for ever the same who are
	// shed: at least a second, sensibly an hour or a day; 0: never. Callers move one by one and not all at once, and the
	// clocks of a fleet need to agree only roughly.
	Rotate time.Duration
}

const defaultKeep = 0.2

// Shed refuses the less important before the quota is spent, so that the more important still find some. Classes share the
// policy's quota, and its bound on requests in flight: CriticalPlus may use all of it, each class below leaves a reserve
// to those above it. Inside of a class the reserve grows with a hash of the caller, the same in every process of a fleet,
// so that under overload some callers are served wholly and others not at all, rather than each a random part of the time.
//
// It is for quotas shared by callers of several classes, of 20 times what a request costs or more: reserves are whole units,
// and of less than 5 times the lowest callers get nothing even while nobody else asks. A quota is shared out only where
// units can be given back, which a LeakyBucket and limiters that are no [limiter.Refunder] cannot.
//
// As a handler it skips: what is shed may get a cached copy from the next one of the chain. Shed has no state, and is safe
// for concurrent use.
func Shed(cfg ShedConfig) Handler {
	h := &shed{cfg: cfg, keep: cfg.Keep}
	if h.keep == 0 {
		h.keep = defaultKeep
	}
	return h
}

type shed struct {
	cfg      ShedConfig
	keep     float64
	panicked atomic.Pointer[any] // by Class or By, not reported yet
}

var (
	_ Handler   = (*shed)(nil)
	_ Moded     = (*shed)(nil)
	_ Validator = (*shed)(nil)
	_ Gate      = (*shed)(nil)
)

func (h *shed) Mode() string { return ModeShed }

func (h *shed) Validate() error {
	var errs []error
	if !(h.keep > 0 && h.keep < 1) { // NaN is neither
		errs = append(errs, fmt.Errorf("degrade: Shed: %w: Keep: %v, want 0 < Keep < 1, or 0 for %v", limiter.ErrInvalid, h.keep, defaultKeep))
	}
	if h.cfg.Rotate < 0 || h.cfg.Rotate > 0 && h.cfg.Rotate < time.Second {
		errs = append(errs, fmt.Errorf("degrade: Shed: %w: Rotate: %v, want at least 1s, or 0 for never", limiter.ErrInvalid, h.cfg.Rotate))
	}
	if h.cfg.By != nil {
		if err := keyfunc.Check(h.cfg.By); err != nil {
			errs = append(errs, fmt.Errorf("degrade: Shed: By: %w", err))
		}
	}
	return errors.Join(errs...)
}

// Degrade skips. A gate has nobody to tell that a callback has panicked, so it is told here, once.
func (h *shed) Degrade(_ http.ResponseWriter, _ *http.Request, d *Denial) Outcome {
	if d.Contain != nil {
		if p := h.panicked.Swap(nil); p != nil {
			d.Contain(*p)
		}
	}
	return Skip
}

// Before reserves what the request's level leaves to others.
func (h *shed) Before(s *Subject) Hint {
	class := h.class(s.Request)
	level := int(class) * placesPerClass
	if class < CriticalPlus { // the others need no place
		level += h.place(s)
	}
	return Hint{Reserve: shedReserve(level, h.keep)}
}

// After: nothing is learned.
func (h *shed) After(*Subject, Verdict) {}

func (h *shed) class(r *keyfunc.Request) (class Class) {
	if h.cfg.Class == nil {
		return Critical
	}
	defer func() {
		if p := recover(); p != nil {
			h.remember(p)
			class = Sheddable
		}
	}()
	if class = h.cfg.Class(r); class > CriticalPlus {
		class = Sheddable
	}
	return class
}

// remember is a function of its own, as panicked is moved to the heap.
func (h *shed) remember(panicked any) { h.panicked.Store(&panicked) }

// place is where in its class a request stands, 0 to 124.
func (h *shed) place(s *Subject) (place int) {
	id := s.Key.ID
	if h.cfg.By != nil {
		defer func() {
			if p := recover(); p != nil {
				h.remember(p)
				place = 0
			}
		}()
		key, err := s.Request.Resolve(h.cfg.By)
		if err != nil {
			return 0
		}
		id = key.In(s.Request.Borrow())
	}
	return placeOf(id, s.Now, h.cfg.Rotate)
}

// placeOf spreads identities evenly over the places of a class. It must be the same in every process and release.
func placeOf(id string, now time.Time, rotate time.Duration) int {
	h := hashIdentity(id)
	if rotate > 0 {
		every := uint64(rotate)
		turn := (uint64(now.UnixNano()) + h%every) / every
		h = spread(h ^ spread(turn))
	}
	place, _ := bits.Mul64(h, placesPerClass)
	return int(place)
}

// hashIdentity is FNV-1a with the text "shed" before id, finished so that the high bits depend on all of it. hash/fnv would
// allocate for each call, and hash/maphash differs from process to process.
func hashIdentity(id string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for _, text := range [...]string{"shed\x00", id} {
		for k := range len(text) {
			h = (h ^ uint64(text[k])) * 0x100000001b3
		}
	}
	return spread(h)
}

// spread is the finalizer of MurmurHash3 for 64 bits.
func spread(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
