package config

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
)

// mode checks where a policy counts, and tells once of a mode that the application has no limiter for.
func (b *builder) mode(at string, p *Policy) {
	mode, has := p.Mode, b.deps.Central != nil
	switch mode {
	case "":
		mode = "central"
	case "local":
		has = b.deps.Local != nil
	case "leased":
		if has = b.deps.Leased != nil; b.where.Redis == nil {
			b.add(false, at+".mode", Conflict, "Name a store on Redis.", "leases are taken from Redis, and the store is in memory")
		}
	}
	if p.Mode != "" && p.Limit == "" && p.Adaptive == nil {
		b.add(true, at+".mode", NoEffect, "Leave it out.", "mode says where a limit is counted, and the policy has none")
	}
	if p.Sync != nil && mode != "leased" {
		b.bad(at+".sync", Conflict, "sync belongs to mode leased")
	}
	if !has && !b.missing[mode] {
		if b.missing == nil {
			b.missing = map[string]bool{}
		}
		b.missing[mode] = true
		b.bad(at+".mode", NotAvailable, "this application has no limiter for mode %s", mode)
	}
}

// standIn is a limiter for the time until the real ones are made. It can everything and is asked nothing.
type standIn struct{ limiter.Limiter }

func (standIn) AllowAll(context.Context, time.Time, []limiter.Take) (bool, error) { return false, nil }
func (standIn) Refund(context.Context, time.Time, *limiter.Take) error            { return nil }

// localStandIn is one that is in this process.
type localStandIn struct{ standIn }

func (localStandIn) Local() bool { return true }

func (b *builder) withStandIns(cfg middleware.Config) middleware.Config {
	cfg.Limiter, cfg.Policies = standIn{}, slices.Clone(cfg.Policies)
	for k := range cfg.Policies {
		if b.doc.Policies[k].Mode == "local" {
			cfg.Policies[k].Limiter = localStandIn{}
		}
	}
	return cfg
}

// limiters makes the limiters of all policies.
func (b *builder) limiters(cfg *middleware.Config) {
	alone := b.where // what fails closed is not decided by a substitute
	alone.Fallback = nil
	central := b.limiter(b.where, b.deps.Central)
	strict, local := b.limiter(alone, b.deps.Central), b.limiter(b.where, b.deps.Local)
	for k := range cfg.Policies {
		p := &cfg.Policies[k]
		switch {
		case b.doc.Policies[k].Mode == "local":
			p.Limiter = local()
		case b.doc.Policies[k].Mode == "leased":
			from := b.where
			if p.OnStoreError == middleware.FailClosed {
				from = alone
			}
			every := time.Duration(value(b.doc.Policies[k].Sync))
			p.Limiter = b.limiter(from, func(s Store) (limiter.Limiter, error) { return b.deps.Leased(s, every) })()
		case p.OnStoreError == middleware.FailClosed && b.where.Fallback != nil:
			p.Limiter = strict()
		default:
			cfg.Limiter = central()
		}
	}
}

// limiter returns what makes a limiter, once and only if a policy needs it.
func (b *builder) limiter(store Store, make func(Store) (limiter.Limiter, error)) func() limiter.Limiter {
	return sync.OnceValue(func() limiter.Limiter {
		l, err := make(store)
		if err == nil && l == nil {
			err = errors.New("the application has made no limiter")
		}
		if err != nil {
			id := InvalidValue
			if errors.Is(err, ErrNeedsRestart) {
				id = NeedsRestart
			}
			b.bad("store", id, "%v", err)
		}
		return l
	})
}

// ErrNeedsRestart is the error of a constructor in [Deps] whose Store cannot change while serving.
var ErrNeedsRestart = errors.New("config: the store cannot change while serving: restart to apply")

// store checks what is said of the store.
func (b *builder) store() Store {
	if b.doc.Store == nil {
		return Store{}
	}
	s := *b.doc.Store
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
		} else if strings.HasPrefix(r.URL, "${") {
			b.bad("store.redis.url", InvalidValue, "want ${env:NAME} and nothing behind it")
		}
		s.Redis = &r
		if s.Prefix == "" {
			b.add(true, "store", NoPrefix, "Set prefix to the name of the application.", "keys on Redis begin with the names of policies: another application with such a policy would share its counters")
		}
	}
	if s.Memory != nil {
		given := map[string]bool{
			"prefix": s.Prefix != "", "timeout": s.Timeout != nil, "deny_cache": s.DenyCache != nil, "fallback": s.Fallback != nil,
			"caller_clock": s.CallerClock, "no_sharing": s.NoSharing,
		}
		for _, name := range slices.Sorted(maps.Keys(given)) {
			if given[name] {
				b.add(true, "store."+name, NoEffect, "", "%s is for a store on Redis", name)
			}
		}
	}
	return s
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
	d := b.doc
	b.keys = keyParser{registered: b.deps.Keys, noSecret: d.KeySecret == "" && d.KeySecretFile == ""}
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
	case strings.HasPrefix(secret, "${"):
		b.bad(path, InvalidValue, "want ${env:NAME} and nothing behind it")
		return
	case secret == "":
		return
	}
	if len(secret) < minSecret {
		b.bad(path, InvalidValue, "the secret has %d bytes: %d or more are needed", len(secret), minSecret)
		return
	}
	b.keys.secret = []byte(secret)
	b.secrets.remember(secret)
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
