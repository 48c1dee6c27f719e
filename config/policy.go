package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
)

// policy builds one policy.
func (b *builder) policy(at string, p *Policy) middleware.Policy {
	out := middleware.Policy{
		Name: p.Name, Stage: p.Stage, Match: b.match(at+".match", p.Match), Exempt: b.match(at+".exempt", p.Exempt), InFlight: p.InFlight,
		Unit: p.Unit, Shadow: p.Shadow, Headers: p.Headers, Messages: p.Messages, MaxDelay: time.Duration(value(p.MaxDelay)),
		StoreKey:  registered(b, at+".store_key", p.StoreKey, b.deps.StoreKeys, "function of store keys"),
		Cost:      registered(b, at+".cost", p.Cost, b.deps.Costs, "cost"),
		Partition: registered(b, at+".partition", p.Partition, b.deps.Partitions, "partition"),
		Degrade:   b.degrade(at, p),
	}
	if p.Name != "" && !keyfunc.ValidName(p.Name) {
		b.bad(at+".name", InvalidValue, "%q: want 1 to 64 letters, digits, '_', '.' and '-', beginning with a letter or digit", p.Name)
	}
	if p.OnNoKey == "skip" {
		out.OnNoKey = middleware.SkipPolicy
	}
	if p.OnStoreError == "fail_closed" {
		out.OnStoreError = middleware.FailClosed
	}
	if len(p.Refund) > 0 {
		refund := slices.Clone(p.Refund)
		out.Refund = func(status int) bool {
			return slices.ContainsFunc(refund, func(s Statuses) bool { return s.From <= status && status <= s.To })
		}
	}
	elements := b.key(at, p, &out)
	b.limits(at, p, &out, elements)
	return out
}

func (b *builder) degrade(at string, p *Policy) degrade.Handler {
	var handlers []degrade.Handler
	for k, name := range p.Degrade {
		if h := registered(b, fmt.Sprintf("%s.degrade[%d]", at, k), name, b.deps.Degrade, "degrade handler"); h != nil {
			handlers = append(handlers, h)
		}
	}
	switch len(handlers) {
	case 0:
		return nil
	case 1:
		return handlers[0]
	}
	return degrade.First(handlers...)
}

// key builds the key of a policy, and warns where the client alone chooses it.
func (b *builder) key(at string, p *Policy, out *middleware.Policy) (elements []keyExpr) {
	if len(p.Key) == 0 {
		if p.Stage != middleware.StageManual {
			b.add(false, at, MissingField, "Say by whom to count, such as key: ip.", "the field \"key\" is required")
		}
		return nil
	}
	var funcs []keyfunc.Func
	chosen, seen, ok := true, make(map[string]bool), true
	for k, text := range p.Key {
		path := at + ".key"
		if element := fmt.Sprintf("%s[%d]", path, k); b.doc.source.at(element) != b.doc.source.at(path) {
			path = element
		}
		e, err := b.keys.parse(text)
		if err != nil {
			ok = false
			var ke *keyError
			if errors.As(err, &ke) {
				b.add(false, path, ke.id, ke.suggestion, "%s", ke.message)
			}
			continue
		}
		for _, kind := range e.kinds {
			if seen[kind] {
				ok = false
				b.bad(path, Conflict, "the kind %q is there twice", kind)
			}
			seen[kind] = true
		}
		chosen = chosen && e.chosen
		funcs, elements = append(funcs, e.fn), append(elements, e)
	}
	if !ok {
		return elements
	}
	if chosen && (p.Stage == "" || p.Stage == middleware.StageEdge) && !p.Shadow {
		b.add(true, at+".key", ClientChosen, "Add ip, or move the policy behind authentication: stage: identity.", "before authentication the client alone chooses this key: another value is another quota")
	}
	out.Key = funcs[0]
	if len(funcs) > 1 {
		out.Key = keyfunc.Join(funcs...)
	}
	return elements
}

