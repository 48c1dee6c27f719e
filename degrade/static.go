package degrade

import (
	"errors"
	"io/fs"
	"net/http"
	"strings"

	"github.com/spillway-go/spillway/internal/negotiate"
)

// MaxContent is how long a [Content] may be, in bytes.
const MaxContent = 1 << 20

// StaticConfig is what [Static] serves: at least a Status or one of Contents.
type StaticConfig struct {
	// Status of the response: 200…599. 0: that of the plain refusal, 429 or 503. With 204, 205 and 304 there are no
	// Contents.
	Status int
	// Header is set on the response, in place of fields that are there; Vary and Access-Control-Expose-Headers are added
	// to what is there. Fields that describe the body, the connection, the limit or one client are refused.
	Header http.Header
	// Contents are the bodies to choose from: first the type that Accept prefers, then of this type the language that
	// Accept-Language prefers. Their order decides where the request does not. A client that accepts none of the types
	// gets the first.
	Contents []Content
	// FS has the files of Contents. They are read by Static, once: a new text takes a new handler.
	FS fs.FS
	// CacheControl is the field of that name. "": no-store, as else a CDN keeps the response as the real thing. A 429 is
	// never to be stored (RFC 6585 section 4). A response that shared caches may store tells no limits: they are one
	// client's.
	CacheControl string
}

// Content is one body of a [StaticConfig], of at most [MaxContent] bytes.
type Content struct {
	// Type is the media type, such as "application/json"; required. Text in UTF-8 is announced as such where there is no
	// charset. Parameters play no part in the choice.
	Type string
	// Language is a BCP 47 tag. Clients that name no language, or only others, get the content without one, else the first
	// of its type.
	Language string
	// Body, or a File of FS, a path such as "busy/en.html": one of the two.
	Body []byte
	File string
}

// Static serves a fixed response: a page that asks for patience, an empty list. It takes a unit of its budget, by default
// [DefaultBudget]. It is safe for concurrent use. What is wrong with cfg is told by [Validate]; the handler skips then.
func Static(cfg StaticConfig) Handler { return newStatic(cfg) }

type static struct {
	errs    []error
	status  int             // 0: of the Denial
	header  http.Header     // by canonical name
	expose  fieldList       // Access-Control-Expose-Headers
	vary    fieldList       // Vary, where there is nothing to choose from
	control []string        // Cache-Control
	shared  bool            // caches of many clients may store it
	types   negotiate.Types // by index of choices
	choices []staticChoice
}

var (
	_ Moded     = (*static)(nil)
	_ Spender   = (*static)(nil)
	_ Validator = (*static)(nil)
)

func (s *static) Mode() string    { return ModeStatic }
func (s *static) Spends()         {}
func (s *static) Validate() error { return errors.Join(s.errs...) }

func (s *static) Degrade(w http.ResponseWriter, r *http.Request, d *Denial) Outcome {
	if len(s.errs) > 0 || !d.Afford(r.Context()) {
		return Skip
	}
	h := w.Header()
	if s.shared {
		if d.Withdraw != nil {
			d.Withdraw()
		}
		delete(h, "Retry-After")
	}
	dropOriginal(h)
	for key, lines := range s.header {
		h[key] = lines
	}
	s.expose.addTo(h, "Access-Control-Expose-Headers")
	h["Cache-Control"] = s.control
	status := s.status
	if status == 0 {
		if status = d.Status; status == 0 { // outside of a guard
			status = http.StatusTooManyRequests
		}
	}
	if len(s.choices) == 0 {
		s.vary.addTo(h, "Vary")
		writeFixed(w, r, status, nil)
		return Done
	}
	c := &s.choices[max(0, s.types.Choose(r.Header["Accept"]))]
	c.vary.addTo(h, "Vary")
	writeFixed(w, r, status, c.body(r))
	return Done
}

// dropOriginal drops fields set earlier that speak of the response that is not served, or let some cache store what
// Cache-Control forbids (RFC 9213).
func dropOriginal(h http.Header) {
	for key := range h {
		switch key {
		case "Etag", "Expires", "Last-Modified", "Surrogate-Control":
			delete(h, key)
		default:
			if strings.HasSuffix(key, "-Cache-Control") {
				delete(h, key)
			}
		}
	}
}

// staticChoice are the bodies of one type.
type staticChoice struct {
	bodies    []fixedBody
	languages *negotiate.Languages
	tagged    []int // the body of each language
	rest      int   // the body for everybody else
	vary      fieldList
}

func (c *staticChoice) body(r *http.Request) *fixedBody {
	if len(c.bodies) > 1 {
		if i := c.languages.Choose(r.Header["Accept-Language"]); i >= 0 {
			return &c.bodies[c.tagged[i]]
		}
	}
	return &c.bodies[c.rest]
}
