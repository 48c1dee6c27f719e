package config

import (
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/adaptive"
	"github.com/spillway-go/spillway/middleware"
	"github.com/spillway-go/spillway/response"
)

// Deps is what a document names and cannot say itself: who a caller is, only the application knows.
type Deps struct {
	// Keys are key functions by name, such as user and tenant.
	Keys map[string]keyfunc.Func
	// Plans say on which plan a request is, "" if on none.
	Plans map[string]func(*keyfunc.Request) string
	// Predicates are the if of a match.
	Predicates map[string]func(*keyfunc.Request) bool
	// Costs are units of a request.
	Costs map[string]func(*keyfunc.Request) int
	// StoreKeys spell keys in the store.
	StoreKeys map[string]func(limiter.Key) string
	// Partitions make the pk parameter.
	Partitions map[string]func(keyfunc.Key) []byte
	// Degrade are further handlers of refused requests. The names of those that a document has by itself, such as cache,
	// are not looked up.
	Degrade map[string]degrade.Handler
	// Classes say how important a request is, for shed.
	Classes map[string]func(*keyfunc.Request) degrade.Class
	// Files are the files that contents of static may name, as os.DirFS has them; nil: none. They are read by [Build].
	Files fs.FS
	// Flushes says that what is behind flushes whatever it writes, as a proxy does: every cache then records what is flushed.
	Flushes bool
	// Copies makes the store of recorded responses of a policy; nil: memory. It is called at every Build, and the store of
	// a policy lives on where its settings of cache stay.
	Copies func(policy string) degrade.Store
	// Credentials are where registered functions read who a caller is: a request field such as X-Tenant, or as in keys
	// header:X-Tenant, query:tenant and cookie:tenant. No cache of the document serves one caller what it recorded for
	// another; what keys name in the document itself is known.
	Credentials []string

	// Central makes the limiter of mode central, Local that of mode local. Each is called at every [Build] that needs it and
	// returns the same limiter for the same Store, so that counters live on; package config/stores has both. An error
	// refuses the document.
	Central func(Store) (limiter.Limiter, error)
	Local   func(Store) (limiter.Limiter, error)
	// Leased makes the limiter of mode leased, one for each sync that policies name; zero: the default.
	Leased func(store Store, sync time.Duration) (limiter.Limiter, error)

	// Adaptive completes the settings of a controller that is about to be made with what no document says: a CPUSource, a Law
	// of your own, another Observer; nil: nothing. Name is that of the policy.
	Adaptive func(*adaptive.Config)
	// Controllers are those of adaptive policies, of one guard: with them, controllers live on from one [Build] to the next,
	// and are closed by whoever has made them. nil: each Build makes its own, for whoever calls it to close; a [Follower]
	// has its own, which it closes.
	Controllers *Controllers

	// Body replaces the body of refusals; see [response.Options].
	Body func(*http.Request, response.Refusal) (contentType string, body []byte)
	// Observer and Logger are those of the guard.
	Observer limiter.Observer
	Logger   *slog.Logger
}

// Build turns a document into the Config of a guard. It finds everything that is wrong with the document, and the error of
// the findings says whether there is a Config. It reads the files and variables that hold secrets, and does no other I/O.
func Build(doc *Document, deps Deps) (middleware.Config, Findings) {
	b := &builder{doc: doc, deps: deps}
	cfg := b.config()
	if b.found.Err() == nil {
		if g := b.tryGuard(b.withStandIns(cfg)); g != nil {
			b.waitingPages(g)
		}
	}
	// Limiters are made last: one that is made for a document which is then refused would be there to stay.
	if b.found.Err() == nil {
		b.limiters(&cfg)
	}
	if b.found.Err() == nil {
		b.tryGuard(cfg)
	}
	if b.found.Err() != nil { // what was made has not begun to run
		cfg = middleware.Config{}
	} else {
		deps.Controllers.add(b.made)
	}
	for k := range b.found {
		b.found[k].Message = b.secrets.mask(b.found[k].Message)
	}
	return cfg, b.found.finish(doc.source)
}

type builder struct {
	doc     *Document
	deps    Deps
	keys    keyParser
	found   Findings
	where   Store  // of counters
	leased  bool   // the policy at hand is
	who     askers // what tells callers apart
	statics map[string]degrade.Handler
	files   *meteredFiles
	made    []*controlled // by this document
	// adaptives counts adaptive policies.
	adaptives int
	// noCaches: there are too many, and that has been told.
	noCaches bool
	missing  map[string]bool // modes that the application does not have, once told
	secrets  source          // those that are not in the document
}

