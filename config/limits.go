package config

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
)

// pick is the limit of a request, false if it has none of its own.
type pick = func(*keyfunc.Request) (limiter.Limit, bool)

// limits builds the limit of a policy, and those of plans and single callers.
func (b *builder) limits(at string, p *Policy, out *middleware.Policy, elements []keyExpr, wholeKey bool) {
	if b.leased = p.Mode == "leased"; p.Limit == "" {
		b.noLimit(at, p)
		return
	}
	l, ok := b.limit(at, p)
	if !ok {
		return
	}
	out.Limit = l
	plan := b.plans(at, p, l)
	var overrides pick
	if wholeKey && p.Overrides != nil {
		overrides = b.overrides(at, p, l, elements)
	}
	switch {
	case overrides != nil && plan != nil:
		out.Plan = func(r *keyfunc.Request) (limiter.Limit, bool) {
			if l, ok := overrides(r); ok {
				return l, true
			}
			return plan(r)
		}
	case overrides != nil:
		out.Plan = overrides
	case plan != nil:
		out.Plan = plan
	}
}

// noLimit tells what a policy without a limit lacks, and what it has in vain.
func (b *builder) noLimit(at string, p *Policy) {
	if p.InFlight == 0 && (p.Adaptive == nil || p.Adaptive.rates()) {
		b.add(false, at, MissingField, "Say how much, such as limit: 600/m.", "limit, in_flight or adaptive is required")
	}
	given := map[string]bool{
		"burst": p.Burst != nil, "algorithm": p.Algorithm != "", "cells": p.Cells != nil, "align": p.Align != nil, "plans": p.Plans != nil, "overrides": p.Overrides != nil,
		"cost": p.Cost != "", "max_delay": p.MaxDelay != nil, "refund": p.Refund != nil, "schedule": p.Schedule != nil,
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if given[name] {
			b.bad(at+"."+name, Conflict, "%s belongs to a limit, and the policy has none", name)
		}
	}
}

// words are what a limit says by itself.
type words []string

func wordsOf(text Limit) words { return strings.Fields(strings.ToLower(string(text))) }

func (w words) say(word string) bool { return slices.Contains(w, word) }

// count tells whether an algorithm is among them. The words unlimited and deny_all are algorithms too.
func (w words) count() bool {
	return w.say("gcra") || slices.ContainsFunc(limiter.Algorithms(), func(a limiter.Algorithm) bool { return w.say(a.String()) }) ||
		w.say(limiter.Unlimited.Algorithm.String()) || w.say(limiter.DenyAll.Algorithm.String())
}

// limit reads the limit of a policy with what stands beside it.
func (b *builder) limit(at string, p *Policy) (limiter.Limit, bool) {
	w, whole, ok := wordsOf(p.Limit), string(p.Limit), true
	beside := func(field string, given, said bool, more ...any) {
		switch {
		case given && said:
			ok = false
			b.bad(at+"."+field, Conflict, "%s stands here and in the limit %q", field, p.Limit)
		case given:
			whole += " " + strings.TrimSpace(fmt.Sprintln(more...))
		}
	}
	beside("algorithm", p.Algorithm != "", w.count(), p.Algorithm)
	beside("burst", p.Burst != nil, w.say("burst"), "burst", value(p.Burst))
	beside("cells", p.Cells != nil, w.say("cells"), "cells", value(p.Cells))
	beside("align", p.Align != nil, w.say("align"), "align", value(p.Align).Unit, value(p.Align).Zone)
	if zone := wordsOf(Limit(value(p.Align).Zone)); len(zone) > 1 || zone.count() || zone.say("burst") || zone.say("cells") || zone.say("align") {
		ok = false
		b.bad(at+".align.zone", InvalidValue, "%q is no zone", p.Align.Zone)
	}
	if !ok {
		return limiter.Limit{}, false
	}
	return b.leasable(at+".limit", whole, p.Mode == "leased")
}

// leasable reads a limit, which has to be a token bucket if it is leased: a window or a queue is no sum of parts.
func (b *builder) leasable(path, text string, leased bool) (limiter.Limit, bool) {
	l, ok := b.parseLimit(path, text)
	if ok && leased && l.Rate > 0 && l.Algorithm != limiter.TokenBucket {
		b.add(false, path, Conflict, "Leave the algorithm out, or the mode.", "%v cannot be leased, only token_bucket", l.Algorithm)
		return l, false
	}
	return l, ok
}

// another reads the limit of a plan or a caller. It is counted like the limit of the policy, unless it says how.
func (b *builder) another(path string, text Limit, own limiter.Limit) (limiter.Limit, bool) {
	w, whole := wordsOf(text), string(text)
	if !w.count() && own.Rate > 0 {
		whole += " " + own.Algorithm.String()
		if own.Cells > 0 && !w.say("cells") {
			whole += fmt.Sprint(" cells ", own.Cells)
		}
		if own.Align.Unit != 0 && !w.say("align") {
			whole += fmt.Sprintf(" align %v %s", own.Align.Unit, own.Align.Zone)
		}
	}
	return b.leasable(path, whole, b.leased)
}

