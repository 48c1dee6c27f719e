package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/middleware"
)

// trust tells what is wrong with client_ip where it stands.
func (b *builder) trust(t keyfunc.Trust) {
	c, err := keyfunc.NewClientIP(t)
	for _, e := range split(err) {
		var te *keyfunc.TrustError
		if !errors.As(e, &te) {
			b.bad("client_ip", InvalidValue, "%v", e)
			continue
		}
		switch path := trustPath(te.Field); {
		case te.Field == "Count" && t.Count == 0:
			b.add(false, path, MissingField, "Say how many proxies append to the header.", "strategy xff_count needs a count")
		case te.Field == "Header" && t.Header == "":
			b.add(false, path, MissingField, "Say in which header the address is.", "strategy header needs a header")
		case te.Field == "Count" && t.Strategy != keyfunc.XForwardedForCount, te.Field == "Header" && t.Strategy != keyfunc.SingleHeader:
			b.add(false, path, InvalidValue, "Leave it out, or change the strategy.", "the strategy has no %s", strings.ToLower(te.Field))
		default:
			b.bad(path, InvalidValue, "%q: %s", te.Value, inDocument(te.Want))
		}
	}
	if err != nil {
		return
	}
	for _, w := range c.Warnings() {
		path, id := "client_ip", NoEffect
		if field, what, ok := strings.Cut(w, ": "); ok && strings.HasPrefix(field, "TrustedProxies[") {
			path, id, w = trustPath(field), ClientChosen, what
		} else if strings.Contains(w, "pass for anybody") {
			id = ClientChosen
		}
		b.add(true, path, id, "", "%s", inDocument(w))
	}
}

// trustPath returns where a field of a [keyfunc.Trust] stands in a document.
func trustPath(field string) string {
	name, index, list := strings.Cut(field, "[")
	path := "client_ip." + map[string]string{
		"Strategy": "strategy", "Count": "count", "Header": "header", "TrustedProxies": "trusted_proxies", "IPv6Prefix": "ipv6_prefix",
		"IPv4Prefix": "ipv4_prefix", "NAT64Prefixes": "nat64_prefixes", "OnKeyError": "on_key_error",
	}[name]
	if list {
		path += "[" + index
	}
	return path
}

var (
	goNames  = regexp.MustCompile(`\b(?:AllowTrustAll|TrustedProxies|TrustUnix|NAT64Prefixes|IPv[46]Prefix|OnKeyError|OnNoKey|OnStoreError|StoreKey|InFlight|MaxDelay −1|MaxDelay)\b`)
	goNeeded = regexp.MustCompile(` \(no limiter\.\w+\)`)
	spelled  = strings.NewReplacer("NAT64", "NAT64_", "IPv6", "IPv6_", "IPv4", "IPv4_", "MaxDelay −1", "max_delay: off")
	hump     = regexp.MustCompile(`([a-z])([A-Z])`)
)

// inDocument writes the names of settings in Go as they are in a document.
func inDocument(message string) string {
	return goNames.ReplaceAllStringFunc(goNeeded.ReplaceAllString(message, ""), func(name string) string {
		return strings.ToLower(hump.ReplaceAllString(spelled.Replace(name), "${1}_${2}"))
	})
}

// split returns the errors that were joined. One that wraps two, such as a cause and what it means, is one.
func split(err error) []error {
	if j, ok := err.(interface{ Unwrap() []error }); ok && errors.Join(j.Unwrap()...).Error() == err.Error() {
		var all []error
		for _, e := range j.Unwrap() {
			all = append(all, split(e)...)
		}
		return all
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

var policyNamed = regexp.MustCompile(`policy "([^"]+)"`)

// fieldNames are the fields of a document by those of a Policy in Go.
var fieldNames = map[string]string{
	"Name": "name", "Stage": "stage", "Match": "match", "Exempt": "exempt", "Key": "key", "OnNoKey": "on_no_key", "StoreKey": "store_key",
	"Limit": "limit", "Plan": "plans", "InFlight": "in_flight", "Unit": "unit", "Partition": "partition", "Limiter": "mode", "Cost": "cost",
	"MaxDelay": "max_delay", "Refund": "refund", "Degrade": "degrade", "OnStoreError": "on_store_error", "Shadow": "shadow", "Headers": "headers",
	"Messages": "messages", "Adaptive": "adaptive", "Adjust": "schedule",
}

// waitingPages warns of redirects to a page that the policy limits itself: whoever is sent there is refused.
func (b *builder) waitingPages(g *middleware.Guard) {
	for i := range b.doc.Policies {
		p := &b.doc.Policies[i]
		for k := range p.Degrade {
			to := p.Degrade[k].Redirect
			if to == nil || !strings.HasPrefix(to.To, "/") {
				continue
			}
			r := probeRequest()
			target, err := url.Parse(to.To)
			if err != nil {
				continue
			}
			r.URL, r.RequestURI = &url.URL{Path: target.Path, RawPath: target.RawPath, RawQuery: target.RawQuery}, target.RequestURI()
			v, err := g.Stage(p.Stage).Peek(r)
			if err == nil && slices.ContainsFunc(v.Policies, func(s middleware.Standing) bool { return s.Policy == p.Name }) {
				b.add(true, fmt.Sprintf("policies[%d].degrade[%d].redirect.to", i, k), NoEffect, fmt.Sprintf("Exempt it: exempt: {routes: [%q]}.", target.Path),
					"the policy limits %s too: who is sent there is refused there", target.Path)
			}
		}
	}
}

// tryGuard asks a guard that is thrown away what it thinks of cfg.
func (b *builder) tryGuard(cfg middleware.Config) *middleware.Guard {
	cfg.Observer, cfg.Logger = nil, slog.New(slog.DiscardHandler)
	g, err := middleware.New(cfg)
	for _, e := range split(err) {
		path, message := "", e.Error()
		var pe *middleware.PolicyError
		if errors.As(e, &pe) {
			path, message = fmt.Sprintf("policies[%d]", pe.Index), pe.Detail()
			word := message
			if end := strings.IndexAny(word, ": "); end > 0 {
				word = word[:end]
			}
			if name := fieldNames[word]; name != "" {
				path += "." + name
				if message = strings.TrimPrefix(name+message[len(word):], name+": "); name == "degrade" {
					message = inHandler(message)
				}
			}
		} else if m := policyNamed.FindStringSubmatch(message); m != nil {
			k := slices.IndexFunc(b.doc.Policies, func(p Policy) bool { return p.Name == m[1] })
			path = fmt.Sprintf("policies[%d]", max(k, 0))
		} else if strings.HasPrefix(message, "middleware: Exempt") {
			path, message = "exempt", strings.TrimPrefix(message, "middleware: Exempt: ")
		} else if strings.HasPrefix(message, "middleware: Response") {
			path = "response"
		}
		b.bad(path, InvalidPolicy, "%s", inDocument(strings.TrimPrefix(message, "middleware: ")))
	}
	return g
}
