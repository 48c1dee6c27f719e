package response

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// ErrPolicyName is wrapped by the errors for names that no policy may have.
var ErrPolicyName = errors.New("bad policy name")

var (
	policyName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)
	// A bound on requests in flight belongs to a policy and is told as NAME.inflight, which any name may become.
	inFlightName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,72}$`)
	unitName     = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,63}$`)
)

const (
	unitRequests = "requests"            // the default of the draft, never written
	unitInFlight = "concurrent-requests" // registered by the draft
)

// Policy is what responses tell of one policy under one nominal limit. It is immutable and safe for concurrent use:
// build it once and share it. A limit that moves with load keeps the Policy of the nominal one; only what is left moves.
type Policy struct {
	name   string
	quota  int64 // as told, 0…maxInteger
	window int64 // seconds; 0: none is told, and no t either
	period uint64
	rate   uint64 // units per period, times 10⁹: ⌈r·period/rate⌉ is in seconds. 0: no rate is known
	fixed  bool   // units come back at the end of the window and not before
	silent bool   // unlimited: there is nothing to tell
	plain  bool   // counted in requests

	inflight bool // a bound on requests in flight

	// Constant field values, shared between responses. Each slice is full, so that an append to it copies.
	limit  []string // X-RateLimit-Limit
	policy []string // RateLimit-Policy of draft 11
	legacy []string // RateLimit-Policy of drafts 6 and 7; nil without a window, which they require

	state     string // head of a RateLimit member in draft 11: "name";r=
	stateNext string // and after it: "name";a=
	spent     string // the problem document of its spent quota, up to the seconds to wait
}

// NewPolicy returns the Policy of a named limit. The name is 1…64 letters, digits, '_', '.' and '-', beginning with a
// letter or digit; another one is an error wrapping [ErrPolicyName]. Names should be unique without regard to case, and
// begin with a letter. Unit is the qu parameter, "" for requests; "content-bytes" is the other registered one.
//
// The quota told is what one key can have at once ([limiter.Limit.Quota]). The window told is the period for windows
// and the log, the time to fill an empty bucket for the buckets, rounded up to whole seconds and at least 1; of calendar
// windows the length of the unit, with 31 days for a month. [limiter.Unlimited] is never told, [limiter.DenyAll] has
// quota 0 and no window. An invalid limit is an error wrapping [limiter.ErrInvalid].
func NewPolicy(name string, nominal limiter.Limit, unit string) (*Policy, error) {
	var errs []error
	if !policyName.MatchString(name) {
		errs = append(errs, nameError(name, policyName))
	}
	if unit != "" && !unitName.MatchString(unit) {
		errs = append(errs, fmt.Errorf("response: policy %q: unit %q does not match %v", name, unit, unitName))
	}
	if err := nominal.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("response: policy %q: %w", name, err))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	p := newPolicy(name, nominal.Quota(), windowOf(nominal), unit)
	p.fixed = nominal.Algorithm == limiter.FixedWindow
	p.silent = nominal == limiter.Unlimited
	if p.window > 0 && !p.fixed {
		p.period, p.rate = uint64(nominal.Period), uint64(nominal.Rate)*uint64(time.Second)
	}
	return p, nil
}

// NewInFlight returns the Policy of a bound on requests in flight, told without a window and in the unit
// "concurrent-requests". The name is as for [NewPolicy] but may be 73 bytes long, so that any policy name can take
// ".inflight". The bound is 1…10⁹.
func NewInFlight(name string, bound int) (*Policy, error) {
	var errs []error
	if !inFlightName.MatchString(name) {
		errs = append(errs, nameError(name, inFlightName))
	}
	if bound < 1 || bound > limiter.MaxRate {
		errs = append(errs, fmt.Errorf("response: policy %q: bound %d is outside 1…%d", name, bound, limiter.MaxRate))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	p := newPolicy(name, bound, 0, unitInFlight)
	p.inflight = true
	return p, nil
}

func nameError(name string, want *regexp.Regexp) error {
	return fmt.Errorf("response: %w: %q does not match %v", ErrPolicyName, name, want)
}

// Name returns the name of the policy.
func (p *Policy) Name() string { return p.name }

// newPolicy renders the constant texts. It takes any printable name and escapes it; window is in seconds, 0 for none.
func newPolicy(name string, quota int, window int64, unit string) *Policy {
	p := &Policy{
		name:   name,
		quota:  min(int64(quota), maxInteger),
		window: min(window, maxInteger),
		plain:  unit == "" || unit == unitRequests,
		// No structured field: it keeps numbers of more than 15 digits.
		limit: []string{strconv.Itoa(quota)},
	}
	quoted := `"` + strings.NewReplacer(`"`, `\"`, `\`, `\\`).Replace(name) + `"`
	p.state, p.stateNext = quoted+";r=", quoted+";a="

	p.spent = strings.TrimSuffix(string(appendProblem(nil, &Refusal{Policies: []string{name}})), "1}")

	q := strconv.FormatInt(p.quota, 10)
	text := quoted + ";q=" + q
	if !p.plain {
		text += `;qu="` + unit + `"`
	}
	if p.window > 0 {
		w := ";w=" + strconv.FormatInt(p.window, 10)
		text += w
		p.legacy = []string{q + w}
	}
	p.policy = []string{text}
	return p
}

// windowOf returns the seconds in which a whole quota comes back, rounded up, at least 1; 0 if there is no such time.
func windowOf(l limiter.Limit) int64 {
	const day = 24 * 60 * 60
	switch l.Algorithm {
	case limiter.Unlimited.Algorithm, limiter.DenyAll.Algorithm:
		return 0
	case limiter.TokenBucket, limiter.LeakyBucket:
		return max(1, ceilMulDiv(uint64(l.Quota()), uint64(l.Period), uint64(l.Rate)*uint64(time.Second)))
	}
	switch l.Align.Unit {
	case limiter.Day:
		return day
	case limiter.Week:
		return 7 * day
	case limiter.Month:
		return 31 * day // the longest month: a client that spreads the quota over it never exceeds a shorter one by much
	}
	return ceilSeconds(l.Period)
}

// refill returns the seconds in which r units come back at the nominal rate, rounded up.
func (p *Policy) refill(r int64) int64 {
	if p.rate == 0 {
		return p.window
	}
	return ceilMulDiv(uint64(r), p.period, p.rate)
}