// limits builds the limit of a policy, and those of plans and single callers.
func (b *builder) limits(at string, p *Policy, out *middleware.Policy, elements []keyExpr) {
	if p.Limit == "" {
		if p.InFlight == 0 {
			b.add(false, at, MissingField, "Say how much, such as limit: 600/m.", "limit or in_flight is required")
		}
		for name, given := range map[string]bool{
			"burst": p.Burst != nil, "algorithm": p.Algorithm != "", "cells": p.Cells != nil, "align": p.Align != nil, "plans": p.Plans != nil, "overrides": p.Overrides != nil,
			"cost": p.Cost != "", "max_delay": p.MaxDelay != nil, "refund": p.Refund != nil,
		} {
			if given {
				b.bad(at+"."+name, Conflict, "%s belongs to a limit, and the policy has none", name)
			}
		}
		return
	}
	l, ok := b.limit(at+".limit", at, p, p.Limit, true)
	if !ok {
		return
	}
	out.Limit = l
	plan := b.plans(at, p, l)
	overrides := b.overrides(at, p, elements)
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

// limit reads a limit with what the policy says beside it: algorithm, cells and align hold for all limits of the policy that
// do not say otherwise, burst for its own alone.
func (b *builder) limit(path, at string, p *Policy, text Limit, own bool) (limiter.Limit, bool) {
	words := strings.Fields(strings.ToLower(string(text)))
	says := func(word string) bool { return slices.Contains(words, word) }
	counts := slices.ContainsFunc(words, func(w string) bool {
		return w == "gcra" || slices.ContainsFunc(limiter.Algorithms(), func(a limiter.Algorithm) bool { return a.String() == w })
	})
	whole := string(text)
	ok := true
	also := func(field string, given, said bool, more string) {
		switch {
		case !given:
		case said && own:
			ok = false
			b.bad(at+"."+field, Conflict, "%s stands here and in the limit %q", field, text)
		case !said:
			whole += " " + more
		}
	}
	if !says("unlimited") && !says("deny_all") || own {
		also("algorithm", p.Algorithm != "", counts, p.Algorithm)
		also("burst", p.Burst != nil && own, says("burst"), fmt.Sprint("burst ", value(p.Burst)))
		also("cells", p.Cells != nil && (own || !counts), says("cells"), fmt.Sprint("cells ", value(p.Cells)))
		if a := p.Align; own || !counts {
			also("align", a != nil, says("align"), strings.TrimSpace("align "+value(a).Unit+" "+value(a).Zone))
		}
	}
	if !ok {
		return limiter.Limit{}, false
	}
	l, err := limiter.ParseLimit(whole)
	if err != nil {
		suggestion := ""
		if len(words) > 0 && strings.HasPrefix(words[0], "0") {
			suggestion = "Say deny_all if nothing is to pass."
		}
		b.add(false, path, InvalidValue, suggestion, "%s", strings.TrimPrefix(err.Error(), limiter.ErrInvalid.Error()+": "))
		return limiter.Limit{}, false
	}
	return l, true
}

// plans returns what picks a limit by the caller's plan.
func (b *builder) plans(at string, p *Policy, byDefault limiter.Limit) func(*keyfunc.Request) (limiter.Limit, bool) {
	if p.Plans == nil {
		return nil
	}
	at += ".plans"
	limits := make(map[string]limiter.Limit)
	for _, name := range slices.Sorted(maps.Keys(p.Plans.Limits)) {
		if l, ok := b.limit(at+".limits."+name, strings.TrimSuffix(at, ".plans"), p, p.Plans.Limits[name], false); ok {
			limits[name] = l
		}
	}
	var of func(*keyfunc.Request) string
	if header, ok := strings.CutPrefix(p.Plans.From, "header:"); ok {
		if !p.Plans.Trusted {
			b.add(true, at+".from", ClientChosen, "Register a function, or say trusted: true if a gateway of yours sets the header and strips what clients send.", "the client alone chooses the plan")
		}
		of = func(r *keyfunc.Request) string { return r.Header.Get(header) }
	} else if of = registered(b, at+".from", p.Plans.From, b.deps.Plans, "plan function"); of == nil {
		return nil
	}
	if p.Plans.Unknown == "deny" {
		byDefault = limiter.DenyAll
	}
	return func(r *keyfunc.Request) (limiter.Limit, bool) {
		if l, ok := limits[of(r)]; ok {
			return l, true
		}
		return byDefault, true
	}
}

// overrides returns what picks the limit of single callers.
func (b *builder) overrides(at string, p *Policy, elements []keyExpr) func(*keyfunc.Request) (limiter.Limit, bool) {
	if len(p.Overrides) == 0 {
		return nil
	}
	type of struct {
		key    keyfunc.Func
		limits map[string]limiter.Limit // by the key as it stands in the store
	}
	var all []of
	for k := range elements { // in the order of the key
		e := &elements[k]
		limits := make(map[string]limiter.Limit)
		for _, kind := range e.kinds {
			for _, caller := range slices.Sorted(maps.Keys(p.Overrides[kind])) {
				path := at + ".overrides." + kind + "." + caller
				l, ok := b.limit(path, at, p, p.Overrides[kind][caller], false)
				if !ok {
					continue
				}
				id, err := e.identity(kind, caller, b.keys.secret)
				if err != nil {
					b.bad(path, InvalidValue, "%v", err)
					continue
				}
				limits[id] = l
			}
		}
		if len(limits) > 0 {
			all = append(all, of{e.fn, limits})
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(p.Overrides)) {
		if !slices.ContainsFunc(elements, func(e keyExpr) bool { return slices.Contains(e.kinds, kind) }) {
			var kinds []string
			for _, e := range elements {
				kinds = append(kinds, e.kinds...)
			}
			b.add(false, at+".overrides."+kind, UnknownName, suggest(kind, kinds), "the key of the policy has no %q", kind)
		}
	}
	return func(r *keyfunc.Request) (limiter.Limit, bool) {
		for _, o := range all {
			if k, err := r.Resolve(o.key); err == nil {
				if l, ok := o.limits[k.String()]; ok {
					return l, true
				}
			}
		}
		return limiter.Limit{}, false
	}
}
