package live

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

//go:embed assets
var files embed.FS

// asset is a file that is sent as it is.
type asset struct {
	body        []byte
	contentType string
	tag         string
}

// assets are all there are, by their last element. The page itself is "".
var assets = func() map[string]*asset {
	all := make(map[string]*asset)
	for name, contentType := range map[string]string{
		"": "text/html; charset=utf-8", "app.js": "text/javascript; charset=utf-8", "table.js": "text/javascript; charset=utf-8",
		"charts.js": "text/javascript; charset=utf-8", "app.css": "text/css; charset=utf-8",
		"uplot.js": "text/javascript; charset=utf-8", "uplot.css": "text/css; charset=utf-8", "uplot.LICENSE": "text/plain; charset=utf-8",
		"icon.svg": "image/svg+xml",
	} {
		file := name
		if name == "" {
			file = "index.html"
		}
		body, err := files.ReadFile("assets/" + file)
		if err != nil {
			panic(err) // it is not in the program
		}
		sum := sha256.Sum256(body)
		all[name] = &asset{body: body, contentType: contentType, tag: `"` + hex.EncodeToString(sum[:12]) + `"`}
	}
	return all
}()

// policy of contents: nothing but what this handler sends, and no text that becomes script or markup.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; " +
	"form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// ServeHTTP serves the page, what it needs, and the stream of events. The last element of the path says which, so it can be
// mounted under any prefix that ends in a slash, stripped or not. What is not GET or HEAD is 405, who may not look gets 403, and
// viewers beyond MaxViewers 503.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "This page changes nothing.", http.StatusMethodNotAllowed)
		return
	}
	if !p.mayLook(r) {
		http.Error(w, "You may not look at this page.", http.StatusForbidden)
		return
	}
	select {
	case <-p.done:
		http.Error(w, "The page has been closed.", http.StatusServiceUnavailable)
		return
	default:
	}
	if r.URL.Path == "" { // what the page names is beside it, so it needs its slash
		where, _, _ := strings.Cut(r.RequestURI, "?")
		h.Set("Location", "./"+where[strings.LastIndexByte(where, '/')+1:]+"/")
		w.WriteHeader(http.StatusPermanentRedirect)
		return
	}
	name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	if name == "events" {
		p.stream(w, r)
		return
	}
	a := assets[name]
	if a == nil {
		http.NotFound(w, r)
		return
	}
	h.Set("Content-Type", a.contentType)
	h.Set("Etag", a.tag)
	h.Set("Cache-Control", "no-cache") // it is asked again each time, and answered by 304
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.body))
}

// mayLook reports whether the request is of somebody who may look, and not of a page of somebody else in his browser
// (Fetch Metadata, W3C): that could not read the answer, but take the places of viewers. A link to here is no such thing.
func (p *Page) mayLook(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		if r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document" {
			return false
		}
	}
	if p.cfg.Authorize != nil {
		return p.cfg.Authorize(r)
	}
	return isLocal(r)
}

// isLocal reports whether a request comes from this machine, by a name of its own and through no proxy.
func isLocal(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() || !isLocalName(r.Host) {
		return false
	}
	for _, field := range [...]string{"Forwarded", "Via", "X-Forwarded-For", "X-Real-Ip"} {
		if _, has := r.Header[field]; has {
			return false
		}
	}
	return true
}

// isLocalName reports whether a Host names this machine. Browsers resolve localhost and what is below it by themselves
// (RFC 6761, 6.3), so no other name server can give it.
func isLocalName(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback() || host == "localhost" || strings.HasSuffix(host, ".localhost")
}
