package config

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// keyExpr is one element of a policy's key.
type keyExpr struct {
	fn     keyfunc.Func
	kinds  []kind
	chosen bool // the client alone chooses the value
}

// kind is one kind of an element's keys.
type kind struct {
	name string
	hmac bool         // values are keyed
	ip   keyfunc.Func // how an address is counted; nil: this is no address
}

func (k kind) same(other kind) bool { return k.name == other.name }

// keyParser reads elements of keys:
//
//	expr  = "ip" [ "/" bits [ "/" bits ] ] | "route" | "global"
//	      | ("header" | "cookie" | "query" | "param") ":" name
//	      | "hmac(" expr ")" | "first(" expr *( "," expr ) ")" | registered name
type keyParser struct {
	registered map[string]keyfunc.Func
	secret     []byte
	noSecret   bool // the document has none; else that there is none is a finding already
}

// keyError is what is wrong with an element.
type keyError struct{ id, message, suggestion string }

func (e *keyError) Error() string { return e.message }

func (p *keyParser) parse(text string) (keyExpr, error) {
	e, rest, err := p.expr(strings.TrimSpace(text), 0)
	if err == nil && rest != "" {
		err = &keyError{InvalidValue, fmt.Sprintf("%q is left over", rest), ""}
	}
	return e, err
}

var builtins = []string{"ip", "route", "global", "header:NAME", "cookie:NAME", "query:NAME", "param:NAME", "hmac(…)", "first(…)"}

func (p *keyParser) expr(text string, depth int) (e keyExpr, rest string, err error) {
	end := strings.IndexAny(text, "(),")
	if end < 0 {
		end = len(text)
	}
	word, rest := strings.TrimSpace(text[:end]), text[end:]
	if strings.HasPrefix(rest, "(") {
		if depth > 4 {
			return e, "", &keyError{InvalidValue, "too many brackets", ""}
		}
		return p.call(word, rest[1:], depth)
	}
	e, err = p.word(word)
	return e, rest, err
}

// call reads the arguments of hmac and first.
func (p *keyParser) call(name, text string, depth int) (e keyExpr, rest string, err error) {
	var args []keyExpr
	for {
		var arg keyExpr
		if arg, text, err = p.expr(strings.TrimSpace(text), depth+1); err != nil {
			return e, "", err
		}
		args = append(args, arg)
		text = strings.TrimSpace(text)
		switch {
		case strings.HasPrefix(text, ","):
			text = text[1:]
			continue
		case !strings.HasPrefix(text, ")"):
			return e, "", &keyError{InvalidValue, fmt.Sprintf("%s( has no )", name), ""}
		}
		rest = strings.TrimSpace(text[1:])
		break
	}
	switch name {
	case "hmac":
		if len(args) != 1 {
			return e, "", &keyError{InvalidValue, "hmac takes one key", ""}
		}
		if p.noSecret {
			return e, "", &keyError{MissingField, "hmac needs a secret, and the document has none", "Set key_secret or key_secret_file."}
		}
		e = args[0]
		if p.secret != nil {
			e.fn = keyfunc.HMAC(p.secret, e.fn)
		}
		for k := range e.kinds {
			e.kinds[k].hmac = true
		}
		return e, rest, nil
	case "first":
		var funcs []keyfunc.Func
		for _, a := range args {
			funcs = append(funcs, a.fn)
			e.kinds = append(e.kinds, a.kinds...)
			e.chosen = e.chosen || a.chosen
		}
		e.fn = keyfunc.First(funcs...)
		return e, rest, nil
	}
	return e, "", &keyError{InvalidValue, fmt.Sprintf("%q is no function of keys", name), suggest(name, []string{"hmac", "first"})}
}

func (p *keyParser) word(word string) (e keyExpr, err error) {
	source, name, named := strings.Cut(word, ":")
	var ip keyfunc.Func
	switch {
	case named:
		sources := map[string]func(string) keyfunc.Func{
			"header": keyfunc.Header, "cookie": keyfunc.Cookie, "query": keyfunc.Query, "param": keyfunc.Param,
		}
		of, ok := sources[source]
		if !ok {
			return e, &keyError{InvalidValue, fmt.Sprintf("%q is no source of keys", source), suggest(source, slices.Sorted(maps.Keys(sources)))}
		}
		e.fn, e.chosen = of(strings.TrimSpace(name)), true
	case word == "ip" || strings.HasPrefix(word, "ip/"):
		if e.fn, err = ipKey(word); err != nil {
			return e, err
		}
		ip = e.fn
	case word == "route":
		e.fn = keyfunc.Route()
	case word == "global":
		e.fn = keyfunc.Global()
	default:
		if e.fn = p.registered[word]; e.fn == nil {
			known := append(slices.Clone(builtins), slices.Sorted(maps.Keys(p.registered))...)
			return e, &keyError{UnknownName, fmt.Sprintf("no key is registered as %q", word), suggest(word, known)}
		}
	}
	kinds, err := keyfunc.Kinds(e.fn)
	if err != nil {
		return e, &keyError{InvalidValue, strings.TrimSuffix(err.Error(), ": "+limiter.ErrInvalid.Error()), ""}
	}
	for _, name := range kinds {
		k := kind{name: name, ip: ip}
		if name == "ip" && ip == nil {
			k.ip = e.fn
		}
		e.kinds = append(e.kinds, k)
	}
	return e, nil
}

