package config

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spillway-go/spillway/keyfunc"
)

// keyExpr is one element of a policy's key.
type keyExpr struct {
	fn     keyfunc.Func
	kinds  []string
	hmac   bool // values are keyed
	chosen bool // the client alone chooses the value
}

// keyParser reads elements of keys:
//
//	expr  = "ip" [ "/" bits [ "/" bits ] ] | "route" | "global"
//	      | ("header" | "cookie" | "query" | "param") ":" name
//	      | "hmac(" expr ")" | "first(" expr *( "," expr ) ")" | registered name
type keyParser struct {
	registered map[string]keyfunc.Func
	secret     []byte
	noSecret   string // why there is none, "" if that is a finding already
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
		if p.secret == nil {
			return e, "", &keyError{MissingField, "hmac needs a secret: " + p.noSecret, "Set key_secret or key_secret_file."}
		}
		e = args[0]
		e.fn, e.hmac = keyfunc.HMAC(p.secret, e.fn), true
		return e, rest, nil
	case "first":
		var funcs []keyfunc.Func
		for _, a := range args {
			funcs = append(funcs, a.fn)
			e.kinds = append(e.kinds, a.kinds...)
			e.chosen = e.chosen || a.chosen
			e.hmac = e.hmac || a.hmac
		}
		e.fn = keyfunc.First(funcs...)
		return e, rest, nil
	}
	return e, "", &keyError{InvalidValue, fmt.Sprintf("%q is no function of keys", name), suggest(name, []string{"hmac", "first"})}
}

func (p *keyParser) word(word string) (e keyExpr, err error) {
	source, name, named := strings.Cut(word, ":")
	if named {
		name = strings.TrimSpace(name)
		sources := map[string]func(string) keyfunc.Func{
			"header": keyfunc.Header, "cookie": keyfunc.Cookie, "query": keyfunc.Query, "param": keyfunc.Param,
		}
		make, ok := sources[source]
		if !ok {
			return e, &keyError{InvalidValue, fmt.Sprintf("%q is no source of keys", source), suggest(source, slices.Sorted(maps.Keys(sources)))}
		}
		e = keyExpr{fn: make(name), chosen: true}
	} else if word == "ip" || strings.HasPrefix(word, "ip/") {
		if e.fn, err = ipKey(word); err != nil {
			return e, err
		}
	} else if word == "route" {
		e.fn = keyfunc.Route()
	} else if word == "global" {
		e.fn = keyfunc.Global()
	} else if e.fn = p.registered[word]; e.fn == nil {
		known := append(slices.Clone(builtins), slices.Sorted(maps.Keys(p.registered))...)
		return e, &keyError{UnknownName, fmt.Sprintf("no key is registered as %q", word), suggest(word, known)}
	}
	if e.kinds, err = keyfunc.Kinds(e.fn); err != nil {
		return e, &keyError{InvalidValue, err.Error(), ""}
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

// identity returns how a value of one kind stands in keys that e makes.
func (e *keyExpr) identity(kind, value string, secret []byte) (string, error) {
	if kind == "ip" {
		if addr, err := netip.ParseAddr(value); err == nil && addr.Unmap().Is6() {
			value = netip.PrefixFrom(addr, 64).Masked().String()
		}
	}
	constant := keyfunc.Func(func(r *keyfunc.Request) (keyfunc.Key, error) { return r.Key(kind, value), nil })
	if e.hmac {
		constant = keyfunc.HMAC(secret, constant)
	}
	r := new(keyfunc.Request)
	r.Reset(probeRequest(), nil, nil)
	k, err := r.Resolve(constant)
	if err != nil {
		return "", err
	}
	return k.In(r.Freeze()), nil
}
