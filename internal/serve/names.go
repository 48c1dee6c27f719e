package serve

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/keyfunc"
)

// Names are the names that a document uses and the command line declares: who a caller is and on which plan, where only
// headers, cookies, queries or parameters can tell. It is a flag.Value.
type Names struct{ sources map[string]string }

// String lists them.
func (n *Names) String() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(n.sources)) {
		all = append(all, name+"="+n.sources[name])
	}
	return strings.Join(all, ",")
}

// NameHint is for whoever has a document with a name that nobody has told.
const NameHint = "Say where a name is found with -name, as -name tenant=header:X-Tenant."

// Nameless reports whether a message is about a name that -name can tell.
func Nameless(message string) bool {
	return strings.Contains(message, "no key is registered as") || strings.Contains(message, "no plan function is registered as")
}

// taken are words of keys that a document understands by itself.
var taken = []string{"ip", "route", "global", "hmac", "first", "header", "cookie", "query", "param"}

// Set adds one, as tenant=header:X-Tenant.
func (n *Names) Set(text string) error {
	name, source, ok := strings.Cut(text, "=")
	switch {
	case !ok || !keyfunc.ValidName(name):
		return errors.New("want NAME=SOURCE:NAME, as tenant=header:X-Tenant")
	case slices.Contains(taken, name):
		return fmt.Errorf("%s has a meaning of its own in documents", name)
	case n.sources[name] != "":
		return fmt.Errorf("%s is told twice", name)
	}
	f, err := key(source)
	if err != nil {
		return err
	}
	if err := keyfunc.Check(f); err != nil {
		return err
	}
	if n.sources == nil {
		n.sources = make(map[string]string)
	}
	n.sources[name] = source
	return nil
}

// key returns the key that a source makes by its own name, which is checked as in documents.
func key(source string) (keyfunc.Func, error) {
	kind, name, _ := strings.Cut(source, ":")
	switch kind {
	case "header":
		return keyfunc.Header(name), nil
	case "cookie":
		return keyfunc.Cookie(name), nil
	case "query":
		return keyfunc.Query(name), nil
	}
	return nil, errors.New("want header:NAME, cookie:NAME or query:NAME")
}

// read returns what reads a value from a request: "" if it is not there exactly once, for of two a client could choose.
func read(source string) func(*keyfunc.Request) string {
	kind, name, _ := strings.Cut(source, ":")
	only := func(values []string) string {
		if len(values) != 1 {
			return ""
		}
		return strings.Trim(values[0], " \t")
	}
	switch kind {
	case "header":
		return func(r *keyfunc.Request) string { return only(r.Header.Values(name)) }
	case "cookie":
		return func(r *keyfunc.Request) string {
			if all := r.CookiesNamed(name); len(all) == 1 {
				return all[0].Value
			}
			return ""
		}
	}
	return func(r *keyfunc.Request) string {
		if r.URL == nil {
			return ""
		}
		return only(r.URL.Query()[name])
	}
}

// Deps registers the names as keys and as plans, and tells caches what callers are told apart by.
func (n *Names) Deps() config.Deps {
	d := config.Deps{Keys: make(map[string]keyfunc.Func), Plans: make(map[string]func(*keyfunc.Request) string)}
	for _, name := range slices.Sorted(maps.Keys(n.sources)) {
		source := n.sources[name]
		value := read(source)
		d.Credentials = append(d.Credentials, source)
		d.Plans[name] = value
		kind := keyfunc.KindOf(name)
		d.Keys[name] = func(r *keyfunc.Request) (keyfunc.Key, error) { return r.Key(kind, value(r)), nil }
	}
	return d
}
