package degrade

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-go/spillway/keyfunc"
)

// Cached serves a refused GET or HEAD from a response to an earlier allowed request, and skips what it has no copy for. It
// records responses to allowed requests, of those that a shared cache may store and serve without asking the origin (RFC
// 9111 3 and 4.2.4): only complete ones to GET, without Set-Cookie, and with none of no-store, no-cache, private,
// must-revalidate, proxy-revalidate and s-maxage. What is stored and for how long is up to p.
//
// No byte made for one identity reaches another unless the origin said public. The identity is that of
// [PagesConfig.Partition], or what the policy's own key names beyond an address, together with the credentials that come
// along. A response to a request with Authorization, Cookie or another credential (see [PagesConfig.Credentials]) and
// without an identity is not stored unless it says public; one to a request with neither is for other requests with
// neither. A policy whose key is an address or nothing, as with [keyfunc.Global], knows nobody, even if another policy
// does. So a guard that runs behind authentication has to see the credentials still, and what else a response depends on,
// the origin has to say by Vary. Fields by which proxies tell the host, the scheme and the path are a part of the key.
//
// What is further out than the guard is heard as long as it adds its fields before the first bytes are passed on to it and
// back: a middleware that holds back a whole response, and forbids afterwards to store it, is not.
//
// A write that succeeds and a response that may not be stored any more, or is not for all any more, take older copies
// away. The guard has to be inside of whatever compresses responses.
//
// A copy is served with its own Date, validators and Cache-Control, with Age and Cache-Status (RFC 9211), and without
// Retry-After. A condition of the request (If-None-Match, If-Modified-Since) that it fulfils gives 304. Requests whose
// Cache-Control it does not meet are skipped, and so are conditions for the origin alone. Range is passed over. A copy
// takes of the budget once it is about to be served: of the [Within] around it, or [DefaultBudget].
func Cached(p *Pages) Handler { return &cached{p} }

type cached struct{ pages *Pages }

var (
	_ Recorder  = (*cached)(nil)
	_ Spender   = (*cached)(nil)
	_ Heir      = (*cached)(nil)
	_ Validator = (*cached)(nil)
	_ Moded     = (*cached)(nil)
)

func (c *cached) Mode() string { return ModeCache }

func (c *cached) Spends() {}

func (c *cached) Validate() error {
	if c.pages == nil {
		return errors.New("degrade: Cached: no Pages")
	}
	return c.pages.Validate()
}

func (c *cached) Inherit(prev Handler) bool {
	old, ok := prev.(*cached)
	return ok && c.pages != nil && old.pages != nil && c.pages.inherit(old.pages)
}

func (c *cached) Record(w http.ResponseWriter, r *keyfunc.Request, policy, identity string) (http.ResponseWriter, func(ok bool)) {
	if c.pages == nil {
		return w, nil
	}
	return c.pages.record(w, r, policy, identity)
}

func (c *cached) Degrade(w http.ResponseWriter, r *http.Request, d *Denial) Outcome {
	p := c.pages
	if p == nil || !servable(r) {
		return Skip
	}
	var wants directives
	if lines := r.Header["Cache-Control"]; len(lines) > 0 {
		wants = parseDirectives(lines)
	} else {
		wants = parseDirectives(nil)
		wants.noCache = containsFold(r.Header["Pragma"], "no-cache") // RFC 9111 5.4
	}
	asked := d.Request
	if asked == nil {
		asked = new(keyfunc.Request)
		asked.Reset(r, nil, nil)
	}
	now := time.Now()
	page := p.find(asked, d, &wants, now)
	if page == nil || !d.Afford(r.Context()) {
		return Skip
	}
	p.serve(w, r, page, d.Cause, now)
	return Done
}

// servable reports whether a copy can answer r at all.
func servable(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || overrides(r.Header) || r.ContentLength != 0 {
		return false
	}
	// What If-Match and If-Unmodified-Since guard against only the origin can say, RFC 9111 4.3.2.
	return len(r.Header["Upgrade"]) == 0 && len(r.Header["If-Match"]) == 0 && len(r.Header["If-Unmodified-Since"]) == 0
}

// find returns the page for r that may be served now.
func (p *Pages) find(r *keyfunc.Request, d *Denial, wants *directives, now time.Time) *Page {
	if wants.bad || wants.noCache || wants.noStore {
		return nil
	}
	s := p.store.Load()
	var buf [1024]byte
	a := p.addressOf(buf[:0], r, d.Policy, d.Identity)
	values, at := fieldsOf(r.Request), s.cutOf(r.Request)
	look := func(key string, publicOnly bool) *Page {
		c, ok := s.Get(key)
		if !ok || c == nil || c.Key != key {
			return nil
		}
		page := c.find(values, publicOnly)
		if page == nil || !p.lives(page, now, d.Cause) || !wants.accepts(page, now) || s.void(at, page) {
			return nil
		}
		return page
	}
	if a.asker == member {
		if page := look(a.private(), false); page != nil {
			return page
		}
	}
	return look(a.shared(), a.asker != anonymous)
}

// serve writes the page.
func (p *Pages) serve(w http.ResponseWriter, r *http.Request, page *Page, cause Cause, now time.Time) {
	h := w.Header()
	for name, values := range page.Header {
		switch {
		case dropped(name): // of a store that somebody else fills
		case name == "Vary" || name == "Access-Control-Expose-Headers":
			h[name] = united(h[name], values)
		default:
			h[name] = slices.Clone(values)
		}
	}
	delete(h, "Retry-After")
	h["Age"] = []string{wholeSeconds(page.age(now))}
	status := p.name + ";hit;ttl=" + wholeSeconds(page.ttl(now)) + ";detail=" + cause.String()
	if before := h["Cache-Status"]; len(before) > 0 {
		status = strings.Join(before, ", ") + ", " + status
	}
	h["Cache-Status"] = []string{status}
	if notModified(r, page) {
		for name := range h {
			// RFC 9110 15.4.5: what describes a body that is not sent would only confuse.
			if name != "Content-Location" && strings.HasPrefix(name, "Content-") && !strings.HasPrefix(name, "Content-Security-") ||
				name == "Last-Modified" && len(h["Etag"]) > 0 {
				delete(h, name)
			}
		}
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h["Content-Length"] = []string{strconv.Itoa(len(page.Body))}
	w.WriteHeader(page.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(page.Body) // a client that is gone
	}
}

// united is a list with the members of another that it lacks.
func united(list, more []string) []string {
	out := slices.Clone(list)
	has := func(name string) bool {
		for _, line := range out {
			for m := range strings.SplitSeq(line, ",") {
				if strings.EqualFold(strings.TrimSpace(m), name) {
					return true
				}
			}
		}
		return false
	}
	for _, line := range more {
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.TrimSpace(name); name != "" && !has(name) {
				out = append(out, name)
			}
		}
	}
	return out
}
