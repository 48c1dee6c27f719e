package degrade

import (
	"encoding/binary"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spillway-go/spillway/keyfunc"
)

// asker is who asks, as far as it decides which copies are for them.
type asker uint8

const (
	// anonymous: no credentials and no partition. Gets copies made for others like that, and public ones.
	anonymous asker = iota
	// member of a partition: gets copies of it, and public ones.
	member
	// stranger: with credentials, and without a partition that would say whose. Gets what is public.
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
func (p *Pages) addressOf(buf []byte, r *keyfunc.Request, policy string) address {
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
	a := address{key: b, common: len(b), asker: anonymous}
	if telling || p.credentials(r.Request) {
		a.asker = stranger
	}
	if p.cfg.Partition != nil {
		p.partition(&a, r)
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
		case slices.Contains(queryCredentials, strings.ToLower(name)):
			telling = true
		}
	}
	return appendField(b, strings.Join(kept, "&")), telling
}

// queryCredentials are parameters that tell who asks: RFC 6750 2.3, and what is usual.
var queryCredentials = []string{"access_token", "token", "api_key", "apikey", "api-key"}

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
		switch name {
		case "Authorization", "Proxy-Authorization", "X-Api-Key", "Api-Key", "X-Auth-Token", "X-Access-Token":
			return true
		case "Cookie":
			if !p.ignored(values) {
				return true
			}
		}
		if len(p.creds) > 0 && slices.Contains(p.creds, name) {
			return true
		}
	}
	return false
}

// ignored reports whether lines of Cookie hold nothing but cookies that make no difference. A comma or a quote may end
// a cookie for one parser and not for another, so either makes a difference.
func (p *Pages) ignored(lines []string) bool {
	for _, line := range lines {
		for pair := range strings.SplitSeq(line, ";") {
			pair = strings.Trim(pair, " \t")
			if pair == "" {
				continue
			}
			name, _, _ := strings.Cut(pair, "=")
			if !slices.Contains(p.cfg.IgnoreCookies, name) || strings.ContainsAny(pair, `",`) {
				return false
			}
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
