package degrade

import (
	"errors"
	"html"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spillway-go/spillway/internal/negotiate"
	"github.com/spillway-go/spillway/limiter"
)

// RedirectConfig is where [Redirect] sends to.
type RedirectConfig struct {
	// URL is absolute, http or https, or a path such as "/wait"; required. Its query and fragment are kept. It has to be
	// out of reach of the policy, as its visitors are limited.
	URL string
	// Status is 303 See Other, by which every request becomes a GET, or 307 Temporary Redirect, by which the waiting page
	// gets the method and the body too. 0: 307 for GET and HEAD, 303 for all others.
	Status int
	// Return is the name of a query parameter that gets the path and query of the request, to come back to. "": none. It is
	// left out where it could lead elsewhere or is longer than 2048 bytes.
	Return string
	// NoRetryAfter leaves out Retry-After, which on a redirect is how long to wait before following it (RFC 9110 section
	// 10.2.3).
	NoRetryAfter bool
}

// Redirect sends clients to another place, such as a waiting page, without the limits. It skips requests for that very
// place, told by path and, where URL is absolute, Host. It is safe for concurrent use. What is wrong with cfg is told by
// [Validate]; the handler skips then.
func Redirect(cfg RedirectConfig) Handler { return newRedirect(cfg) }

type redirect struct {
	errs         []error
	status       int // 0: by method
	noRetryAfter bool
	host, path   string // of the target; host "": that of the request
	plain        string // the target
	before       string // the target up to the value of the parameter to return by; "": without
	after        string
}

var (
	_ Moded     = (*redirect)(nil)
	_ Validator = (*redirect)(nil)
)

func (x *redirect) Mode() string    { return ModeRedirect }
func (x *redirect) Validate() error { return errors.Join(x.errs...) }

func (x *redirect) Degrade(w http.ResponseWriter, r *http.Request, d *Denial) Outcome {
	if len(x.errs) > 0 || x.arrived(r) {
		return Skip
	}
	h := w.Header()
	told := h["Retry-After"]
	if d.Withdraw != nil {
		d.Withdraw()
	}
	if told = x.retryAfter(told, d); told != nil {
		h["Retry-After"] = told
	} else {
		delete(h, "Retry-After")
	}
	dropOriginal(h)
	location := x.plain
	if x.before != "" {
		if back := wayBack(r); back != "" {
			location = x.before + url.QueryEscape(back) + x.after
		}
	}
	h["Location"] = []string{location}
	h["Cache-Control"] = fixedNoStore
	redirectVary.addTo(h, "Vary")
	status := x.status
	if status == 0 {
		if status = http.StatusSeeOther; r.Method == http.MethodGet || r.Method == http.MethodHead {
			status = http.StatusTemporaryRedirect
		}
	}
	b := redirectBody(r, status, location)
	writeFixed(w, r, status, &b)
	return Done
}

// retryAfter returns the field: as the guard has told it, who spreads clients in time, unless a handler asked before knows
// of a longer wait.
func (x *redirect) retryAfter(told []string, d *Denial) []string {
	wait := max(d.RetryAfter, d.Wait)
	if x.noRetryAfter || wait == limiter.Never {
		return nil
	}
	seconds := int64(wait / time.Second)
	if wait%time.Second > 0 {
		seconds++
	}
	seconds = max(seconds, 1)
	if len(told) > 0 {
		if have, err := strconv.ParseInt(told[0], 10, 64); err != nil || have >= seconds {
			return told
		}
	}
	return []string{strconv.FormatInt(seconds, 10)}
}

var (
	redirectVary  = newFieldList("Accept")
	redirectTypes = negotiate.NewTypes("text/plain", "text/html")
)

// redirectBody is for people whose client does not follow: a link where it shows HTML.
func redirectBody(r *http.Request, status int, location string) fixedBody {
	phrase := http.StatusText(status)
	if redirectTypes.Choose(r.Header["Accept"]) == 1 {
		link := `<a href="` + html.EscapeString(location) + `">` + phrase + "</a>"
		return newFixedBody([]byte("<!doctype html><title>"+phrase+"</title>"+link+"\n"), "text/html; charset=utf-8")
	}
	return newFixedBody([]byte(phrase+": "+location+"\n"), "text/plain; charset=utf-8")
}
