package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/keyfunc"
)

// part is one kind=value of a caller, as it was typed.
type part struct{ kind, value string }

// partsOf reads KEY. A kind is written as in keys, x_api_key, or as in documents, header:X-Api-Key.
func partsOf(text string) (parts []part, err error) {
	for piece := range strings.SplitSeq(text, "|") {
		kind, value, ok := strings.Cut(piece, "=")
		if !ok || kind == "" || value == "" {
			return nil, fmt.Errorf("%q is no key: want kind=value, or several with | between; that of key: global is all=-", text)
		}
		if _, name, ok := strings.Cut(kind, ":"); ok { // as documents name it
			kind = name
		}
		parts = append(parts, part{keyfunc.KindOf(kind), value})
	}
	return parts, nil
}

// callers knows how the policies of a document call a caller.
type callers struct {
	document *config.Document
	deps     config.Deps
}

// identity returns the key of a policy for a caller, whose parts may be in any order, or why it has none. Each element of
// the policy's key wants one part of a kind that it makes.
func (c *callers) identity(policy int, parts []part) (identity, why string) {
	key := c.document.Policies[policy].Key
	if len(key) == 0 { // of stage manual: the application hands over its own
		if len(parts) != 1 || parts[0].kind != "key" {
			return "", "counts by a key of the application, key=…"
		}
		return spell(parts[0]), ""
	}
	elements := make([]element, len(key))
	for k := range key {
		elements[k] = c.element(policy, key[k])
	}
	if len(parts) != len(key) {
		return "", "counts by " + strings.Join(key, " and ")
	}
	order := arrange(elements, parts, make([]bool, len(parts)))
	if order == nil {
		return "", "counts by " + strings.Join(key, " and ")
	}
	texts := make([]string, len(order))
	for k, n := range order {
		text, err := elements[k].part(parts[n])
		if err != nil {
			return "", fmt.Sprintf("has no key for %s=%s: %v", parts[n].kind, parts[n].value, err)
		}
		texts[k] = text
	}
	return strings.Join(texts, "|"), ""
}

// element is one of a policy's key, seen as a policy that has no other.
type element struct {
	alone config.Document
	deps  config.Deps
}

func (c *callers) element(policy int, text string) element {
	e := element{*c.document, c.deps}
	p := c.document.Policies[policy]
	p.Key = config.List{text}
	e.alone.Policies = []config.Policy{p}
	return e
}

// makes reports whether the element makes parts of a kind.
func (e *element) makes(kind string) bool {
	sample := "-"
	if kind == "ip" {
		sample = "192.0.2.1"
	}
	_, err := config.KeyPart(&e.alone, e.deps, 0, kind, sample)
	return err == nil
}

// part spells one. A digest and what could stand in a key as it is were copied from one.
func (e *element) part(x part) (string, error) {
	keyed := e.alone.Policies[0].Keyed(e.deps, x.kind)
	switch {
	case keyed && digest.MatchString(x.value), !keyed && x.kind != "ip" && spelled.MatchString(x.value):
		return x.kind + "=" + x.value, nil
	}
	return config.KeyPart(&e.alone, e.deps, 0, x.kind, x.value)
}

// arrange returns for each element the part that is its own, nil if there is no such order. Parts of one kind stay in theirs.
func arrange(elements []element, parts []part, taken []bool) []int {
	if len(elements) == 0 {
		return []int{}
	}
	for n := range parts {
		if taken[n] || !elements[0].makes(parts[n].kind) {
			continue
		}
		taken[n] = true
		if rest := arrange(elements[1:], parts, taken); rest != nil {
			return append([]int{n}, rest...)
		}
		taken[n] = false
	}
	return nil
}

// spelled is a value as it stands in keys: plain, or the hash of a long one. digest is one of hmac(…).
var (
	spelled = regexp.MustCompile(`^(?:(?:[A-Za-z0-9._~:/-]|%[0-9A-F]{2}){1,128}|#[A-Za-z0-9_-]+)$`)
	digest  = regexp.MustCompile(`^\$[A-Za-z0-9_-]+$`)
)

// spell writes a part as keys do.
func spell(x part) string {
	if spelled.MatchString(x.value) {
		return x.kind + "=" + x.value
	}
	text, err := keyfunc.Encode(x.kind, x.value)
	if err != nil {
		return x.kind + "=" + x.value
	}
	return text
}
