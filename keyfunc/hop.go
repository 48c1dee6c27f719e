package keyfunc

import (
	"net/netip"
	"strings"
)

const (
	maxHop              = 64   // bytes of a hop
	maxHopElement       = 256  // bytes of an X-Forwarded-For entry with the blanks around it
	maxForwardedElement = 1024 // bytes of a forwarded-element, which may hold a host name and more
	maxHops             = 100
	maxEmpty            = 1000 // empty elements that are skipped
)

// State of a list after next.
const (
	listEnd     = iota
	listElement // a non-empty element
	listBroken  // an element longer than the window, or too many of them
)

// hops goes through the elements of a list field (RFC 9110 section 5.3) from the end of its last line to the beginning of
// its first. It splits at every comma, quoted or not: quotes are to be found from the left, and the left is the client's,
// who would open one to swallow what the proxy has appended. Each step looks at no more than the window, so a header of a
// megabyte costs no more than its last hops.
type hops struct {
	lines  []string // not yet begun
	rest   string   // of the line begun last
	begun  bool
	window int
	n      int // elements seen
	empty  int
}

func (h *hops) next() (string, int) {
	for {
		if !h.begun {
			last := len(h.lines) - 1
			if last < 0 {
				return "", listEnd
			}
			h.rest, h.lines, h.begun = h.lines[last], h.lines[:last], true
		}
		tail := h.rest
		if len(tail) > h.window {
			tail = tail[len(tail)-h.window:]
		}
		comma := strings.LastIndexByte(tail, ',')
		if comma < 0 && len(tail) < len(h.rest) {
			return "", listBroken
		}
		h.begun = comma >= 0
		h.rest = h.rest[:len(h.rest)-len(tail)+max(comma, 0)]
		element := trimBlanks(tail[comma+1:])
		if element == "" {
			if h.empty++; h.empty > maxEmpty {
				return "", listBroken
			}
			continue
		}
		if h.n++; h.n > maxHops {
			return "", listBroken
		}
		return element, listElement
	}
}

func trimBlanks(s string) string {
	for len(s) > 0 && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for len(s) > 0 && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

func parsePlainHop(s string) (netip.Addr, bool) { return parseHop(s, false) }

// parseHop reads an address with or without a port: [v6], [v6]:port, v4:port, v4 or v6. The port is dropped, for it changes
// with every connection; so is the zone. Mapped IPv4 is unmapped, by its bits and not its spelling. Both come before any
// comparison, because netip matches neither a zoned nor a mapped address against a prefix. The unspecified address is
// nobody's. In Forwarded the port may be a name (RFC 7239 section 6).
func parseHop(s string, portNames bool) (addr netip.Addr, ok bool) {
	s = trimBlanks(s)
	if s == "" || len(s) > maxHop {
		return netip.Addr{}, false
	}
	port := ""
	if s[0] == '[' {
		end := strings.IndexByte(s, ']')
		if end < 0 {
			return netip.Addr{}, false
		}
		addr, ok = parseIPv6(s[1:end])
		port = s[end+1:]
	} else if addr, port, ok = cutIPv4(s); !ok {
		addr, ok = parseIPv6(s)
		port = ""
	}
	if !ok || addr.IsUnspecified() || port != "" && !validPort(port, portNames) {
		return netip.Addr{}, false
	}
	return addr, true
}

// cutIPv4 reads four decimal octets from the start of s and returns what follows. Leading zeros are refused: others read
// them as octal. netip would do, but it allocates an error for everything that is not an address.
func cutIPv4(s string) (netip.Addr, string, bool) {
	var b [4]byte
	for i := range b {
		if i > 0 {
			if s == "" || s[0] != '.' {
				return netip.Addr{}, "", false
			}
			s = s[1:]
		}
		n, digits := 0, 0
		for digits < len(s) && digits < 3 && '0' <= s[digits] && s[digits] <= '9' {
			n = 10*n + int(s[digits]-'0')
			digits++
		}
		if digits == 0 || n > 255 || digits > 1 && s[0] == '0' {
			return netip.Addr{}, "", false
		}
		b[i], s = byte(n), s[digits:]
	}
	return netip.AddrFrom4(b), s, true
}

// parseIPv6 reads a bare IPv6 address. The zone is cut off beforehand: netip would intern it, and it is the sender's text.
func parseIPv6(s string) (netip.Addr, bool) {
	if zone := strings.IndexByte(s, '%'); zone >= 0 {
		if zone == len(s)-1 {
			return netip.Addr{}, false
		}
		s = s[:zone]
	}
	if strings.IndexByte(s, ':') < 0 {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(s)
	return addr.Unmap(), err == nil
}

// peerIPv4 returns the length of the address in "192.0.2.1:1234" if it is an IPv4 address as netip writes it, with a port
// of one to five digits below 65536 behind it, and is not the unspecified one; else 0, and the long way has to tell.
func peerIPv4(s string) int {
	parts, value, digits, sum := 0, 0, 0, 0
	for i := range len(s) {
		c := s[i]
		if d := c - '0'; d <= 9 {
			if digits > 0 && value == 0 { // a leading zero
				return 0
			}
			if value = 10*value + int(d); value > 255 {
				return 0
			}
			digits++
			continue
		}
		if digits == 0 {
			return 0
		}
		parts++
		sum += value
		switch {
		case c == '.' && parts < 4:
			value, digits = 0, 0
		case c == ':' && parts == 4 && sum > 0 && shortPort(s[i+1:]):
			return i
		default:
			return 0
		}
	}
	return 0
}

func shortPort(s string) bool {
	port := 0
	for i := range len(s) {
		d := s[i] - '0'
		if d > 9 {
			return false
		}
		port = 10*port + int(d)
	}
	return len(s) > 0 && len(s) <= 5 && port <= 65535
}

// validPort reports whether s is a colon and a port.
func validPort(s string, names bool) bool {
	if len(s) < 2 || s[0] != ':' {
		return false
	}
	s = s[1:]
	if names && s[0] == '_' {
		for i := 1; i < len(s); i++ {
			if b := s[i]; !alnum(b) && b != '.' && b != '_' && b != '-' {
				return false
			}
		}
		return len(s) > 1
	}
	if len(s) > 5 {
		return false
	}
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
		n = 10*n + int(s[i]-'0')
	}
	return n <= 65535
}