func (b *builder) parseLimit(path, text string) (limiter.Limit, bool) {
	l, err := limiter.ParseLimit(text)
	if err != nil {
		b.bad(path, InvalidValue, "%s", strings.TrimPrefix(err.Error(), limiter.ErrInvalid.Error()+": "))
	}
	return l, err == nil
}

// plans returns what picks a limit by the caller's plan.
func (b *builder) plans(at string, p *Policy, own limiter.Limit) pick {
	if p.Plans == nil {
		return nil
	}
	at += ".plans"
	limits := make(map[string]limiter.Limit)
	for _, name := range slices.Sorted(maps.Keys(p.Plans.Limits)) {
		if l, ok := b.another(at+".limits."+name, p.Plans.Limits[name], own); ok {
			limits[name] = l
		}
	}
	of := b.planOf(at, p.Plans)
	if of == nil {
		return nil
	}
	unknown := own
	if p.Plans.Unknown == "deny" {
		unknown = limiter.DenyAll
	}
	return func(r *keyfunc.Request) (limiter.Limit, bool) {
		if l, ok := limits[of(r)]; ok {
			return l, true
		}
		return unknown, true
	}
}

// planOf returns what tells the plan of a request.
func (b *builder) planOf(at string, p *Plans) func(*keyfunc.Request) string {
	header, ok := strings.CutPrefix(p.From, "header:")
	if !ok {
		if p.Trusted {
			b.add(true, at+".trusted", NoEffect, "", "trusted is for a plan in a header")
		}
		return registered(b, at+".from", p.From, b.deps.Plans, "plan function")
	}
	header = strings.TrimSpace(header)
	if err := keyfunc.Check(keyfunc.Header(header)); err != nil {
		b.bad(at+".from", InvalidValue, "%q is no name of a header", header)
		return nil
	}
	if !p.Trusted {
		b.add(true, at+".from", ClientChosen, "Register a function, or say trusted: true if a gateway of yours sets the header and strips what clients send.", "the client alone chooses the plan")
	}
	header = http.CanonicalHeaderKey(header)
	return func(r *keyfunc.Request) string {
		if values := r.Header[header]; len(values) == 1 { // of two, one was added on the way
			return values[0]
		}
		return ""
	}
}

// callers are the limits of single callers by one element of a key.
type callers struct {
	key    keyfunc.Func
	limits map[string]limiter.Limit // by kind and value as they stand in the store
}

// of returns the limit of the caller of r. It allocates nothing: the key is read where it was made.
func (c *callers) of(r *keyfunc.Request) (limiter.Limit, bool) {
	key, err := r.Resolve(c.key)
	if err != nil {
		return limiter.Limit{}, false
	}
	for part := range strings.SplitSeq(key.In(r.Borrow()), "|") { // of a Join that was registered
		if l, ok := c.limits[part]; ok {
			return l, true
		}
	}
	return limiter.Limit{}, false
}

// overrides returns what picks the limit of single callers, by the elements of the key in their order.
func (b *builder) overrides(at string, p *Policy, own limiter.Limit, elements []keyExpr) pick {
	at += ".overrides"
	var all []callers
	known := make(map[string]bool)
	for _, e := range elements {
		c := callers{key: e.fn, limits: make(map[string]limiter.Limit)}
		for k, one := range e.kinds {
			known[one.name] = true
			if slices.ContainsFunc(e.kinds[:k], one.same) {
				continue
			}
			same := slices.DeleteFunc(slices.Clone(e.kinds), func(other kind) bool { return !one.same(other) })
			b.callers(at+"."+one.name, p.Overrides[one.name], own, same, c.limits)
		}
		if len(c.limits) > 0 {
			all = append(all, c)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(p.Overrides)) {
		if !known[kind] {
			b.add(false, at+"."+kind, UnknownName, suggest(kind, slices.Sorted(maps.Keys(known))), "the key of the policy has no %q", kind)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return func(r *keyfunc.Request) (limiter.Limit, bool) {
		for k := range all {
			if l, ok := all[k].of(r); ok {
				return l, true
			}
		}
		return limiter.Limit{}, false
	}
}

// callers adds the limits of callers of one kind, which an element may count in several ways: first(ip/56, ip/48).
func (b *builder) callers(at string, overrides map[string]Limit, own limiter.Limit, kinds []kind, limits map[string]limiter.Limit) {
	owner := make(map[string]string)
	for _, caller := range slices.Sorted(maps.Keys(overrides)) {
		path := at + "." + caller
		l, ok := b.another(path, overrides[caller], own)
		var problem error
		found := false
		for _, k := range kinds {
			if k.hmac && b.keys.secret == nil {
				found = true // that the secret cannot be read has been told
				continue
			}
			id, err := k.identity(caller, b.keys.secret, b.doc.ClientIP.trust())
			switch other, taken := owner[id]; {
			case err != nil:
				problem = err
				continue
			case taken && other != caller && k.name == "ip":
				b.bad(path, Conflict, "another address of the same network is here already: both are counted as one")
			case ok:
				limits[id] = l
			}
			owner[id], found = caller, true
		}
		if !found && problem != nil {
			b.bad(path, InvalidValue, "%v", problem)
		}
	}
}
