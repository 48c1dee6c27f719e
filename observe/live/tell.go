package live

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
)

// What the sampler makes of what it finds, in words.

const (
	// openFor is how long an outage is told of in which requests passed undecided: as long as charts show it.
	openFor = 15 * time.Minute
	none    = -1 // no bound
	again   = -2 // the limit once more
)

// promise is the bound of what may pass above the limit, and what it is made of: docs/guarantees.md has them in one line each.
func (p *policy) promise(now time.Time, is counts) (bound float64, text string) {
	v := &p.shown
	via := func(k limiter.Via) bool { return is.via[k] > v.over0.via[k] }
	switch {
	case !v.listed:
		return none, "The page does not watch the guard of this policy, so what is promised is not known."
	case v.seen.Limit == (limiter.Limit{}) && (v.seen.InFlightOf > 0 || v.seen.Adaptive != nil):
		return 0, "A bound on requests in flight in this process: exact."
	case v.seen.Undecided && v.seen.OnStoreError == middleware.FailOpen, !v.open.IsZero() && now.Sub(v.open) < openFor:
		return none, "The store could not be asked, and requests passed uncounted (fail open): no bound."
	case v.seen.Limiter != "memory" && is.via == v.over0.via:
		return 0, "Nothing has been decided since measuring began: what is promised is known by where that is."
	case via(limiter.ViaFallback):
		return again, "While the store was away a share of the limit in this process decided: at most the limit once more."
	case via(limiter.ViaLease):
		return max(v.over.bound, float64(p.leases.lateBound.Load())/1000),
			"Units are leased before they pass, by all processes together: at most what the rate brings in the slowest decision."
	case via(limiter.ViaStore) || via(limiter.ViaDenyCache):
		return v.over.bound, "Counted in the shared store, and a request passes when the reply is here: at most what the rate brings in the slowest decision."
	}
	return 0, "Counted in this process: nothing above the limit. Other processes have counts of their own."
}

// describe says what a policy is.
func (p *policy) describe(order int, is counts, promise string) about {
	v := &p.shown
	o := &v.seen
	a := about{
		ID: p.id, Order: order, Name: p.name, Stage: o.Stage, Shadow: o.Shadow, Limiter: clip(o.Limiter), Planned: o.Planned,
		Closed: o.OnStoreError == middleware.FailClosed, Undecided: o.Undecided, FlightOf: o.InFlightOf, Promise: promise, Since: v.since.Unix(),
	}
	if o.Limit != (limiter.Limit{}) {
		a.Limit = limitText(o.Limit)
	}
	if why := p.unmeasured(is); why != "" {
		a.Promise += " Not measured: " + why + "."
	}
	if o.Effective != o.Limit {
		a.Effective = limitText(o.Effective)
	}
	for _, why := range o.Why {
		a.Why = append(a.Why, clip(why))
	}
	for via, n := range is.via {
		if n > 0 {
			a.Via = append(a.Via, limiter.Via(via).String())
		}
	}
	for k, r := range reasons {
		if p.rejected[k].Load() > 0 {
			a.Reasons = append(a.Reasons, r)
		}
	}
	if l, reason, told := p.adapted.last(); told {
		a.Adaptive = limitText(l) + ": " + reasonText(reason)
	} else if o.Adaptive != nil && v.flightOf < limiter.MaxRate {
		a.Adaptive = strconv.Itoa(v.flightOf) + " in flight"
	}
	if p.leases.told.Load() {
		a.Leases = fmt.Sprintf("%d held, %d units; at most %.2f units late, of %.2f", p.leases.held.Load(), p.leases.units.Load(),
			float64(p.leases.late.Load())/1000, float64(p.leases.lateBound.Load())/1000)
	}
	return a
}

