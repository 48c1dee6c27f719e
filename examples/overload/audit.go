package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// result is one guard's, seen from both sides.
type result struct {
	guard  string
	length time.Duration // of a phase
	seen   []tally
	stood  standing // at the end
}

// audit names every promise that was not kept.
func (r *result) audit() (err error) {
	broken := func(is bool, format string, args ...any) {
		if is {
			err = errors.Join(err, fmt.Errorf(r.guard+": "+format, args...))
		}
	}
	broken(r.stood.InFlight != 0 || r.stood.Held != 0, "%d requests and %d places are left over", r.stood.InFlight, r.stood.Held)
	bound := map[string]int{guardFixed: fixed, guardAdaptive: most}[r.guard]
	for n := range phases {
		t, in := &r.seen[n], &r.stood.Phases[n]
		broken(t.offered != t.good+t.late+t.refused+t.gaveUp+t.failed, "%s: %d requests have another number of answers", phases[n].name, t.offered)
		broken(t.failed > 0, "%s: %d requests failed", phases[n].name, t.failed)
		broken(bound > 0 && in.Most > bound, "%s: %d were in flight, at most %d should", phases[n].name, in.Most, bound)
		broken(bound == 0 && t.refused > 0, "%s: %d were refused", phases[n].name, t.refused)
		broken(in.Highest > 0 && (in.Least < least || in.Highest > most),
			"%s: the limit was %d to %d, outside %d to %d", phases[n].name, in.Least, in.Highest, least, most)
	}
	if r.guard != guardAdaptive {
		return err
	}
	for _, n := range []int{after, again} {
		t := &r.seen[n]
		broken(20*t.refusedLately > t.offeredLately, "%s: the limit has not come back: %d of the last %d were refused",
			phases[n].name, t.refusedLately, t.offeredLately)
	}
	low, high := r.stood.Phases[overload].Least, r.stood.Phases[slow].Highest
	broken(high <= low, "the limit was %d in the overload, and %d at most when the dependency was slow", low, high)
	return err
}

// compare names what the adaptive guard is worse in than none.
func compare(none, moves *result) (err error) {
	for _, n := range []int{overload, after} {
		if have, had := moves.seen[n].good, none.seen[n].good; have < had {
			err = errors.Join(err, fmt.Errorf("%s: %d answers in time, and %d without a guard", phases[n].name, have, had))
		}
	}
	return err
}

// table prints results as Markdown.
func table(w io.Writer, all []*result) {
	fmt.Fprintln(w, "| a second | guard | asked | in time | late, given up | refused | processor | in flight at most | limit |")
	fmt.Fprintln(w, "|---|---|--:|--:|--:|--:|--:|--:|--:|")
	for n, p := range phases {
		for _, r := range all {
			t, in := &r.seen[n], &r.stood.Phases[n]
			a := func(count int) string { return fmt.Sprintf("%.0f", float64(count)/r.length.Seconds()) }
			limit := "none"
			switch r.guard {
			case guardFixed:
				limit = fmt.Sprint(fixed)
			case guardAdaptive:
				limit = fmt.Sprintf("%d…%d", in.Least, in.Highest)
			}
			fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %.0f %% | %d | %s |\n", p.name, r.guard,
				a(t.offered), a(t.good), a(t.late+t.gaveUp), a(t.refused), 100*in.cpu(), in.Most, limit)
		}
	}
	for _, r := range all {
		for n := range phases {
			if why := r.stood.Phases[n].Reasons; len(why) > 0 {
				fmt.Fprintf(w, "\n%s, %s: %s", r.guard, phases[n].name, strings.Join(why, ", "))
			}
		}
	}
	fmt.Fprintln(w)
}
