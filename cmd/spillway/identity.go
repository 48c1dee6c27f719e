package main

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/middleware"
)

// part is one kind=value of a caller.
type part struct {
	kind, value string
	raw         string // as it was typed
}

// partsOf reads KEY. A value that no key could hold as it is was not copied from one: it is spelled as keys spell it.
func partsOf(text string) (parts []part, err error) {
	for piece := range strings.SplitSeq(text, "|") {
		kind, value, ok := strings.Cut(piece, "=")
		raw := value
		if !ok || kind == "" || value == "" {
			return nil, fmt.Errorf("%q is no key: want kind=value, or several with | between", text)
		}
		if !spelled.MatchString(value) {
			encoded, err := keyfunc.Encode(kind, value)
			if err != nil {
				return nil, err
			}
			_, value, _ = strings.Cut(encoded, "=")
		}
		parts = append(parts, part{kind, value, raw})
	}
	return parts, nil
}

// spelled is a value as it stands in keys: plain, or a digest.
var spelled = regexp.MustCompile(`^(?:(?:[A-Za-z0-9._~:/-]|%[0-9A-F]{2}){1,128}|[#$][A-Za-z0-9_-]+)$`)

// identityFor returns the key of a policy for a caller, or why it has none.
func identityFor(p middleware.Policy, document *config.Document, deps config.Deps, policy int, trust keyfunc.Trust, parts []part) (identity, why string) {
	doc := &document.Policies[policy]
	kinds, err := keyfunc.Kinds(p.Key)
	if err != nil {
		return "", "has a key that cannot be told: " + err.Error()
	}
	if len(parts) != max(len(doc.Key), 1) {
		return "", "counts by " + strings.Join(doc.Key, " and ")
	}
	// In the order of the policy, whatever that of KEY.
	parts = slices.Clone(parts)
	for _, x := range parts {
		if !slices.Contains(kinds, x.kind) {
			return "", "counts by " + strings.Join(doc.Key, " and ")
		}
	}
	slices.SortStableFunc(parts, func(a, b part) int { return slices.Index(kinds, a.kind) - slices.Index(kinds, b.kind) })
	texts := make([]string, len(parts))
	for k, x := range parts {
		switch {
		case doc.Keyed(deps, x.kind) && !strings.HasPrefix(x.raw, "$"):
			digest, err := config.KeyPart(document, deps, policy, x.kind, x.raw)
			if err != nil {
				return "", "has keys that cannot be told: " + err.Error()
			}
			texts[k] = digest
			continue
		case x.kind == "ip":
			x.value = network(x.value, doc.Key, trust)
		}
		texts[k] = x.kind + "=" + x.value
	}
	return strings.Join(texts, "|"), ""
}

var ipWord = regexp.MustCompile(`\bip(?:/(\d+))?(?:/(\d+))?\b`)

// network spells the network by which a policy counts an address. What is no address is left alone.
func network(value string, key config.List, trust keyfunc.Trust) string {
	addr, err := netip.ParseAddr(value)
	if err != nil {
		return value
	}
	if m := ipWord.FindStringSubmatch(strings.Join(key, " ")); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			trust.IPv6Prefix = n
		}
		if n, err := strconv.Atoi(m[2]); err == nil {
			trust.IPv4Prefix = n
		}
	}
	c, err := keyfunc.NewClientIP(trust)
	if err != nil {
		return value
	}
	if p := c.Network(addr); !p.IsSingleIP() {
		return p.String()
	} else if p.IsValid() {
		return p.Addr().String()
	}
	return value
}
