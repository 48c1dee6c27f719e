package middleware

import (
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/spillway-go/spillway/internal/patterns"
)

// routes finds every rule whose route patterns match a request in one walk over the segments of its path, however many
// rules there are. Patterns have the syntax and meaning of [http.ServeMux]; unlike there, all that match count, not the
// most specific one.
type routes struct{ root node }

// node is what follows a slash.
type node struct {
	literal map[string]*node
	one     *node  // {name}
	end     []leaf // the path ends with this segment
	slash   []leaf // {$}: the path ends here, behind the slash
	rest    []leaf // a trailing slash or {name...}: anything may follow
}

type leaf struct {
	rule         int
	method, host string // "" for any
}

// add makes rule match what pattern matches, and reports whether that depends on the host.
func (t *routes) add(rule int, pattern string) (hosted bool, err error) {
	// ServeMux knows its syntax best, and says what is wrong only by panicking.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("route %q: %v", pattern, p)
		}
	}()
	http.NewServeMux().Handle(pattern, http.NotFoundHandler())
	if err := patterns.Mistaken(pattern); err != nil {
		return false, err
	}

	l := leaf{rule: rule}
	host := pattern
	if end := strings.IndexAny(pattern, " \t"); end >= 0 { // the first one ends the method, as in ServeMux
		l.method, host = pattern[:end], strings.TrimLeft(pattern[end:], " \t")
	}
	slash := strings.IndexByte(host, '/')
	l.host = strings.ToLower(host[:slash])
	n, rest := &t.root, host[slash+1:]
	for {
		segment, tail, more := strings.Cut(rest, "/")
		switch {
		case segment == "" && !more, strings.HasSuffix(segment, "...}"):
			n.rest = append(n.rest, l)
			return l.host != "", nil
		case segment == "{$}":
			n.slash = append(n.slash, l)
			return l.host != "", nil
		}
		next := n.one
		if !strings.HasPrefix(segment, "{") {
			if text, err := url.PathUnescape(segment); err == nil {
				segment = text
			}
			if segment == "/" && !more { // as ServeMux has it
				n.slash = append(n.slash, l)
				return l.host != "", nil
			}
			next = n.literal[segment]
		}
		if next == nil {
			next = new(node)
			switch {
			case strings.HasPrefix(segment, "{"):
				n.one = next
			case n.literal == nil:
				n.literal = map[string]*node{segment: next}
			default:
				n.literal[segment] = next
			}
		}
		if n = next; !more {
			n.end = append(n.end, l)
			return l.host != "", nil
		}
		rest = tail
	}
}

// walk is one look-up.
type walk struct {
	hits         []uint64 // one bit a rule
	method, host string
	escaped      bool // segments are percent-encoded
	loose        bool // segments may be empty
	pattern      bool // the path is the pattern of a framework's route
	mux          bool // and it is one of ServeMux
}

// path marks every rule that matches the path of r. plain means that all routers read this path alike. Of another one some
// decode first, some clean, some do neither: then every rule is marked that matches it in any of these ways, so that no
// spelling of a path gets around a policy.
func (t *routes) path(r *http.Request, w walk) (plain bool) {
	p := r.URL.Path
	if r.URL.RawPath == "" && p != "" && p[0] == '/' {
		if clean := cleanPath(p); clean == p[1:] {
			t.root.walk(clean, &w)
			return true
		}
	}
	e := r.URL.EscapedPath()
	w.escaped = true
	t.root.walk(cleanPath(e), &w)
	if dots := dotted.Replace(e); dots != e { // %2E is a dot to whoever cleans, and %2F none of his slashes
		t.root.walk(cleanPath(dots), &w)
	}
	if inner, err := url.Parse(r.URL.Opaque); err == nil && r.URL.Opaque != "" {
		// A target such as x:http://h/path has no path of its own, and what is behind may go by the one inside.
		t.root.walk(cleanPath(inner.EscapedPath()), &w)
	}
	w.loose = true
	t.root.walk(strings.TrimPrefix(e, "/"), &w)
	w.escaped = false
	t.root.walk(strings.TrimPrefix(p, "/"), &w)
	w.loose = false
	t.root.walk(cleanPath(p), &w)
	return false
}

