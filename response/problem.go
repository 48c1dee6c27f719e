package response

import (
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/spillway-go/spillway/limiter"
)

// appendProblem appends the problem document of a refusal (RFC 9457). It is built by hand: reflection would cost more
// than everything else a refusal does.
func appendProblem(b []byte, f *Refusal) []byte {
	k := &kinds[f.Kind.known()]
	b = append(b, `{"type":"`...)
	b = append(b, k.head...)
	if f.Message != "" {
		b = appendJSON(append(b, `,"detail":`...), f.Message)
	}
	if f.Instance != "" {
		b = appendJSON(append(b, `,"instance":`...), f.Instance)
	}
	if len(f.Policies) > 0 && !k.bare {
		b = append(b, `,"violated-policies":`...)
		sep := byte('[')
		for _, name := range f.Policies {
			b = appendJSON(append(b, sep), name)
			sep = ','
		}
		b = append(b, ']')
	}
	if k.code != "" {
		b = append(b, `,"code":"`...)
		b = append(b, k.code...)
		b = append(b, '"')
	}
	// For scripts that cannot read the header.
	if f.RetryAfter != limiter.Never {
		b = append(b, `,"retry_after":`...)
		b = strconv.AppendInt(b, min(max(1, ceilSeconds(f.RetryAfter)), maxInteger), 10)
	}
	return append(b, '}')
}

// appendPhrase appends the body for clients that take text only.
func appendPhrase(b []byte, f *Refusal) []byte {
	b = append(b, http.StatusText(f.Status())...)
	return append(b, '\n')
}

// appendJSON appends a JSON string. Bytes that are not UTF-8 become U+FFFD; <, > and & are escaped so that the text
// stays harmless where a page embeds it.
func appendJSON(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			switch {
			case c == '"' || c == '\\':
				b = append(b, '\\', c)
			case c < 0x20 || c == 0x7f || c == '<' || c == '>' || c == '&':
				b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			default:
				b = append(b, c)
			}
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		b = utf8.AppendRune(b, r)
		i += size
	}
	return append(b, '"')
}
