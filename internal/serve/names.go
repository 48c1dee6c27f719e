package serve

import (
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

// Set adds one, as tenant=header:X-Tenant.
func (n *Names) Set(text string) error {
	name, source, ok := strings.Cut(text, "=")
	if !ok || !keyfunc.ValidName(name) {
		return fmt.Errorf("%q: want NAME=SOURCE:NAME, as tenant=header:X-Tenant", text)
	}
	if _, err := read(source); err != nil {
		return err
	}
	if n.sources == nil {
		n.sources = make(map[string]string)
	}
	n.sources[name] = source
	return nil
}

// read returns what reads a value from a request.
func read(source string) (func(*keyfunc.Request) string, error) {
	kind, name, _ := strings.Cut(source, ":")
	if name == "" {
		return nil, fmt.Errorf("%q: want header:NAME, cookie:NAME or query:NAME", source)
	}
	switch kind {
	case "header":
		return func(r *keyfunc.Request) string {
			if lines := r.Header.Values(name); len(lines) == 1 {
				return lines[0]
			}
			return ""
		}, nil
	case "cookie":
		return func(r *keyfunc.Request) string {
			if c, err := r.Cookie(name); err == nil {
				return c.Value
			}
			return ""
		}, nil
	case "query":
		return func(r *keyfunc.Request) string { return r.URL.Query().Get(name) }, nil
	}
	return nil, fmt.Errorf("%q: want header:NAME, cookie:NAME or query:NAME", source)
}

// Deps registers the names as keys and as plans.
func (n *Names) Deps() config.Deps {
	d := config.Deps{Keys: make(map[string]keyfunc.Func), Plans: make(map[string]func(*keyfunc.Request) string)}
	for name, source := range n.sources {
		value, err := read(source)
		if err != nil {
			continue // Set has refused it
		}
		d.Plans[name] = value
		kind := keyfunc.KindOf(name)
		d.Keys[name] = func(r *keyfunc.Request) (keyfunc.Key, error) { return r.Key(kind, value(r)), nil }
	}
	return d
}