func (b *builder) add(warning bool, path, id, suggestion, format string, args ...any) {
	p := b.doc.source.at(path)
	b.found = append(b.found, Finding{
		ID: id, Warning: warning, Path: path, Line: p.line, Column: p.column, Text: b.doc.source.text(p.line),
		Message: fmt.Sprintf(format, args...), Suggestion: suggestion,
	})
}

func (b *builder) bad(path, id, format string, args ...any) {
	b.add(false, path, id, "", format, args...)
}

// trust returns whom to believe.
func (c *ClientIP) trust() keyfunc.Trust {
	if c == nil {
		return keyfunc.Trust{}
	}
	return keyfunc.Trust{
		Strategy: keyfunc.Strategy(c.Strategy), Count: c.Count, Header: c.Header, TrustedProxies: c.TrustedProxies, TrustUnix: c.TrustUnix,
		IPv6Prefix: c.IPv6Prefix, IPv4Prefix: c.IPv4Prefix, NAT64Prefixes: c.NAT64Prefixes, OnKeyError: keyfunc.OnKeyError(c.OnKeyError),
		AllowTrustAll: c.AllowTrustAll,
	}
}

func (b *builder) config() middleware.Config {
	d := b.doc
	cfg := middleware.Config{
		Observer: b.deps.Observer, Logger: b.deps.Logger, CountPreflights: d.CountPreflights, Response: response.Options{Headers: d.Headers, Body: b.deps.Body},
	}
	if d.MaxWaiting != nil {
		cfg.MaxWaiting = int(*d.MaxWaiting)
	}
	if r := d.Response; r != nil {
		cfg.Response.ResetDelta, cfg.Response.RetryAfterDate, cfg.Response.NoExpose = r.ResetDelta, r.RetryAfterDate, r.NoExpose
		cfg.Response.MaxRetryAfter, cfg.Response.Jitter = time.Duration(value(r.MaxRetryAfter)), time.Duration(value(r.Jitter))
		cfg.Response.MaxUnitsPerSecond, cfg.Response.Messages, cfg.Response.DegradedField = r.MaxUnitsPerSecond, r.Messages, r.DegradedField
	}
	cfg.ClientIP = d.ClientIP.trust()
	b.trust(cfg.ClientIP)
	cfg.Exempt = b.match("exempt", d.Exempt)
	b.secret()
	b.where = b.store()
	b.who = b.askers()
	b.caches()
	names := make(map[string]int)
	for k := range d.Policies {
		at := fmt.Sprintf("policies[%d]", k)
		p := b.policy(at, &d.Policies[k])
		if other, twice := names[strings.ToLower(p.Name)]; twice && p.Name != "" {
			b.bad(at+".name", Conflict, "the name %q is taken by policies[%d]", p.Name, other)
		}
		names[strings.ToLower(p.Name)] = k
		b.mode(at, &d.Policies[k])
		cfg.Policies = append(cfg.Policies, p)
	}
	return cfg
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

func (b *builder) match(path string, m *Match) middleware.Match {
	if m == nil {
		return middleware.Match{}
	}
	return middleware.Match{
		Routes: m.Routes, Hosts: m.Hosts, Methods: m.Methods, CIDRs: m.CIDRs, If: registered(b, path+".if", m.If, b.deps.Predicates, "predicate"),
	}
}

// registered returns what was registered by a name, the zero value for none.
func registered[T any](b *builder, path, name string, all map[string]T, what string) (v T) {
	if name == "" {
		return v
	}
	v, ok := all[name]
	if !ok {
		b.add(false, path, UnknownName, suggest(name, slices.Sorted(maps.Keys(all))), "no %s is registered as %q", what, name)
	}
	return v
}

// probeRequest is a request that nobody has sent.
func probeRequest() *http.Request {
	return &http.Request{
		Method: http.MethodGet, URL: &url.URL{Path: "/"}, RequestURI: "/", Host: "example.com", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, RemoteAddr: "192.0.2.1:1234",
	}
}

// Stages returns the stages of the document in the order in which they are mounted: edge, identity, then others as they
// first appear. manual is not mounted.
func (d *Document) Stages() []string {
	stages := []string{middleware.StageEdge}
	for pass := range 2 {
		for _, p := range d.Policies {
			if p.Stage != "" && p.Stage != middleware.StageManual && (pass == 1 || p.Stage == middleware.StageIdentity) && !slices.Contains(stages, p.Stage) {
				stages = append(stages, p.Stage)
			}
		}
	}
	return stages
}
