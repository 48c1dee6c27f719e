package keyfunc

import (
	"net/netip"
	"strings"
)

// parseForwarded reads the node of one forwarded-element (RFC 7239 section 4), which has to be well-formed by itself:
//
//	[ token "=" ( token / quoted-string ) ] *( ";" [ … ] )
//
// with "for" exactly once and no blanks. One thing more is let through, a colon in an unquoted value, because proxies
// write for=192.0.2.1:80; an unquoted IPv6 address is not. "unknown" and names such as _hidden are no hop.
func parseForwarded(s string) (netip.Addr, bool) {
	node, quoted, seen := "", false, false
	for s != "" {
		if s[0] == ';' {
			s = s[1:]
			continue
		}
		n := tokenLen(s, false)
		if n == 0 || n == len(s) || s[n] != '=' {
			return netip.Addr{}, false
		}
		name, value, isQuoted := s[:n], "", false
		s = s[n+1:]
		if s != "" && s[0] == '"' {
			n = quotedLen(s)
			if n == 0 {
				return netip.Addr{}, false
			}
			value, isQuoted = s[1:n-1], true
		} else if n = tokenLen(s, true); n == 0 {
			return netip.Addr{}, false
		} else {
			value = s[:n]
		}
		if s = s[n:]; s != "" && s[0] != ';' {
			return netip.Addr{}, false
		}
		if strings.EqualFold(name, "for") {
			if seen {
				return netip.Addr{}, false
			}
			node, quoted, seen = value, isQuoted, true
		}
	}
	if !seen {
		return netip.Addr{}, false
	}
	if quoted {
		return parseHop(unescape(node), true)
	}
	if strings.Count(node, ":") > 1 {
		return netip.Addr{}, false
	}
	return parseHop(node, true)
}

// quotedLen returns the length of the quoted-string at the start of s (RFC 9110 section 5.6.4), 0 if it is not closed or
// holds a control character.
func quotedLen(s string) int {
	for i := 1; i < len(s); i++ {
		switch b := s[i]; {
		case b == '"':
			return i + 1
		case b == '\\':
			i++
			if i < len(s) && (s[i] < ' ' && s[i] != '\t' || s[i] == 0x7f) {
				return 0
			}
		case b < ' ' && b != '\t' || b == 0x7f:
			return 0
		}
	}
	return 0
}

// unescape removes the backslashes of quoted pairs.
func unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
		}
		b = append(b, s[i])
	}
	return string(b)
}

// validToken reports whether s is a token (RFC 9110 section 5.6.2), as field and cookie names are.
func validToken(s string) bool { return s != "" && tokenLen(s, false) == len(s) }

// tokenLen returns the length of the token at the start of s.
func tokenLen(s string, colons bool) int {
	for i := range len(s) {
		if b := s[i]; !alnum(b) && strings.IndexByte("!#$%&'*+-.^_`|~", b) < 0 && (b != ':' || !colons) {
			return i
		}
	}
	return len(s)
}
