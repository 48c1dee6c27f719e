package serve

import (
	"net/http"
	"strings"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/middleware"
)

// version is what the proxy makes of a document.
type version struct {
	document *config.Document
	peers    *peers
	routes   *http.ServeMux
	guards   map[string]*middleware.Guard // by stage
}

// version returns that of the document in force. The first request that meets a document makes it, and those that come
// meanwhile wait for it.
func (p *proxy) version() *version {
	doc := p.follower.Status().Document
	if v := p.inForce.Load(); v != nil && v.document == doc {
		return v
	}
	p.building.Lock()
	defer p.building.Unlock()
	doc = p.follower.Status().Document
	if v := p.inForce.Load(); v != nil && v.document == doc {
		return v
	}
	v := &version{document: doc, peers: newPeers(doc.ClientIP), guards: make(map[string]*middleware.Guard)}
	for _, stage := range doc.Stages() {
		v.guards[stage] = p.follower.Guard().Stage(stage)
	}
	var left int
	if v.routes, left = muxOf(doc); left > 0 {
		p.log.Warn("spillway: keys of route and of param know the first routes of the document alone", "routes", maxRoutes, "others", left)
	}
	p.inForce.Store(v)
	return v
}

// maxRoutes bounds the routes of a mux. To add one can take time for each that is there.
const maxRoutes = 4096

// muxOf knows the routes of the document, which are all the routes that a proxy has, and counts those it has no room for.
// Keys of routes and of parameters of paths are read by it, nothing else, so that most documents need none.
func muxOf(doc *config.Document) (mux *http.ServeMux, left int) {
	readers := make([]bool, len(doc.Policies))
	for k := range doc.Policies {
		if readers[k] = readsRoutes(doc.Policies[k].Key); readers[k] && mux == nil {
			mux = http.NewServeMux()
		}
	}
	if mux == nil {
		return nil, 0
	}
	seen := make(map[string]bool)
	add := func(pattern string) {
		defer func() { _ = recover() }() // is neither more nor less special than one that is there
		mux.Handle(pattern, http.NotFoundHandler())
	}
	for _, first := range []bool{true, false} { // the policies that read routes have theirs in any case
		for k := range doc.Policies {
			m := doc.Policies[k].Match
			if m == nil || readers[k] != first {
				continue
			}
			for _, pattern := range m.Routes {
				switch {
				case seen[pattern]:
				case len(seen) == maxRoutes:
					left++
				default:
					seen[pattern] = true
					add(pattern)
				}
			}
		}
	}
	return mux, left
}

// readsRoutes reports whether some word of a key, as it may stand in hmac(…) and first(…), is read from the route.
func readsRoutes(key config.List) bool {
	for _, text := range key {
		for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return strings.ContainsRune("(), ", r) }) {
			if word == "route" || strings.HasPrefix(word, "param:") {
				return true
			}
		}
	}
	return false
}
