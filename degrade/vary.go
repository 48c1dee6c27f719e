package degrade

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"net/http"
	"slices"
	"strings"
)

// MaxVary is how many request fields a response that is stored may depend on.
const MaxVary = 8

// varyNames returns the request fields that lines of Vary name, canonical and sorted. It is not ok if the response depends
// on something else, on more than [MaxVary] fields, or on names that are none.
func varyNames(lines []string, encoded bool) (names []string, ok bool) {
	for _, line := range lines {
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.Trim(name, " \t"); name == "" {
				continue
			}
			if name == "*" || !isToken(name) {
				return nil, false
			}
			names = append(names, strings.Clone(http.CanonicalHeaderKey(name))) // not the text it is a part of
		}
	}
	// Whoever compresses and forgets to say so must not hand gzip to those who cannot read it.
	if encoded {
		names = append(names, "Accept-Encoding")
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return names, len(names) <= MaxVary
}

// variant is a hash of the values of the fields named: who may read a store learns no cookie from it. Lines are joined and
// blanks around them dropped, RFC 9111 4.1, and nothing else is normalised: a difference that means nothing costs a copy,
// one that means something and is passed over costs a leak.
func variant(names []string, values func(name string) []string) string {
	if len(names) == 0 {
		return ""
	}
	var buf [512]byte
	b := buf[:0]
	for _, name := range names {
		lines := values(name)
		b = appendField(b, name)
		b = append(b, byte(min(len(lines), 1))) // an absent field is not an empty one
		text := ""
		if len(lines) == 1 {
			text = strings.Trim(lines[0], " \t")
		} else if len(lines) > 1 {
			trimmed := make([]string, len(lines))
			for i, s := range lines {
				trimmed[i] = strings.Trim(s, " \t")
			}
			text = strings.Join(trimmed, ", ")
		}
		b = appendField(b, text)
	}
	return digest(b)
}

// appendField appends s behind its length, so that no value can be mistaken for the end of another.
func appendField(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	var text [43]byte
	base64.RawURLEncoding.Encode(text[:], sum[:])
	return string(text[:])
}

// fieldsOf returns the values of request fields. Host is one, which net/http keeps elsewhere.
func fieldsOf(r *http.Request) func(name string) []string {
	return func(name string) []string {
		if name == "Host" {
			return []string{r.Host}
		}
		return r.Header[name]
	}
}
