package degrade

import (
	"net/http"
	"strings"
	"time"

	"github.com/spillway-go/spillway/keyfunc"
)

type Directives = directives

var (
	ParseDirectives = parseDirectives
	DeltaSeconds    = deltaSeconds
	VaryNames       = varyNames
	Variant         = variant
	MatchesTag      = matchesTag
	InitialAge      = initialAge
	Lifetime        = lifetime
	Recordable      = recordable
)

func (d *directives) Forbids() bool { return d.forbids() }
func (d *directives) Bad() bool     { return d.bad }
func (d *directives) Public() bool  { return d.public }
func (d *directives) NoStore() bool { return d.noStore }
func (d *directives) NoCache() bool { return d.noCache }
func (d *directives) Private() bool { return d.private }
func (d *directives) Stale() bool   { return !d.revalidate }

func (d *directives) Numbers() [4]int64 {
	return [4]int64{d.maxAge, d.staleIfError, d.minFresh, d.maxStale}
}

func (d *directives) Accepts(p *Page, now time.Time) bool { return d.accepts(p, now) }

func (p *Page) AgeAt(now time.Time) time.Duration   { return p.age(now) }
func (p *Page) TTLAt(now time.Time) time.Duration   { return p.ttl(now) }
func (p *Page) StaleAt(now time.Time) time.Duration { return p.stale(now) }

func (p *Pages) Lives(page *Page, now time.Time, cause Cause) bool { return p.lives(page, now, cause) }

// Address is the preimage of the key of the partition, and of what is shared.
func (p *Pages) Address(r *http.Request, policy string, route string, key ...string) (private, shared string) {
	req := new(keyfunc.Request)
	req.Reset(r, routed(route), nil)
	a := p.addressOf(nil, req, policy, strings.Join(key, "|"))
	return string(a.key), string(a.key[:a.common])
}

type routed string

func (r routed) Route() string            { return string(r) }
func (r routed) Param(string) string      { return "" }
func (r routed) Value(string) (any, bool) { return nil, false }

// Store is where the pages are.
func (p *Pages) Store() Store { return p.store.Load().Store }

func (c *cached) Pages() *Pages { return c.pages }

// HasCuts reports whether there is room for when what was written to.
func (p *Pages) HasCuts() bool { return p.store.Load().cuts.Load() != nil }

// StoreKeys are the keys of a [MemoryStore].
func StoreKeys(s Store) (keys []string) {
	m := s.(*MemoryStore)
	for i := range m.shards {
		for key := range m.shards[i].entries {
			keys = append(keys, key)
		}
	}
	return keys
}
