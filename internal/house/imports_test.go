package house_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rule says what the packages of a folder may import beside the standard library: folders of this module, and other
// modules. The first rule that matches a folder counts. Tests may import more.
type rule struct {
	folder  string
	own     []string
	foreign []string
	free    bool // anything
}

const (
	gin      = "github.com/gin-gonic/gin"
	echo     = "github.com/labstack/echo/v4"
	goRedis  = "github.com/redis/go-redis/v9"
	yaml     = "github.com/goccy/go-yaml"
	prom     = "github.com/prometheus"
	internal = "internal/..."
)

var rules = []rule{
	// The words and the keys can be used by anyone: they bring nothing along.
	{folder: "limiter"},
	{folder: "keyfunc", own: []string{"limiter"}},
	// A user's own limiter runs the conformance suite in tests, where testify and rapid do no harm.
	{folder: "limiter/limitertest", own: []string{"limiter", internal}, foreign: []string{"github.com/stretchr/testify", "pgregory.net/rapid"}},
	{folder: "limiter/redislimit", own: []string{"limiter", internal}, foreign: []string{goRedis}},
	{folder: "limiter/redisrate", own: []string{"limiter", internal}, foreign: []string{goRedis, "github.com/go-redis/redis_rate/v10"}},
	// A cold key is decided on Redis by the same code.
	{folder: "limiter/leased", own: []string{"limiter", "limiter/redislimit", internal}, foreign: []string{goRedis}},
	// Memory is the default of what it falls back to; the census of replicas is in Redis.
	{folder: "limiter/fallback", own: []string{"limiter", "limiter/memory", internal}, foreign: []string{goRedis, "github.com/sony/gobreaker/v2"}},
	{folder: "limiter/...", own: []string{"limiter", internal}},
	{folder: "response", own: []string{"limiter", internal}, foreign: []string{"golang.org/x/text"}},
	// Who a recorded response belongs to is a key, and recording must not hide what a writer can do.
	{folder: "degrade", own: []string{"limiter", "keyfunc", internal}, foreign: []string{"github.com/felixge/httpsnoop"}},
	// No store and no framework. httpsnoop wraps writers without hiding what they can do.
	{folder: "middleware", own: []string{"limiter", "keyfunc", "response", "degrade", internal}, foreign: []string{"github.com/felixge/httpsnoop"}},
	// The table of requests that all adapters run: tests alone.
	{folder: "adapters"},
	// An adapter is its framework and the guard, so that adapters cannot drift.
	{folder: "adapters/stdhttp", own: []string{"middleware", "keyfunc", internal}},
	{folder: "adapters/gin", own: []string{"middleware", "keyfunc", internal}, foreign: []string{gin}},
	{folder: "adapters/echo", own: []string{"middleware", "keyfunc", internal}, foreign: []string{echo}},
	// The face.
	{folder: ".", own: []string{"middleware", "limiter/memory"}},
	// A document is built by constructors that the application hands in, so no store is needed to read one.
	{folder: "config", own: []string{"limiter", "limiter/adaptive", "keyfunc", "response", "degrade", "middleware", internal}, foreign: []string{yaml}},
	// A user's own source runs the table in tests.
	{folder: "config/source/sourcetest", own: []string{"config"}, foreign: []string{"github.com/stretchr/testify"}},
	{folder: "config/source/file", own: []string{"config", internal}, foreign: []string{"github.com/fsnotify/fsnotify"}},
	{folder: "config/stores", own: []string{"config", "limiter", "limiter/memory", "limiter/redislimit", "limiter/leased", "limiter/fallback", internal}, foreign: []string{goRedis}},
	{folder: "config/source/redis", own: []string{"config", internal}, foreign: []string{goRedis}},
	{folder: "config/...", own: []string{"config", internal}},
	// Whoever wants the log alone gets no metrics library with it.
	{folder: "observe", own: []string{"limiter", internal}},
	{folder: "observe/files"}, // files, and their tests
	// It shows a guard, so it knows it; its charts are files of its own.
	{folder: "observe/live", own: []string{"limiter", "middleware", "observe", internal}},
	{folder: "observe/prom", own: []string{"limiter", internal}, foreign: []string{prom}},
	// Outgoing calls: fields are read by a library, and a destination that is down is left alone by one.
	{folder: "client", own: []string{"limiter", "keyfunc", "response", internal}, foreign: []string{"github.com/dunglas/httpsfv", "github.com/sony/gobreaker/v2"}},
	// How a client's wishes are read.
	{folder: "internal/negotiate", foreign: []string{"golang.org/x/text"}},
	// What the limiters on Redis share, and the servers their tests start.
	{folder: "internal/rediscall", own: []string{"limiter"}, foreign: []string{goRedis}},
	{folder: "internal/redistest", foreign: []string{goRedis}},
	{folder: "internal/serve", free: true}, // a command
	{folder: internal, own: []string{"limiter", internal}},
	{folder: "cmd/...", free: true},
	{folder: "examples/...", free: true},
}

