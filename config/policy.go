package config

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-go/spillway/keyfunc"
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
	if stages := []string{middleware.StageEdge, middleware.StageIdentity, middleware.StageManual}; p.Stage != "" && !slices.Contains(stages, p.Stage) && nearest(p.Stage, stages) != "" {
		b.add(true, at+".stage", NoEffect, meant(p.Stage, stages), "%q is a stage of your own: it has no effect unless the application mounts it", p.Stage)
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
	elements, ok := b.key(at, p, &out)
	b.limits(at, p, &out, elements, ok)
	b.moves(at, p, &out)
	return out
}

// keyWrong tells what is wrong with an element of a key.
func (b *builder) keyWrong(path string, err error) {
	var ke *keyError
	if errors.As(err, &ke) {
		b.add(false, path, ke.id, ke.suggestion, "%s", ke.message)
	}
}

// key builds the key of a policy, and warns where the client alone chooses it. false: some of it is not known.
func (b *builder) key(at string, p *Policy, out *middleware.Policy) (elements []keyExpr, ok bool) {
	if len(p.Key) == 0 {
		if p.Stage != middleware.StageManual {
			b.add(false, at, MissingField, "Say by whom to count, such as key: ip.", "the field \"key\" is required")
		}
		return nil, p.Stage == middleware.StageManual
	}
	var funcs []keyfunc.Func
	chosen, seen, ok := true, make(map[string]bool), true
	for k, text := range p.Key {
		path := fmt.Sprintf("%s.key[%d]", at, k)
		e, err := b.keys.parse(text)
		if err != nil {
			ok = false
			b.keyWrong(path, err)
			continue
		}
		for _, kind := range e.kinds {
			if seen[kind.name] {
				ok = false
				b.bad(path, Conflict, "the kind %q is in the key already", kind.name)
			}
		}
		for _, kind := range e.kinds {
			seen[kind.name] = true
		}
		chosen = chosen && e.chosen
		funcs, elements = append(funcs, e.fn), append(elements, e)
	}
	if !ok {
		return elements, false
	}
	if chosen && (p.Stage == "" || p.Stage == middleware.StageEdge) && !p.Shadow {
		b.add(true, at+".key", ClientChosen, "Add ip, or move the policy behind authentication: stage: identity.", "before authentication the client alone chooses this key: another value is another quota")
	}
	out.Key = funcs[0]
	if len(funcs) > 1 {
		out.Key = keyfunc.Join(funcs...)
	}
	return elements, true
}