// ipKey reads ip, ip/48 (bits of IPv6) and ip/48/24 (and of IPv4).
func ipKey(word string) (keyfunc.Func, error) {
	parts := strings.Split(word, "/")[1:]
	makers := []func(int) keyfunc.IPOption{keyfunc.IPv6Prefix, keyfunc.IPv4Prefix}
	bad := &keyError{InvalidValue, fmt.Sprintf("%q is no key by address", word), "ip/48 counts IPv6 clients by networks of 48 bits, ip/48/24 also IPv4 clients by 24 bits."}
	if len(parts) > len(makers) {
		return nil, bad
	}
	var options []keyfunc.IPOption
	for k, part := range parts {
		bits, err := strconv.Atoi(part)
		if err != nil {
			return nil, bad
		}
		options = append(options, makers[k](bits))
	}
	return keyfunc.IP(options...), nil
}

// identity returns how a value of a kind stands in keys. Addresses are counted as trust says where the key does not.
func (k kind) identity(value string, secret []byte, trust keyfunc.Trust) (string, error) {
	fn := keyfunc.Func(func(r *keyfunc.Request) (keyfunc.Key, error) { return r.Key(k.name, value), nil })
	request := probeRequest()
	if k.name == "ip" {
		addr, err := netip.ParseAddr(value)
		network, isNetwork := netip.ParsePrefix(value)
		if isNetwork == nil {
			addr, err = network.Addr(), nil
		}
		if err != nil || addr.Zone() != "" {
			return "", errors.New("want an address")
		}
		request.RemoteAddr = netip.AddrPortFrom(addr, 1).String()
		if fn = k.ip; !countsAddress(fn, request, trust) {
			fn = keyfunc.IP()
		}
		if counted, err := identity(fn, request, trust); err == nil && isNetwork == nil && counted != "ip="+network.String() {
			return "", fmt.Errorf("clients are counted as %s here", strings.TrimPrefix(counted, "ip="))
		}
	}
	if k.hmac {
		fn = keyfunc.HMAC(secret, fn)
	}
	return identity(fn, request, trust)
}

// countsAddress tells whether fn, which may be registered, counts a request by its address and nothing else.
func countsAddress(fn keyfunc.Func, request *http.Request, trust keyfunc.Trust) (ok bool) {
	defer func() { _ = recover() }() // it may expect what the request has not
	id, err := identity(fn, request, trust)
	return err == nil && strings.HasPrefix(id, "ip=") && !strings.Contains(id, "|")
}

// identity returns the key of a request whose peer is the client.
func identity(fn keyfunc.Func, request *http.Request, trust keyfunc.Trust) (string, error) {
	by, err := keyfunc.NewClientIP(keyfunc.Trust{IPv6Prefix: trust.IPv6Prefix, IPv4Prefix: trust.IPv4Prefix, NAT64Prefixes: trust.NAT64Prefixes})
	if err != nil {
		return "", err
	}
	var r keyfunc.Request
	r.Reset(request, nil, by)
	key, err := r.Resolve(fn)
	return key.String(), err
}

// KeyPart returns how a caller's value of a kind stands in the keys of a policy of a well-formed document, as kind=value:
// an address as the network by which it is counted, a value of hmac(…) as its digest. It is for tools that look at keys by
// hand. A policy whose keys have no such kind is an error, and so is a secret that cannot be read.
func KeyPart(doc *Document, deps Deps, policy int, name, value string) (string, error) {
	b := &builder{doc: doc, deps: deps}
	b.secret()
	if err := b.found.Err(); err != nil {
		return "", err
	}
	for _, text := range doc.Policies[policy].Key {
		e, err := b.keys.parse(text)
		if err != nil {
			return "", err
		}
		for _, k := range e.kinds {
			if k.name == name {
				return k.identity(value, b.keys.secret, doc.ClientIP.trust())
			}
		}
	}
	return "", fmt.Errorf("config: the keys of policy %q have no %q", doc.Policies[policy].Name, name)
}

// Keyed reports whether values of a kind stand in the keys of a policy as digests, because of hmac(…).
func (p *Policy) Keyed(deps Deps, name string) bool {
	keys := keyParser{registered: deps.Keys, secret: make([]byte, minSecret)}
	for _, text := range p.Key {
		if e, err := keys.parse(text); err == nil && slices.ContainsFunc(e.kinds, func(k kind) bool { return k.name == name && k.hmac }) {
			return true
		}
	}
	return false
}
