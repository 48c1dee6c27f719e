package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	_ "time/tzdata" // zones of documents, also where the machine knows none

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/adaptive"
	"github.com/spillway-go/spillway/middleware"
)

// instant reads what -at and -zone say.
func instant(at, zone string) (time.Time, error) {
	if at == "" {
		if zone != "" {
			return time.Time{}, fmt.Errorf("%w: -zone is for -at", errUsage)
		}
		return time.Time{}, nil
	}
	in := time.Local
	if zone != "" {
		var err error
		if in, err = time.LoadLocation(zone); err != nil {
			return time.Time{}, fmt.Errorf("%w: -zone: %w", errUsage, err)
		}
	}
	if at == "now" {
		return time.Now().In(in).Truncate(time.Second), nil
	}
	if t, err := time.Parse(time.RFC3339, at); err == nil {
		if zone != "" {
			t = t.In(in)
		}
		return t, nil
	}
	for _, layout := range []string{time.DateTime, "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, at, in); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%w: -at: want a time such as 2026-10-01T09:30:00+08:00, \"2026-10-01 09:30\" or now, but got %q", errUsage, at)
}

// effective is the limit of a policy at an instant, and why it is that.
type effective struct {
	Stage  string `json:"stage"`
	Policy string `json:"policy"`
	Limit  string `json:"limit"`
	Why    string `json:"why"`
}

// limitsAt tells what the limits of all policies are at an instant.
func limitsAt(doc *config.Document, cfg middleware.Config, at time.Time) []effective {
	all := []effective{} // a list, even of nothing
	for _, k := range inStages(doc) {
		p, built := &doc.Policies[k], &cfg.Policies[k]
		e := effective{Stage: cmp.Or(p.Stage, middleware.StageEdge), Policy: p.Name, Limit: limitOf(p)}
		var why []string
		nominal, _ := built.Limit.(limiter.Limit)
		for _, a := range built.Adjust {
			if s, ok := a.(limiter.Explainer); ok {
				l, text := s.Explain(at, nominal)
				e.Limit = withBounds(p, l.String())
				if why = append(why, text); p.Plans != nil || p.Overrides != nil {
					why = append(why, likewise(s, at, nominal))
				}
			}
		}
		if p.Adaptive != nil {
			why = append(why, "adaptive: each process moves it by what it bears")
		}
		e.Why = cmp.Or(strings.Join(slices.DeleteFunc(why, func(s string) bool { return s == "" }), "; "), "as written")
		all = append(all, e)
	}
	return all
}

// likewise tells what a schedule does to limits of plans and overrides.
func likewise(s limiter.Adjuster, at time.Time, nominal limiter.Limit) string {
	other := limiter.PerHour(999_983) // that nobody has
	switch moved := s.Adjust(at, other); {
	case moved == other:
		return ""
	case moved == s.Adjust(at, nominal):
		return "also in the place of plans and overrides"
	}
	return "those of plans and overrides likewise"
}

// explainAt prints them.
func explainAt(w io.Writer, all []effective, at time.Time) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(w, "\nat %s\n", at.Format("2006-01-02 15:04:05 -07:00, Monday"))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "STAGE\tPOLICY\tLIMIT\tWHY")
	for _, e := range all {
		fmt.Fprintln(t, strings.Join([]string{e.Stage, e.Policy, e.Limit, e.Why}, "\t"))
	}
	_ = t.Flush()
}

// scheduleOf lists the rules of a schedule.
func scheduleOf(p *config.Policy) (list []string) {
	for _, r := range p.Schedule {
		text := r.When
		if r.Zone != "" {
			text += " in " + r.Zone
		}
		if r.Scale != nil {
			text += fmt.Sprintf(" × %v", float64(*r.Scale))
		} else {
			text += ": " + string(r.Limit)
		}
		list = append(list, text)
	}
	return list
}

// movesBy tells between what a policy is moved by what a process bears, "" if it is not.
func movesBy(p *config.Policy) string {
	a := p.Adaptive
	if a == nil {
		return ""
	}
	text := "adaptive up to " + string(cmp.Or(a.Max, p.Limit))
	if a.Min != "" {
		text = "adaptive " + string(a.Min) + " to " + string(cmp.Or(a.Max, p.Limit))
	}
	if a.Target != adaptive.Rate.String() {
		text += " in flight"
	}
	return text
}