// unmeasured says why nothing is measured; "": it is.
func (p *policy) unmeasured(is counts) string {
	v := &p.shown
	l := &v.seen.Limit
	switch {
	case v.seen.Refunds:
		return "refunds. What is given back may pass again"
	case v.several && is.via[limiter.ViaMemory] > v.over0.via[limiter.ViaMemory]:
		return "several guards have a policy of this name, and each may have counts of its own"
	case *l == (limiter.Limit{}) || measurable(l):
		return ""
	case *l == limiter.Unlimited || *l == limiter.DenyAll:
		return "it counts nothing"
	case l.Align != (limiter.Align{}):
		return "its windows are those of a calendar"
	}
	return "its period is no multiple of 10 ms"
}

// limitText is the limit as policies write it. A bound on requests in flight has no period.
func limitText(l limiter.Limit) string {
	if l.Burst > 0 && l == (limiter.Limit{Burst: l.Burst}) {
		return strconv.Itoa(l.Burst) + " in flight"
	}
	return l.String()
}

// fixed is how adaptive controllers begin the reasons for which the fixed limit is in force.
const fixed = "fallback_"

func reasonText(reason string) string {
	if cause, is := strings.CutPrefix(reason, fixed); is {
		return "the fixed limit is in force (" + cause + ")"
	}
	return reason
}

// askStores brings the stores up to date, and returns the latency of all together in ms.
func (s *sampler) askStores(elapsed float64) (both [2]float64) {
	l := &s.page.limiters
	rows := []storeRow{}
	slowest := calls{}
	for name, x := range l.stores.Range {
		v := s.stores[name.(string)]
		if v == nil {
			v = &storeView{}
			s.stores[name.(string)] = v
		}
		c := x.(*store).since(&v.was, &v.failed)
		slowest.p50, slowest.p99 = max(slowest.p50, c.p50), max(slowest.p99, c.p99)
		r := storeRow{
			Name: name.(string), Kind: "store", Calls: tenth(float64(c.n) / elapsed), Failed: tenth(float64(c.failed) / elapsed),
			P50: millis(c.p50), P99: millis(c.p99),
		}
		if cause := x.(*store).cause.Load(); cause != nil {
			r.Cause = *cause
		}
		rows = append(rows, r)
	}
	l.mu.Lock()
	for name, state := range l.breakers {
		k := slices.IndexFunc(rows, func(r storeRow) bool { return r.Name == name })
		if k < 0 {
			rows, k = append(rows, storeRow{Name: name, Kind: "store"}), len(rows)
		}
		rows[k].Breaker = breakerText(state)
	}
	for name, m := range l.memories {
		rows = append(rows, storeRow{Name: name, Kind: "memory", Keys: m.Keys, Shared: m.Overflow})
	}
	l.mu.Unlock()
	slices.SortFunc(rows, func(a, b storeRow) int { return cmp.Or(cmp.Compare(b.Kind, a.Kind), cmp.Compare(a.Name, b.Name)) })
	s.rows = rows

	both = [2]float64{millis(slowest.p50), millis(slowest.p99)}
	if old := s.n - fine; old >= 0 { // of a coarse point the worst
		c := &s.lat[old/ratio%coarse]
		if old%ratio == 0 {
			*c = [2]float64{}
		}
		for k := range c {
			c[k] = max(c[k], s.lat[coarse+s.n%fine][k])
		}
	}
	s.lat[coarse+s.n%fine] = both
	return both
}

func millis(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
}

func breakerText(state uint8) string {
	switch state {
	case limiter.BreakerClosed:
		return "closed"
	case limiter.BreakerHalfOpen:
		return "half-open"
	}
	return "open"
}

// most of a list that is sent.
const (
	mostTexts = 100
	mostNotes = 20
	mostTop   = 10
)

