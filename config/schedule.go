package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/adaptive"
)

// Rule is one line of a schedule, as [adaptive.Rule] has it.
type Rule struct {
	When  string  `yaml:"when" rules:"required" about:"days, times or both: Mon-Fri 09:00-18:00, 22:00-02:00, 2026-11-11 00:00-02:00, holiday,Sun; a date, or a range 2026-10-01..2026-10-07"`
	Zone  string  `yaml:"zone" about:"IANA name of the zone of when, such as Asia/Shanghai; default UTC"`
	Scale *Number `yaml:"scale" about:"multiplies rate and burst of the limit, plans and overrides included: 1.5"`
	Limit Limit   `yaml:"limit" about:"or the limit then, also in the place of plans and overrides"`
}

// Calendar is the days of a schedule that are not as usual: dates, and ranges of dates with both ends.
type Calendar struct {
	Holidays []string `yaml:"holidays" rules:"len=1000" about:"days that count as Sundays, or, where a rule names holiday, as days of their own"`
	Workdays []string `yaml:"workdays" rules:"len=1000" about:"days that count as weekdays, such as those that make up for a holiday"`
}

// schedule returns what moves the limit by the calendar, nil for nothing. own is the limit of the policy, if it has one.
func (b *builder) schedule(at string, p *Policy, own limiter.Limit) limiter.Adjuster {
	calendar := adaptive.Calendar{Holidays: value(p.Calendar).Holidays, Workdays: value(p.Calendar).Workdays}
	ok := b.calendar(at+".calendar", calendar)
	if len(p.Schedule) == 0 {
		if p.Calendar != nil {
			b.add(true, at+".calendar", NoEffect, "Say in schedule what changes by it.", "a calendar is for a schedule, and there is none")
		}
		return nil
	}
	if b.tooManyRules(at, p) {
		return nil
	}
	rules := make([]adaptive.Rule, len(p.Schedule))
	for k := range p.Schedule {
		var fine bool
		if rules[k], fine = b.rule(fmt.Sprintf("%s.schedule[%d]", at, k), &p.Schedule[k], own, len(calendar.Holidays) > 0); !fine {
			ok = false
		}
	}
	if !ok || own == (limiter.Limit{}) { // without a limit, which is a finding already
		return nil
	}
	s, err := adaptive.NewSchedule(rules, calendar)
	if err != nil { // never: each rule has been tried
		b.bad(at+".schedule", InvalidValue, "%v", err)
		return nil
	}
	return s
}

// rule reads one rule and tells what is wrong with it.
func (b *builder) rule(at string, r *Rule, own limiter.Limit, holidays bool) (out adaptive.Rule, ok bool) {
	out, ok = adaptive.Rule{When: r.When, Zone: r.Zone, Scale: float64(value(r.Scale))}, true
	switch {
	case r.Scale != nil && r.Limit != "":
		ok = false
		b.bad(at+".limit", Conflict, "limit and scale cannot both stand")
	case r.Scale == nil && r.Limit == "":
		ok = false
		b.add(false, at, MissingField, "Write scale: 1.5 or limit: 600/m; limit: deny_all stops everything.", "scale or limit is required")
	case r.Limit != "":
		out.Limit, ok = b.another(at+".limit", r.Limit, own)
	}
	_, err := adaptive.NewSchedule([]adaptive.Rule{{When: r.When, Zone: r.Zone, Scale: 1}}, adaptive.Calendar{})
	for _, e := range split(err) {
		ok = false
		_, message, _ := strings.Cut(e.Error(), "rule 1: ")
		field, message, _ := strings.Cut(message, ": ")
		b.bad(at+"."+strings.ToLower(field), InvalidValue, "%s", message)
	}
	if err == nil && !holidays && strings.Contains(strings.ToLower(r.When), "holiday") {
		b.add(true, at+".when", NoEffect, "List them in calendar: {holidays: [2026-10-01..2026-10-07]}.", "no holidays are known")
	}
	return out, ok
}

// calendar tells which of its entries are no dates.
func (b *builder) calendar(at string, c adaptive.Calendar) (ok bool) {
	holidays := b.dates(at+".holidays", c.Holidays, func(one []string) adaptive.Calendar { return adaptive.Calendar{Holidays: one} })
	workdays := b.dates(at+".workdays", c.Workdays, func(one []string) adaptive.Calendar { return adaptive.Calendar{Workdays: one} })
	return holidays && workdays
}

// dates is calendar for one of its lists. One that stands in several policies by alias is told of once.
func (b *builder) dates(at string, entries []string, calendar func(one []string) adaptive.Calendar) (ok bool) {
	ok = true
	for k := range entries {
		err := calendar(entries[k : k+1]).Validate()
		if err == nil {
			continue
		}
		path := fmt.Sprintf("%s[%d]", at, k)
		if ok && b.toldAt(path) { // and so are those after it
			return false
		}
		ok = false
		_, message, _ := strings.Cut(err.Error(), "[0]: ")
		b.bad(path, InvalidValue, "%s", message)
	}
	return ok
}

// toldAt reports whether something wrong was told of the same entry under another path: what is within an alias stands where
// its anchor does.
func (b *builder) toldAt(path string) bool {
	p := b.doc.source.at(path)
	return p.line > 0 && slices.ContainsFunc(b.found, func(f Finding) bool {
		return f.Line == p.line && f.Column == p.column && f.ID == InvalidValue
	})
}
