package config

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
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
	// Degrade are handlers of refused requests.
	Degrade map[string]degrade.Handler

	// Central makes the limiter of mode central, Local that of mode local. Each is called at every [Build] that needs it and
	// returns the same limiter for the same Store, so that counters live on; package config/stores has both. An error
	// refuses the document.
	Central func(Store) (limiter.Limiter, error)
	Local   func(Store) (limiter.Limiter, error)

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
		b.tryGuard(cfg)
	}
	if b.found.Err() != nil {
		cfg = middleware.Config{}
	}
	return cfg, b.found.sorted()
}

type builder struct {
	doc   *Document
	deps  Deps
	keys  keyParser
	found Findings
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
		cfg.Response.MaxUnitsPerSecond, cfg.Response.Messages = r.MaxUnitsPerSecond, r.Messages
	}
	if t := d.ClientIP; t != nil {
		cfg.ClientIP = keyfunc.Trust{
			Strategy: keyfunc.Strategy(t.Strategy), Count: t.Count, Header: t.Header, TrustedProxies: t.TrustedProxies, TrustUnix: t.TrustUnix,
			IPv6Prefix: t.IPv6Prefix, IPv4Prefix: t.IPv4Prefix, NAT64Prefixes: t.NAT64Prefixes, OnKeyError: keyfunc.OnKeyError(t.OnKeyError),
			AllowTrustAll: t.AllowTrustAll,
		}
		b.trust(cfg.ClientIP)
	}
	cfg.Exempt = b.match("exempt", d.Exempt)
	b.secret()
	central := b.limiter("central", b.deps.Central)
	local := b.limiter("local", b.deps.Local)
	names := make(map[string]int)
	for k := range d.Policies {
		at := fmt.Sprintf("policies[%d]", k)
		p := b.policy(at, &d.Policies[k])
		if other, twice := names[strings.ToLower(p.Name)]; twice && p.Name != "" {
			b.bad(at+".name", Conflict, "the name %q is taken by policies[%d]", p.Name, other)
		}
		names[strings.ToLower(p.Name)] = k
		switch d.Policies[k].Mode {
		case "local":
			p.Limiter = local(at + ".mode")
		default:
			if c := central(at + ".mode"); cfg.Limiter == nil {
				cfg.Limiter = c
			}
		}
		cfg.Policies = append(cfg.Policies, p)
	}
	return cfg
}

// limiter returns what makes the limiter of a mode, once and only if a policy needs it.
func (b *builder) limiter(mode string, make func(Store) (limiter.Limiter, error)) func(path string) limiter.Limiter {
	var l limiter.Limiter
	asked := false
	return func(path string) limiter.Limiter {
		if asked {
			return l
		}
		asked = true
		if make == nil {
			b.bad(path, NotAvailable, "this application has no limiter for mode %s", mode)
			return nil
		}
		store, ok := b.store()
		if !ok {
			return nil
		}
		var err error
		if l, err = make(store); err != nil {
			id := InvalidValue
			if errors.Is(err, ErrNeedsRestart) {
				id = NeedsRestart
			}
			b.bad("store", id, "%v", err)
		}
		return l
	}
}

// ErrNeedsRestart is the error of a constructor in [Deps] whose Store cannot change while serving.
var ErrNeedsRestart = errors.New("config: the store cannot change while serving: restart to apply")

// store checks what is said of the store.
func (b *builder) store() (Store, bool) {
	if b.doc.Store == nil {
		return Store{}, true
	}
	s := *b.doc.Store
	before := len(b.found.pick(false))
	if (s.Redis == nil) == (s.Memory == nil) {
		b.bad("store", Conflict, "exactly one of redis and memory is needed")
	}
	if s.Redis != nil {
		r := *s.Redis
		if (r.URL == "") == (r.URLFile == "") {
			b.bad("store.redis", Conflict, "exactly one of url and url_file is needed")
		}
		if name, ok := envName(r.URL); ok {
			r.URL = "env:" + name
		}
		s.Redis = &r
		if s.Prefix == "" {
			b.add(true, "store", NoPrefix, "Set prefix to the name of the application.", "keys on Redis begin with the names of policies: another application with such a policy would share its counters")
		}
	}
	if s.Memory != nil {
		for name, given := range map[string]bool{
			"prefix": s.Prefix != "", "timeout": s.Timeout != nil, "deny_cache": s.DenyCache != nil, "fallback": s.Fallback != nil,
			"caller_clock": s.CallerClock, "no_sharing": s.NoSharing,
		} {
			if given {
				b.add(true, "store."+name, NoEffect, "", "%s is for a store on Redis", name)
			}
		}
	}
	return s, len(b.found.pick(false)) == before
}

// Location returns where Redis is, as [github.com/spillway-go/spillway/limiter/redislimit.Open] understands it.
func (r *Redis) Location() string {
	if r.URLFile != "" {
		return "file:" + r.URLFile
	}
	return r.URL
}

var envRef = regexp.MustCompile(`^\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}$`)

func envName(s string) (string, bool) {
	if m := envRef.FindStringSubmatch(s); m != nil {
		return m[1], true
	}
	return "", false
}

const minSecret = 16

// secret reads the secret of hmac.
func (b *builder) secret() {
	b.keys = keyParser{registered: b.deps.Keys, noSecret: "the document has none"}
	d := b.doc
	secret, path := d.KeySecret, "key_secret"
	switch name, isEnv := envName(secret); {
	case d.KeySecret != "" && d.KeySecretFile != "":
		b.bad("key_secret_file", Conflict, "key_secret and key_secret_file cannot both stand")
		return
	case d.KeySecretFile != "":
		path = "key_secret_file"
		text, err := readSmall(d.KeySecretFile)
		if err != nil {
			b.bad(path, Unreadable, "%v", err)
			return
		}
		secret = strings.TrimRight(text, "\r\n")
	case isEnv:
		var ok bool
		if secret, ok = os.LookupEnv(name); !ok {
			b.bad(path, Unreadable, "the variable %s is not set", name)
			return
		}
	case secret == "":
		return
	}
	if len(secret) < minSecret {
		b.bad(path, InvalidValue, "the secret has %d bytes: %d or more are needed", len(secret), minSecret)
		return
	}
	b.keys.secret = []byte(secret)
}

// readSmall reads a file that holds a secret.
func readSmall(name string) (string, error) {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return "", err
	case !info.Mode().IsRegular() || info.Size() > 1<<16:
		return "", fmt.Errorf("%s is no small file", name)
	}
	text, err := os.ReadFile(name)
	return string(text), err
}

// trust tells what is wrong with client_ip where it stands.
func (b *builder) trust(t keyfunc.Trust) {
	c, err := keyfunc.NewClientIP(t)
	for _, e := range split(err) {
		var te *keyfunc.TrustError
		if !errors.As(e, &te) {
			b.bad("client_ip", InvalidValue, "%v", e)
			continue
		}
		name, index, _ := strings.Cut(te.Field, "[")
		path := "client_ip." + map[string]string{
			"Strategy": "strategy", "Count": "count", "Header": "header", "TrustedProxies": "trusted_proxies", "IPv6Prefix": "ipv6_prefix",
			"IPv4Prefix": "ipv4_prefix", "NAT64Prefixes": "nat64_prefixes", "OnKeyError": "on_key_error",
		}[name]
		if index != "" {
			path += "[" + index
		}
		b.bad(path, InvalidValue, "%q: %s", te.Value, te.Want)
	}
	if c != nil && err == nil {
		for _, w := range c.Warnings() {
			b.add(true, "client_ip", NoEffect, "", "%s", w)
		}
	}
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
