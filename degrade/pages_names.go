package degrade

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
)

// Names of request fields and of parameters that tell who asks. Proxies and gateways invent new ones all the time, so they
// go by their words: what is taken for a credential and is none costs copies, one that is missed costs a leak. A word ends
// at whatever is no letter and no digit, as programs behind CGI and WSGI read X_Api_Key as X-Api-Key.
var (
	// tellingParts begin or end a word.
	tellingParts = [][]byte{
		[]byte("account"), []byte("assertion"), []byte("auth"), []byte("cert"), []byte("consumer"), []byte("cookie"), []byte("credential"),
		[]byte("email"), []byte("identity"), []byte("jwt"), []byte("login"), []byte("oidc"), []byte("openid"), []byte("passwd"),
		[]byte("password"), []byte("principal"), []byte("saml"), []byte("secret"), []byte("session"), []byte("signature"), []byte("token"),
		[]byte("user"),
	}
	// tellingWords are whole words.
	tellingWords = []string{"bearer", "dn", "dpop", "pwd", "sid", "sig", "sso", "uid"}
)

// tells reports whether a field or a parameter of this name says who asks, by the rule in [PagesConfig.Credentials].
func tells(name string) bool {
	switch name { // what nearly every request has, at no cost
	case "Accept", "Accept-Encoding", "Accept-Language", "Cache-Control", "Connection", "Content-Length", "Content-Type", "Dnt", "Forwarded",
		"If-Modified-Since", "If-None-Match", "Origin", "Pragma", "Priority", "Referer", "Save-Data", "Te", "Traceparent", "Tracestate",
		"Upgrade-Insecure-Requests", "User-Agent", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Port", "X-Forwarded-Proto",
		"X-Real-Ip", "X-Request-Id", "X-Requested-With":
		return false
	}
	if strings.HasPrefix(name, "Sec-") { // a browser's own, such as Sec-Fetch-User
		return false
	}
	var buf [64]byte
	rest := appendLower(buf[:0], name)
	var found, user, key, replay, tls, client bool
	for len(rest) > 0 {
		var word []byte
		word, rest = cutWord(rest)
		switch string(word) {
		case "csrf", "xsrf": // scripts send it along with a cookie
			return false
		case "agent":
			user = false
		case "idempotency", "cache":
			replay = true
		case "ssl", "tls", "mtls":
			tls = true
		case "client":
			client = true
		}
		found = found || user
		user = string(word) == "user"
		key = key || bytes.HasSuffix(word, []byte("key"))
		found = found || !user && tellingWord(word)
	}
	return found || user || key && !replay || tls && client
}

func tellingWord(word []byte) bool {
	for _, part := range tellingParts {
		if bytes.HasPrefix(word, part) || bytes.HasSuffix(word, part) {
			return true
		}
	}
	return slices.Contains(tellingWords, string(word))
}

// cutWord cuts the first word off s, with what is between it and the next one.
func cutWord(s []byte) (word, rest []byte) {
	i := 0
	for i < len(s) && alphanumeric(s[i]) {
		i++
	}
	word = s[:i]
	for i < len(s) && !alphanumeric(s[i]) {
		i++
	}
	return word, s[i:]
}

func alphanumeric(b byte) bool {
	return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9'
}

// ambiguous reports whether a name is read as another one by programs behind CGI and WSGI.
func ambiguous(name string) bool {
	for i := range len(name) {
		if !plainByte[name[i]] {
			return true
		}
	}
	return false
}

// plainByte is a table, as all names of all requests are looked at.
var plainByte = func() (t [256]bool) {
	for i := range t {
		t[i] = alphanumeric(byte(i)) || i == '-'
	}
	return t
}()

// unambiguous is the name that such programs read.
func unambiguous(name string) string {
	return http.CanonicalHeaderKey(strings.Map(func(r rune) rune {
		if r < 0x80 && alphanumeric(byte(r)) {
			return r
		}
		return '-'
	}, name))
}

// overrides reports whether something further in may take a request for one of another method.
func overrides(h http.Header) bool {
	for name := range h {
		if overriding(name) || ambiguous(name) && overriding(unambiguous(name)) {
			return true
		}
	}
	return false
}

func overriding(name string) bool {
	switch name {
	case "X-Http-Method-Override", "X-Http-Method", "X-Method-Override":
		return true
	}
	return false
}

// appendAmbiguous appends the fields that something further in may read as others. So they tell copies apart, whatever
// Vary says of the name that is meant.
func appendAmbiguous(b []byte, h http.Header) []byte {
	var names []string // hardly ever any
	for name := range h {
		if ambiguous(name) {
			names = append(names, name)
		}
	}
	return appendFields(b, h, names)
}

// appendFields appends fields by name.
func appendFields(b []byte, h http.Header, names []string) []byte {
	slices.Sort(names)
	for _, name := range names {
		for _, v := range h[name] {
			b = append(b, 1)
			b = appendField(b, name)
			b = appendField(b, v)
		}
	}
	return append(b, 0)
}
