package adaptive

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// Rule is one line of a schedule: when, and what the limit is then.
type Rule struct {
	// When is days, times or both, in this order and with a space between: "Mon-Fri 09:00-18:00", "Sat,Sun", "22:00-02:00",
	// "2026-11-11 00:00-02:00", "2026-10-01..2026-10-07", "holiday,Sun 10:00-12:00,14:00-20:00".
	//
	// Days are a list of weekdays (three letters or the whole English word), ranges of them (Fri-Mon goes over the weekend),
	// dates, ranges of dates with both ends, and holiday, a day of the [Calendar]'s Holidays. Without days it is every day.
	// Times are a list of stretches, whose end is not part of them; 24:00 is the end of a day. One that ends before it
	// begins goes on over midnight, and belongs to the day on which it began: "Fri 22:00-02:00" lasts into Saturday. Without
	// times it is the whole day. Case does not matter.
	//
	// Times are those of the clock on the wall: where it is put forward, what would be in the gap does not happen, and what comes
	// twice when it is put back is in force twice.
	When string
	// Zone is the IANA name of the zone of When, such as "Asia/Shanghai"; empty: UTC. "Local" is refused, for machines
	// differ in it. A zone that the machine does not know is an error: applications that run where there is no time zone
	// database import time/tzdata.
	Zone string
	// Scale multiplies the rate and the burst of the nominal limit, above 0 and up to 1000; whole units, at least 1. Exactly one of
	// Scale and Limit is set.
	Scale float64
	// Limit takes the place of the nominal limit. With another algorithm than the policy's it is counted apart.
	Limit limiter.Limit
}

// MaxScale is the largest Scale of a [Rule].
const MaxScale = 1000.0

// MaxRules is how many rules a [Schedule] may have. To look into as many takes a quarter of a millisecond (AMD EPYC), once for each
// minute at which one of them begins or ends.
const MaxRules = 5_000

// Schedule is a [limiter.Adjuster] that moves a limit by the calendar. The first rule that is on decides; if none is, the
// limit stays as it is. Make one with [NewSchedule]. Safe for concurrent use.
type Schedule struct {
	rules    []scheduled
	calendar calendar
	table    *table
}

type scheduled struct {
	Rule
	when when
	zone *time.Location
}

var _ limiter.Adjuster = (*Schedule)(nil)

// NewSchedule returns a schedule of rules, or an error wrapping [limiter.ErrInvalid] that names everything wrong with them and
// with the calendar. It copies what it is given.
func NewSchedule(rules []Rule, c Calendar) (*Schedule, error) {
	s := new(Schedule)
	var errs []error
	bad := func(k int, format string, args ...any) {
		errs = append(errs, fmt.Errorf("adaptive: %w: rule %d: "+format, append([]any{limiter.ErrInvalid, k + 1}, args...)...))
	}
	if len(rules) > MaxRules {
		return nil, fmt.Errorf("adaptive: %w: %d rules are more than %d", limiter.ErrInvalid, len(rules), MaxRules)
	}
	var err error
	if s.calendar, err = c.parse(); err != nil {
		errs = append(errs, err)
	}
	zones := map[string]*time.Location{} // each is read from a file
	for k, r := range rules {
		x := scheduled{Rule: r}
		if x.when, err = parseWhen(r.When); err != nil {
			bad(k, "When: %w", err)
		}
		if zone, known := zones[r.Zone]; known {
			x.zone = zone
		} else if x.zone, err = loadZone(r.Zone); err != nil {
			bad(k, "Zone: %w", err)
		} else {
			zones[r.Zone] = x.zone
		}
		switch hasLimit := r.Limit != (limiter.Limit{}); {
		case hasLimit && r.Scale != 0:
			bad(k, "both Scale and Limit")
		case hasLimit:
			if err := r.Limit.Validate(); err != nil {
				bad(k, "Limit: %w", err)
			}
		case r.Scale == 0:
			bad(k, "neither Scale nor Limit; a Limit of deny_all stops everything")
		case !(r.Scale > 0 && r.Scale <= MaxScale):
			bad(k, "Scale %v is outside 0…%v", r.Scale, MaxScale)
		}
		if x.when.holiday {
			s.calendar.isOwnDay = true
		}
		s.rules = append(s.rules, x)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	s.table = newTable(s.rules, &s.calendar)
	return s, nil
}

// loadZone returns the zone of an IANA name.
func loadZone(name string) (*time.Location, error) {
	if name == "Local" {
		return nil, errors.New(`"Local" differs between machines; name an IANA zone`)
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", shown(name), err)
	}
	return loc, nil
}

// Rules returns a copy of the rules.
func (s *Schedule) Rules() []Rule {
	out := make([]Rule, 0, len(s.rules))
	for _, r := range s.rules {
		out = append(out, r.Rule)
	}
	return out
}

// Adjust returns the limit at an instant. For a valid limit it is a valid one. [limiter.Unlimited] and [limiter.DenyAll] are scaled to
// themselves.
func (s *Schedule) Adjust(now time.Time, nominal limiter.Limit) limiter.Limit {
	if k := s.table.find(now); k >= 0 {
		return s.rules[k].apply(nominal)
	}
	return nominal
}

func (r *scheduled) apply(nominal limiter.Limit) limiter.Limit {
	if r.Scale == 0 {
		return r.Limit
	}
	return scale(nominal, r.Scale)
}

// Explain returns the limit at an instant and why it is that, in words for people.
func (s *Schedule) Explain(at time.Time, nominal limiter.Limit) (limiter.Limit, string) {
	for k := range s.rules {
		r := &s.rules[k]
		t := at.In(r.zone)
		on, ok := r.when.active(t, &s.calendar)
		if !ok {
			continue
		}
		l := r.apply(nominal)
		what := "the limit is " + l.String()
		if r.Scale != 0 {
			what = fmt.Sprintf("%v × %s = %v", nominal, strconv.FormatFloat(r.Scale, 'g', -1, 64), l)
		}
		return l, fmt.Sprintf("rule %d, %q, is on at %s (%v): %s", k+1, r.When, t.Format("2006-01-02 15:04:05 MST"), on, what)
	}
	text := fmt.Sprintf("no rule is on: the limit is %v", nominal)
	for _, p := range s.table.places {
		t := at.In(p.zone)
		text += fmt.Sprintf("; it is %s in %s (%v)", t.Format("15:04:05"), p.zone, s.calendar.day(dateOf(t)))
	}
	return nominal, text
}
