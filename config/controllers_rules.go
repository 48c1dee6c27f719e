package config

import "github.com/spillway-go/spillway/limiter/adaptive"

// maxRules is how many rules all schedules of a document may have together, those of aliases as often as they are named: a
// request of many policies may have to look into all of them at the minute in which one changes.
const maxRules = adaptive.MaxRules

// tooManyRules tells, once, that a policy's schedule is the one with which there are too many rules.
func (b *builder) tooManyRules(at string, p *Policy) bool {
	before := 0
	for k := range b.doc.Policies {
		if &b.doc.Policies[k] == p {
			break
		}
		if before += len(b.doc.Policies[k].Schedule); before > maxRules {
			return true // which has been told
		}
	}
	if before+len(p.Schedule) <= maxRules {
		return false
	}
	b.add(false, at+".schedule", TooLarge, "Let one policy with a wider match follow the calendar, or write fewer, longer stretches.",
		"more than %d rules of schedules, with those of aliases as often as they are named", maxRules)
	return true
}
