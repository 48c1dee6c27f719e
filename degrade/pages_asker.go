package degrade

import (
	"encoding/binary"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spillway-go/spillway/keyfunc"
)

// asker is who asks, as far as it decides which copies are for them.
type asker uint8

const (
	// anonymous: no credentials and no identity. Gets copies made for others like that, and public ones.
	anonymous asker = iota
	// member of a partition, or known by the policy's key: gets copies of that identity, and public ones.
	member
	// stranger: with credentials, and without anything that would say whose. Gets what is public.
	stranger
)

// address is where a request's copies are stored: the preimage of the keys up to the partition, which comes last.
type address struct {
	asker
	key    []byte
	common int // key[:common] is what partitions share
}

// shared is the key of what is not in a partition. All before the partition is delimited by itself, so that no partition
// can be mistaken for a part of it.
func (a *address) shared() string { return digest(a.key[:a.common]) }

// private is the key of the partition.
func (a *address) private() string { return digest(a.key) }

// addressOf appends to buf. It reads everything before a handler runs, as a handler may change the request.
func (p *Pages) addressOf(buf []byte, r *keyfunc.Request, policy, identity string) address {
	b := appendField(buf, policy)
	b = appendField(b, r.Route())
	if r.TLS != nil {
		b = append(b, 's')
	} else {
		b = append(b, 'h')
	}
	b = binary.AppendUvarint(b, uint64(len(r.Host)))
	b = appendLower(b, r.Host)
	b = appendField(b, pathOf(r.RequestURI))
	// Something further out may have rewritten the path, by what nobody here knows.
	b = appendField(b, r.URL.EscapedPath())
	b, telling := p.appendQuery(b, r.URL)
	b = appendSteering(b, r.Header)
	b = appendAmbiguous(b, r.Header)
	a := address{key: b, common: len(b), asker: anonymous}
	credentials := telling || p.credentials(r.Request)
	if credentials {
		a.asker = stranger
	}
	switch {
	case p.cfg.Partition != nil:
		p.partition(&a, r)
	case identifies(identity):
		a.asker, a.key = member, appendIdentity(append(a.key, 0), identity) // a partition is never empty
		if credentials {
			a.key = p.appendCredentials(a.key, r.Request)
		}
	}
	return a
}

// pathOf is the path of a request as it was sent. Proxies may send scheme and host before it, RFC 9112 3.2.2.
func pathOf(uri string) string {
	uri, _, _ = strings.Cut(uri, "?")
	if strings.HasPrefix(uri, "/") {
		return uri
	}
	_, rest, _ := strings.Cut(uri, "://")
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		return rest[i:]
	}
	return ""
}

// partition appends the partition of r, if it has one.
func (p *Pages) partition(a *address, r *keyfunc.Request) {
	defer func() {
		if v := recover(); v != nil {
			p.panicked("Partition", v)
			a.key, a.asker = a.key[:a.common], stranger
		}
	}()
	k, err := r.Resolve(p.cfg.Partition)
	switch {
	case err == nil:
		a.key, a.asker = appendField(a.key, k.In(r.Borrow())), member
	case !errors.Is(err, keyfunc.ErrNoKey):
		a.asker = stranger
	}
}

// addressKind reports whether a part of a policy's key names no caller: an address is shared, and a route is no one at all.
func addressKind(kind string) bool { return kind == "ip" || kind == "route" || kind == "all" }

// identities returns the parts of a policy's key that name more than an address, one after another. A key that is not
// spelled by keyfunc, of a StoreKey, names whom it likes. The value of a path parameter cannot be told from others. It is
// in the path, too, and so tells nothing more apart.
func identities(id string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for part := range strings.SplitSeq(id, "|") {
			kind, _, _ := strings.Cut(part, "=")
			if part != "" && !addressKind(kind) && !yield(part) {
				return
			}
		}
	}
}

// identifies reports whether a policy's key names more than an address.
func identifies(id string) bool {
	for range identities(id) {
		return true
	}
	return false
}

func appendIdentity(b []byte, id string) []byte {
	for part := range identities(id) {
		b = appendField(b, part)
	}
	return append(b, 0)
}

