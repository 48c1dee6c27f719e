package config

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/spillway-go/spillway/keyfunc"
)

// What the caches of a document may hold together. Copies live as long as a document does, so one that came over a network
// must not be able to ask for all memory there is.
const (
	maxCaches         = 1_000
	defaultCopies     = 64 << 20 // of one cache, as [degrade.PagesConfig] has it
	defaultCacheBytes = 4 << 30  // of all
)

// caches counts the caches of all policies before one is made.
func (b *builder) caches() {
	count, sum := 0, 0
	for k := range b.doc.Policies {
		for j := range b.doc.Policies[k].Degrade {
			c := b.doc.Policies[k].Degrade[j].Cache
			if c == nil {
				continue
			}
			if count++; count > maxCaches {
				b.noCaches = true
				b.add(false, fmt.Sprintf("policies[%d].degrade[%d].cache", k, j), TooLarge, "Let one policy with a wider match have the cache.", "more than %d caches", maxCaches)
				return
			}
			if c.MaxBytes == 0 {
				sum += defaultCopies
			}
			sum += c.MaxBytes
		}
	}
	most := b.doc.MaxCacheBytes
	if most == 0 {
		most = defaultCacheBytes
	}
	if sum > most && b.deps.Copies == nil { // else copies are wherever the application puts them
		b.noCaches = true
		path := "max_cache_bytes"
		if b.doc.MaxCacheBytes == 0 {
			path = "policies"
		}
		b.add(false, path, Conflict, "Lower max_bytes of the caches, or raise max_cache_bytes.",
			"%d caches may hold %d bytes together, above %d", count, sum, most)
	}
}

// askers are what tells who asks: the fields of requests that a key or a plan of the document reads.
type askers struct {
	headers []string // canonical, sorted
	queries map[string]bool
	cookies map[string]bool
}

// askers finds them in every key of the document, whatever its policy: policies see the same requests, and what one of them
// counts callers by tells callers apart for all.
func (b *builder) askers() (a askers) {
	headers := make(map[string]bool)
	a.queries, a.cookies = make(map[string]bool), make(map[string]bool)
	add := func(source, name string) {
		name = strings.TrimSpace(name)
		switch source {
		case "header":
			if keyfunc.Check(keyfunc.Header(name)) == nil { // else it is a finding
				headers[http.CanonicalHeaderKey(name)] = true
			}
		case "query":
			a.queries[name] = true
		case "cookie":
			a.cookies[name] = true
		}
	}
	from := func(texts ...string) {
		for _, text := range texts {
			for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return strings.ContainsRune("(),", r) }) {
				source, name, _ := strings.Cut(strings.TrimSpace(word), ":")
				add(source, name)
			}
		}
	}
	for _, text := range b.deps.Credentials {
		if source, name, named := strings.Cut(text, ":"); named {
			add(source, name)
		} else {
			add("header", text)
		}
	}
	for k := range b.doc.Policies {
		p := &b.doc.Policies[k]
		from(p.Key...)
		from(value(p.Plans).From)
		for _, h := range p.Degrade {
			from(value(h.Cache).Partition...)
			from(value(h.Shed).By...)
		}
	}
	a.headers = slices.Sorted(maps.Keys(headers))
	return a
}

// credentials are those of a cache with those that the document's keys read.
func (a *askers) credentials(own []string) []string {
	all := slices.Clone(a.headers)
	for _, name := range own {
		if name = http.CanonicalHeaderKey(name); !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// mixes tells where a cache leaves out what callers are told apart by: one would be served what another was. true: nowhere.
func (b *builder) mixes(at string, c *Cache) bool {
	ok := true
	if c.Query != nil {
		for _, name := range slices.Sorted(maps.Keys(b.who.queries)) {
			if !slices.Contains(c.Query, name) {
				ok = false
				b.add(false, at+".query", Conflict, fmt.Sprintf("Add %q, or leave query out.", name), "a key of the document reads query:%s, and copies would not be told apart by it", name)
			}
		}
	}
	for k, name := range c.IgnoreCookies {
		if b.who.cookies[name] {
			ok = false
			b.bad(fmt.Sprintf("%s.ignore_cookies[%d]", at, k), Conflict, "a key of the document reads cookie:%s, and copies would not be told apart by it", name)
		}
	}
	return ok
}
