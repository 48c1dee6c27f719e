package response

import (
	"fmt"
	"net/http"
	"time"
)

// Kind is why a request is refused. The zero value is [QuotaExceeded].
type Kind uint8

// Kinds. All types but about:blank (RFC 9457 section 4.2.1) are those that draft 11 asks to register.
const (
	// QuotaExceeded: the caller's quota is spent, or smaller than the cost. 429, type quota-exceeded.
	QuotaExceeded Kind = iota
	// Overloaded: the service is at a bound of its own, as in flight or adaptive. 503, type temporary-reduced-capacity.
	Overloaded
	// ReadOnlyQuota: a write is refused because the caller's quota is spent. 429, type quota-exceeded, code read_only.
	ReadOnlyQuota
	// ReadOnlyService: a write is refused because the service only serves reads. 503, type temporary-reduced-capacity.
	ReadOnlyService
	// Unavailable: no decision could be made. 503, type about:blank, and no limits are told.
	Unavailable
	// Forbidden: the request has no key. 403, type about:blank, no Retry-After, and no limits are told.
	Forbidden
	// Abuse: the caller is blocked after repeated violations. 429, type abnormal-usage-detected.
	Abuse
)

const types = "https://iana.org/assignments/http-problem-types#"

// kinds holds what is fixed per kind. Titles are the registered ones: they do not vary per occurrence or language.
var kinds = [...]struct {
	name   string
	status int
	head   string // of the problem document
	code   string
	detail string
	bare   bool // about:blank: no limit has to do with it
}{
	QuotaExceeded:   {name: "quota_exceeded", status: 429, head: types + `quota-exceeded","title":"Quota Exceeded","status":429`},
	Overloaded:      {name: "overloaded", status: 503, head: types + `temporary-reduced-capacity","title":"Temporary Reduced Capacity","status":503`},
	ReadOnlyQuota:   {name: "read_only_quota", status: 429, head: types + `quota-exceeded","title":"Quota Exceeded","status":429`, code: "read_only", detail: readOnly},
	ReadOnlyService: {name: "read_only_service", status: 503, head: types + `temporary-reduced-capacity","title":"Temporary Reduced Capacity","status":503`, detail: readOnly},
	Unavailable:     {name: "unavailable", status: 503, head: `about:blank","title":"Service Unavailable","status":503`, bare: true},
	Forbidden:       {name: "forbidden", status: 403, head: `about:blank","title":"Forbidden","status":403`, bare: true},
	Abuse:           {name: "abuse", status: 429, head: types + `abnormal-usage-detected","title":"Abnormal Usage Detected","status":429`},
}

// readOnly keeps a refused write from being taken for a limit on reads.
const readOnly = "Only reads are served at the moment."

// String returns a name such as "quota_exceeded".
func (k Kind) String() string {
	if int(k) < len(kinds) {
		return kinds[k].name
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// known maps a kind that does not exist to one that gives nothing away.
func (k Kind) known() Kind {
	if int(k) < len(kinds) {
		return k
	}
	return Unavailable
}

// Refusal is one refused request.
type Refusal struct {
	Kind Kind
	// Policies are the names of the violated policies, told in the member violated-policies unless Kind is Unavailable
	// or Forbidden.
	Policies []string
	// RetryAfter is the longest wait of the violated policies; 0: unknown, told as one second; [limiter.Never]: waiting
	// does not help, none is told. Forbidden ignores it.
	RetryAfter time.Duration
	// Message is the detail, for every client; "": from Messages. It must not hold a key, an address, a user, the name of
	// a store or the text of an error.
	Message string
	// Messages are the details of the violated policy by language; nil: those of the Renderer. Unavailable and Forbidden
	// take neither, as no limit was reached.
	Messages *Messages
	// Instance is a URI reference for this occurrence, such as "urn:uuid:…"; "": none.
	Instance string
	// Silent adds neither Retry-After nor the names of policies: the policy's set is Off.
	Silent bool
	// At is the instant of the decision; zero: now. Dates are told relative to it.
	At time.Time
}

// Status returns the HTTP status: 429, 503 or 403. An unknown Kind is 503.
func (f Refusal) Status() int { return kinds[f.Kind.known()].status }

func (f *Refusal) now() time.Time {
	if f.At.IsZero() {
		f.At = time.Now()
	}
	return f.At
}

// detail returns the text for people, in the client's language.
func (x *Renderer) detail(r *http.Request, f *Refusal) string {
	k := &kinds[f.Kind.known()]
	if f.Message != "" || k.bare {
		return f.Message
	}
	m := f.Messages
	if m == nil {
		m = x.messages
	}
	if text := m.For(r); text != "" {
		return text
	}
	return k.detail
}
