package degrade

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spillway-go/spillway/internal/patterns"
	"github.com/spillway-go/spillway/keyfunc"
)

// readRoute is one pattern of ReadRoutes. Each has a mux of its own: in a shared one patterns that overlap are conflicts,
// and of two that match only one counts.
type readRoute struct{ mux *http.ServeMux }

// readable marks a match: for anything else a mux answers by a handler of its own.
type readable struct{}

func (*readable) ServeHTTP(http.ResponseWriter, *http.Request) {}

func newReadRoute(pattern string) (x readRoute, err error) {
	// ServeMux knows its syntax best, and says what is wrong only by panicking.
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("route %q: %v", pattern, p)
		}
	}()
	x.mux = http.NewServeMux()
	x.mux.Handle(pattern, new(readable))
	return x, patterns.Mistaken(pattern)
}

// readRoutes are the patterns of one handler.
type readRoutes []readRoute

func (x readRoutes) match(r *keyfunc.Request) bool {
	if len(x) == 0 || r.Method == http.MethodConnect {
		return false
	}
	// A path that is not clean is answered by a redirect and so no match, and one with escapes in it may be decoded
	// further in before it is routed.
	if r.URL.RawPath == "" && slices.ContainsFunc(x, func(x readRoute) bool { return x.match(r.Request) }) {
		return true
	}
	paths := pathsOf(r.Route())
	return len(paths) > 0 && slices.ContainsFunc(x, func(x readRoute) bool {
		for _, path := range paths {
			if !x.match(&http.Request{Method: r.Method, Host: r.Host, URL: &url.URL{Path: path}}) {
				return false
			}
		}
		return true
	})
}

func (x readRoute) match(r *http.Request) bool {
	h, _ := x.mux.Handler(r)
	_, ok := h.(*readable)
	return ok
}

// anySegment stands for a segment that can be anything: no pattern has it as a literal.
const anySegment = "{}"

// pathsOf returns paths of which a pattern matches all only if it matches whatever route does, route being spelled as in
// ServeMux ({name}, {name...}), Gin (:name, *name) or Echo (:name, *). It returns none for no route. A slash at the end is
// everything below, as in ServeMux.
func pathsOf(route string) []string {
	slash := strings.IndexByte(route, '/')
	if slash < 0 {
		return nil
	}
	path := ""
	for segment := range strings.SplitSeq(route[slash+1:], "/") {
		switch {
		case segment == "{$}":
			return []string{path + "/"}
		case segment == "", strings.HasPrefix(segment, "*"), strings.HasSuffix(segment, "...}"):
			return []string{path + "/", path + "/" + anySegment + "/" + anySegment}
		case strings.HasPrefix(segment, "{"), strings.Contains(segment, ":"):
			segment = anySegment
		}
		path += "/" + segment
	}
	return []string{path}
}