// homes are the folders that alone may lead to a large or opinionated module, directly or through others of ours: who
// imports anything else must not get it.
var homes = map[string][]string{
	gin:     {"adapters/gin"},
	echo:    {"adapters/echo"},
	goRedis: {"limiter/redislimit", "limiter/redisrate", "limiter/leased", "limiter/fallback", "config/source/redis", "config/stores", "internal/rediscall", "internal/redistest"},
	yaml:    {"config/..."},
	prom:    {"observe/prom"},
}

type pkg struct {
	ImportPath string
	Imports    []string
}

// folder is the path inside the module: "." for its root.
func (p pkg) folder() string {
	if p.ImportPath == module {
		return "."
	}
	return strings.TrimPrefix(p.ImportPath, module+"/")
}

func isOwn(path string) bool { return path == module || strings.HasPrefix(path, module+"/") }

func isStandard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}

func within(path, prefix string) bool { return path == prefix || strings.HasPrefix(path, prefix+"/") }

func ruleFor(folder string) *rule {
	i := slices.IndexFunc(rules, func(r rule) bool { return inTree(folder, r.folder) })
	if i < 0 {
		return nil
	}
	return &rules[i]
}

// violations names every import that a rule forbids.
func violations(pkgs []pkg) (out []string) {
	byPath := map[string]pkg{}
	for _, p := range pkgs {
		byPath[p.ImportPath] = p
	}
	for _, p := range pkgs {
		folder := p.folder()
		r := ruleFor(folder)
		if r == nil {
			out = append(out, folder+" has no rule: add one")
			continue
		}
		if r.free {
			continue
		}
		for _, path := range p.Imports {
			if !r.allows(path) {
				out = append(out, fmt.Sprintf("%s imports %s", folder, path))
			}
		}
		for guarded, home := range homes {
			if slices.ContainsFunc(home, func(h string) bool { return inTree(folder, h) }) {
				continue
			}
			if way := wayTo(byPath, p, guarded, map[string]bool{}); len(way) > 2 { // 2: a direct import, named above
				out = append(out, strings.Join(way, " imports "))
			}
		}
	}
	slices.Sort(out)
	return out
}

func (r *rule) allows(path string) bool {
	switch {
	case isStandard(path):
		return true
	case isOwn(path):
		folder := pkg{ImportPath: path}.folder()
		return slices.ContainsFunc(r.own, func(o string) bool { return inTree(folder, o) })
	}
	return slices.ContainsFunc(r.foreign, func(f string) bool { return within(path, f) })
}

// wayTo is the chain of imports from p through packages of this module to a guarded module; nil if there is none.
func wayTo(byPath map[string]pkg, p pkg, guarded string, seen map[string]bool) []string {
	seen[p.ImportPath] = true
	for _, path := range p.Imports {
		if within(path, guarded) {
			return []string{p.folder(), path}
		}
		next, ok := byPath[path]
		if !ok || seen[path] {
			continue
		}
		if way := wayTo(byPath, next, guarded, seen); way != nil {
			return append([]string{p.folder()}, way...)
		}
	}
	return nil
}

// list returns the packages of the module. A package that does not compile is listed all the same.
func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-e", "-deps", "-json=ImportPath,Imports", "./...")
	cmd.Dir = root
	out, err := cmd.Output()
	require.NoError(t, err)
	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		if isOwn(p.ImportPath) {
			pkgs = append(pkgs, p)
		}
	}
}

func TestImports(t *testing.T) {
	pkgs := list(t)
	require.NotEmpty(t, pkgs)
	require.Empty(t, violations(pkgs), "imports that internal/house forbids")
}

// The rules on a module that breaks them.
func TestViolationsAreNamed(t *testing.T) {
	own := func(folder string, imports ...string) pkg {
		return pkg{ImportPath: strings.TrimSuffix(module+"/"+folder, "/."), Imports: imports}
	}
	require.Empty(t, violations([]pkg{
		own(".", "fmt", module+"/middleware", module+"/limiter/memory"),
		own("limiter", "time"),
		own("middleware", module+"/limiter", module+"/internal/x"),
		own("internal/x", "strings"),
		own("adapters/gin", gin, gin+"/binding", module+"/middleware"),
		own("cmd/spillway", gin, module+"/adapters/gin", module+"/adapters/echo"),
	}))
	for want, pkgs := range map[string][]pkg{
		"adapters/echo imports " + module + "/adapters/gin": {own("adapters/echo", echo, module+"/adapters/gin")},
		"limiter imports github.com/example/tree":           {own("limiter", "github.com/example/tree")},
		"limiter imports " + module + "/internal/x":         {own("limiter", module+"/internal/x")},
		"middleware imports " + module + "/limiter/memory":  {own("middleware", module+"/limiter/memory")},
		"middleware imports " + gin:                         {own("middleware", gin)},
		"novelty has no rule: add one":                      {own("novelty")},
		// Allowed step by step, forbidden as a whole.
		"middleware imports degrade imports internal/x imports " + goRedis: {
			own("middleware", module+"/degrade"), own("degrade", module+"/internal/x"), own("internal/x", goRedis+"/internal"),
		},
	} {
		got := violations(pkgs)
		require.Contains(t, got, strings.Replace(want, goRedis, goRedis+"/internal", 1))
	}
}
