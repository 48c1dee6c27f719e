package adaptive

import (
	"errors"
	"fmt"

	"github.com/spillway-go/spillway/limiter"
)

// AIMDOptions are the constants of [AIMDWith]; zero: the stated default.
type AIMDOptions struct {
	Decrease float64 // the hardest cut, as a factor; 0.8. Above 0 and below 1
	Gentle   float64 // the softest cut; 0.95, or Decrease where that is above. Decrease…below 1
	Increase float64 // growth, as a factor; 1.05, and one whole unit at least. Above 1 and up to 2
	Hold     int     // windows without change after a cut, in which it shows whether it helped; 2. −1: none
}

// AIMD cuts by the worst signal and grows slowly. With s the largest of CPU, 90th percentile of the round-trip times, errors
// and queueing delay, each over its threshold:
//
//	s > 1:                        L := min(L, most in flight) · clamp(1/s, 0.8, 0.95), then two windows without a change
//	s ≤ 1 and the limit binding:  L := L + max(1, 0.05·L), times (1−s)/0.3 where s > 0.7
//
// A limit is binding if it refused requests, or 80 % of it were in use. It is the classic law ×0.8/×1.05 without its
// traps: no rounding at which growth stops, no band in which it can only fall, no growth without demand.
// It needs no reading of the processors.
func AIMD(t Thresholds) Law { return newAIMD(t, AIMDOptions{}) }

// AIMDWith is [AIMD] with other constants, or an error wrapping [limiter.ErrInvalid] that names all that are out of range.
func AIMDWith(o AIMDOptions) (MakeLaw, error) {
	o = o.filled()
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("adaptive: %w: "+format, append([]any{limiter.ErrInvalid}, args...)...))
	}
	if !(o.Decrease > 0 && o.Decrease < 1) {
		bad("Decrease %v is outside 0…1", o.Decrease)
	}
	if !(o.Gentle >= o.Decrease && o.Gentle < 1) {
		bad("Gentle %v is outside Decrease…1", o.Gentle)
	}
	if !(o.Increase > 1 && o.Increase <= 2) {
		bad("Increase %v is outside 1…2", o.Increase)
	}
	if o.Hold > 1000 || o.Hold < -1 {
		bad("Hold %d is outside 1…1000; −1 is none", o.Hold)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return func(t Thresholds) Law { return newAIMD(t, o) }, nil
}

func (o AIMDOptions) filled() AIMDOptions {
	if o.Decrease == 0 {
		o.Decrease = 0.8
	}
	if o.Gentle == 0 {
		o.Gentle = max(0.95, o.Decrease)
	}
	if o.Increase == 0 {
		o.Increase = 1.05
	}
	if o.Hold == 0 {
		o.Hold = 2
	}
	return o
}

type aimd struct {
	Thresholds
	AIMDOptions
	wait int // windows to go without a change
}

func newAIMD(t Thresholds, o AIMDOptions) *aimd { return &aimd{Thresholds: t, AIMDOptions: o.filled()} }

func (a *aimd) NeedsCPU() bool { return false }

func (a *aimd) Reset() { a.wait = 0 }

func (a *aimd) Update(cur float64, w Window, cpu Reading) (float64, Reason) {
	s, why := a.severity(cur, &w, cpu)
	if a.wait > 0 {
		a.wait--
		return cur, ReasonHold
	}
	if s > 1+edge {
		a.wait = max(0, a.Hold)
		return inUse(cur, &w) * min(max(1/s, a.Decrease), a.Gentle), why
	}
	if !binding(cur, &w) {
		return cur, ReasonHold
	}
	grow := max(1, (a.Increase-1)*cur)
	if s > 0.7 {
		grow *= max(0, (1-s)/0.3)
	}
	if grow == 0 {
		return cur, ReasonHold
	}
	return cur + grow, ReasonGrow
}