var dotted = strings.NewReplacer("%2e", ".", "%2E", ".")

// route marks every rule that matches the pattern of a framework's route, whose parameters match parameters only.
func (t *routes) route(pattern string, mux bool, w walk) {
	if i := strings.IndexByte(pattern, '/'); i >= 0 {
		w.pattern, w.mux = true, mux
		t.root.walk(pattern[i+1:], &w)
	}
}

func (n *node) walk(rest string, w *walk) {
	w.mark(n.rest)
	if rest == "" {
		if w.mux { // a pattern that ends in a slash is everything below, of which n.rest is marked
			return
		}
		w.mark(n.slash)
		if w.loose && n.one != nil {
			w.mark(n.one.end)
		}
		return
	}
	segment, tail, more := strings.Cut(rest, "/")
	literal, name := true, segment
	switch {
	case w.pattern:
		switch kind(segment) {
		case manySegments:
			return
		case pathEnd:
			w.mark(n.slash)
			return
		case oneSegment:
			literal = false
		}
	case w.escaped:
		if text, err := url.PathUnescape(segment); err == nil {
			name = text
		}
		if name == "/" && !more { // to ServeMux %2F at the end is a slash at the end
			if w.mark(n.slash); !w.loose {
				return
			}
		}
	}
	if literal {
		if next := n.literal[name]; next != nil {
			next.step(tail, more, w)
		}
	}
	if n.one != nil && (w.loose || name != "" && name != "/") {
		n.one.step(tail, more, w)
	}
}

func (n *node) step(tail string, more bool, w *walk) {
	if more {
		n.walk(tail, w)
	} else {
		w.mark(n.end)
	}
}

func (w *walk) mark(leaves []leaf) {
	for k := range leaves {
		l := &leaves[k]
		if (l.method == "" || methodMatches(l.method, w.method)) && (l.host == "" || l.host == w.host) {
			w.hits[l.rule/64] |= 1 << (l.rule % 64)
		}
	}
}

// methodMatches follows ServeMux: GET includes HEAD.
func methodMatches(want, got string) bool {
	return want == got || want == http.MethodGet && (got == http.MethodHead || got == "")
}

type segmentKind uint8

const (
	plainSegment segmentKind = iota
	oneSegment
	manySegments
	pathEnd
)

// kind reads a segment of a route in the spelling of Gin (:name, *name), Echo (:name, *) or ServeMux ({name}, {name...}).
func kind(segment string) segmentKind {
	switch {
	case strings.HasPrefix(segment, "*"), strings.HasPrefix(segment, "{") && strings.HasSuffix(segment, "...}"):
		return manySegments
	case segment == "{$}":
		return pathEnd
	case strings.HasPrefix(segment, "{"), parameterAt(segment) >= 0:
		return oneSegment
	}
	return plainSegment
}

// parameterAt returns where a colon starts a parameter; Echo escapes a literal one as \:.
func parameterAt(segment string) int {
	for k := range len(segment) {
		if segment[k] == ':' && (k == 0 || segment[k-1] != '\\') {
			return k
		}
	}
	return -1
}

// cleanPath returns p without its leading slash, cleaned as ServeMux does: no dot segments, no doubled slashes, the
// trailing slash kept.
func cleanPath(p string) string {
	if p == "" {
		return ""
	}
	if p[0] == '/' && !strings.Contains(p, "//") && !strings.Contains(p, "/.") {
		return p[1:]
	}
	clean := path.Clean("/" + p)
	if p[len(p)-1] == '/' && clean != "/" {
		clean += "/"
	}
	return clean[1:]
}
