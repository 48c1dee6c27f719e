package config

import (
	"errors"
	"fmt"
	"log/slog"
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
		b.bad(trustPath(te.Field), InvalidValue, "%q: %s", te.Value, te.Want)
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
		b.add(true, path, id, "", "%s", w)
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

// split returns the errors that were joined.
func split(err error) []error {
	if j, ok := err.(interface{ Unwrap() []error }); ok {
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
	"Messages": "messages",
}

// tryGuard asks a guard that is thrown away what it thinks of cfg.
func (b *builder) tryGuard(cfg middleware.Config) {
	cfg.Observer, cfg.Logger = nil, slog.New(slog.DiscardHandler)
	_, err := middleware.New(cfg)
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
			}
		} else if m := policyNamed.FindStringSubmatch(message); m != nil {
			k := slices.IndexFunc(b.doc.Policies, func(p Policy) bool { return p.Name == m[1] })
			path = fmt.Sprintf("policies[%d]", max(k, 0))
		} else if strings.HasPrefix(message, "middleware: Exempt") {
			path = "exempt"
		} else if strings.HasPrefix(message, "middleware: Response") {
			path = "response"
		}
		b.bad(path, InvalidPolicy, "%s", strings.TrimPrefix(message, "middleware: "))
	}
}