// appendCredentials appends what a request says of who asks. A policy's key need not be verified, as [PagesConfig].Partition
// has to be: it may be a field that anybody can send. So who has credentials gets copies of requests with the same.
func (p *Pages) appendCredentials(b []byte, r *http.Request) []byte {
	var fields []string
	for name := range r.Header {
		if p.credential(name) {
			fields = append(fields, name)
		}
	}
	b = appendFields(b, r.Header, fields)
	b = appendField(b, r.URL.RawQuery)
	if r.TLS != nil {
		for _, c := range r.TLS.PeerCertificates {
			b = appendField(b, string(c.Raw))
		}
	}
	return b
}

// appendQuery appends the query as sent, or what is left of it by the list of names. A parameter that cannot be read is
// kept: the origin may read it. It is telling if a credential was left out, which then tells nothing apart.
func (p *Pages) appendQuery(b []byte, u *url.URL) (_ []byte, telling bool) {
	if p.cfg.Query == nil {
		return appendField(b, u.RawQuery), false
	}
	var kept []string
	for part := range strings.SplitSeq(u.RawQuery, "&") {
		raw, _, _ := strings.Cut(part, "=")
		name, err := url.QueryUnescape(raw)
		switch {
		case err != nil || strings.Contains(part, ";") || slices.Contains(p.cfg.Query, name):
			kept = append(kept, part)
		case tells(name):
			telling = true
		}
	}
	return appendField(b, strings.Join(kept, "&")), telling
}

// steering are fields by which services behind a proxy make up links, tenants and paths. Who may set them is not known
// here, so they tell copies apart: else one request with a forged host would decide what all others get.
var steering = []string{
	"X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Prefix", "X-Forwarded-Scheme", "X-Forwarded-Server",
	"X-Original-Url", "X-Rewrite-Url", "X-Original-Host", "X-Host",
}

func appendSteering(b []byte, h http.Header) []byte {
	for i, name := range steering {
		for _, v := range h[name] {
			b = append(b, byte(i+1))
			b = appendField(b, v)
		}
	}
	// Of Forwarded, RFC 7239, everything but who asks: for= differs from client to client. A piece of a quoted string is
	// at worst taken for a parameter.
	for _, line := range h["Forwarded"] {
		for piece := range strings.FieldsFuncSeq(line, func(r rune) bool { return r == ';' || r == ',' }) {
			piece = strings.TrimSpace(piece)
			if name, _, _ := strings.Cut(piece, "="); !strings.EqualFold(name, "for") && !strings.EqualFold(name, "by") {
				b = append(b, 255)
				b = appendField(b, piece)
			}
		}
	}
	return append(b, 0)
}

// credentials reports whether a request tells who asks, in a way that is not left out of account by the settings.
func (p *Pages) credentials(r *http.Request) bool {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		return true
	}
	for name, values := range r.Header {
		if p.credential(name) && (name != "Cookie" || !p.ignored(values)) {
			return true
		}
	}
	return false
}

// credential reports whether a field of this name tells who asks.
func (p *Pages) credential(name string) bool {
	if tells(name) {
		return true
	}
	if len(p.creds) == 0 {
		return false
	}
	if ambiguous(name) {
		name = unambiguous(name)
	}
	return slices.Contains(p.creds, name)
}

// ignored reports whether lines of Cookie hold nothing but cookies that make no difference. Parsers differ in where a pair
// ends: at a comma or a blank, behind a quoted value, at bytes beyond ASCII that are blanks in Latin-1. So whatever is not of
// the grammar of RFC 6265 4.1.1 makes a difference.
func (p *Pages) ignored(lines []string) bool {
	for _, line := range lines {
		for pair := range strings.SplitSeq(line, ";") {
			pair = strings.Trim(pair, " \t")
			if pair == "" {
				continue
			}
			name, value, _ := strings.Cut(pair, "=")
			if !slices.Contains(p.cfg.IgnoreCookies, name) || !cookieOctets(value) {
				return false
			}
		}
	}
	return true
}

// cookieOctets reports whether s is a cookie-value without quotes. Validate has seen to the names.
func cookieOctets(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c == '"' || c == ',' || c == '\\' || c >= 0x7f {
			return false
		}
	}
	return true
}

func appendLower(b []byte, s string) []byte {
	for i := range len(s) {
		c := s[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		b = append(b, c)
	}
	return b
}