// askStatus brings the document and the whole up to date.
func (s *sampler) askStatus(t *tick) {
	status, said := s.status.last, s.status.said
	r := &s.page.reloads
	r.mu.Lock()
	d := document{Applied: r.applied, Refused: r.refused, Error: r.bad}
	r.mu.Unlock()
	if said {
		d.Source, d.Hash, d.Error = clip(status.Source), clip(status.Hash), short(status.Error)
		if !status.Loaded.IsZero() {
			d.Loaded = status.Loaded.Unix()
		}
		d.Changes, d.Warnings = shorten(status.Changes), shorten(status.Warnings)
	}
	if b := encode(&d); !bytes.Equal(b, s.docIs) {
		s.document, s.docIs = d, b
		t.Document = &d
	}
	is := s.summary(&d)
	if b := encode(&is); !bytes.Equal(b, s.state) {
		s.stateIs, s.state = is, b
		t.State = &is
	}
}

// short bounds a text that may have several lines.
func short(text string) string {
	const most = 4000
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

func shorten(texts []string) []string {
	out := make([]string, 0, min(len(texts), mostTexts+1))
	for k, text := range texts {
		if k == mostTexts {
			return append(out, fmt.Sprintf("and %d more", len(texts)-k))
		}
		out = append(out, short(text))
	}
	return out
}

// summary says in a word how it all is.
func (s *sampler) summary(d *document) state {
	is := state{Word: "ok", Notes: []string{}}
	note := func(word, text string) {
		if is.Word == "ok" {
			is.Word = word
		}
		if len(is.Notes) < mostNotes {
			is.Notes = append(is.Notes, text)
		}
	}
	for _, r := range s.rows {
		if r.Breaker != "" && r.Breaker != "closed" {
			note("away", fmt.Sprintf("The store of %s is away: its breaker is %s, and the fallback decides.", orNameless(r.Name), r.Breaker))
		}
	}
	for _, p := range s.policies {
		switch o := &p.shown.seen; {
		case o.Undecided && o.OnStoreError == middleware.FailClosed:
			note("away", "Policy "+p.name+" cannot decide: its requests are refused (fail closed).")
		case o.Undecided:
			note("away", "Policy "+p.name+" cannot decide: its requests pass uncounted (fail open).")
		}
	}
	if d.Error != "" {
		note("refused", "What the source has now is not in force. The policies before it are.")
	}
	for _, p := range s.policies {
		if _, reason, _ := p.adapted.last(); p.shown.seen.Adaptive != nil && strings.HasPrefix(reason, fixed) {
			note("fixed", "Policy "+p.name+": "+reasonText(reason)+".")
		}
	}
	const at = "15:04:05 MST"
	if since, is := s.overview.stale(s.last); is {
		note("stale", "The guard does not answer since "+since.UTC().Format(at)+", as an adjuster or a controller does not return: limits are shown as they were.")
	}
	if since, is := s.status.stale(s.last); is {
		note("stale", "The function that tells of the document has not returned since "+since.UTC().Format(at)+": the document is shown as it was.")
	}
	if !s.mute.IsZero() && s.last.Sub(s.mute) >= time.Minute {
		note("mute", "The guard does not tell this page of its decisions. Is the page in its Observer?")
	}
	if s.hidden > 0 {
		note("ok", fmt.Sprintf("%d more policies are not shown: %d are the most.", s.hidden, maxPolicies))
	}
	return is
}

func orNameless(name string) string {
	if name == "" {
		return "a limiter without a name"
	}
	return name
}

// askTop brings the keys that are refused most up to date.
func (s *sampler) askTop(t *tick) {
	top := s.page.cfg.Top
	if top == nil {
		return
	}
	rows := []topRow{}
	for _, k := range top.Refused(mostTop) {
		r := topRow{Policy: clip(k.Policy), Key: clip(k.Key), Count: tenth(k.Count), Reason: k.Reason, Last: k.Last.Unix()}
		if k.Shadow {
			r.Reason = "shadow"
		}
		rows = append(rows, r)
	}
	if b := encode(rows); !bytes.Equal(b, s.topIs) {
		s.top, s.topIs = rows, b
		t.Top = &rows
	}
}
