package degrade

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// fixedBody is a body with the fields that describe it. Each slice is full, so that an append to it copies.
type fixedBody struct {
	bytes    []byte
	mime     []string
	language []string // nil: not told
	length   []string
}

func newFixedBody(b []byte, mime string) fixedBody {
	return fixedBody{bytes: b, mime: []string{mime}, length: []string{strconv.Itoa(len(b))}}
}

var (
	fixedNoSniff = []string{"nosniff"}
	fixedNoStore = []string{"no-store"}
	noLength     = []string{"0"}
)

// writeFixed writes a response with body b, nil for none, and replaces what earlier fields say of a body.
func writeFixed(w http.ResponseWriter, r *http.Request, status int, b *fixedBody) {
	h := w.Header()
	h["X-Content-Type-Options"] = fixedNoSniff
	delete(h, "Content-Type")
	delete(h, "Content-Language")
	delete(h, "Content-Length")
	length := noLength
	if b != nil {
		h["Content-Type"], length = b.mime, b.length
		if b.language != nil {
			h["Content-Language"] = b.language
		}
	}
	// A middleware that compresses announces it before it knows the length.
	if len(h["Content-Encoding"]) == 0 && !bodiless(status) {
		h["Content-Length"] = length
	}
	w.WriteHeader(status)
	if b != nil && r.Method != http.MethodHead {
		_, _ = w.Write(b.bytes) // there is nobody left to tell of an error
	}
}

// bodiless reports whether responses of that status have no body (RFC 9110 sections 15.3.5, 15.3.6 and 15.4.5).
func bodiless(status int) bool {
	return status == http.StatusNoContent || status == http.StatusResetContent || status == http.StatusNotModified
}

// fieldList are members of a field that is a list, and the line that has them all.
type fieldList struct {
	names []string
	line  []string
}

func newFieldList(names ...string) fieldList {
	if len(names) == 0 {
		return fieldList{}
	}
	return fieldList{names, []string{strings.Join(names, ", ")}}
}

// addTo adds the members that are not there yet.
func (l fieldList) addTo(h http.Header, key string) {
	have := h[key]
	if len(l.names) == 0 {
		return
	}
	if len(have) == 0 {
		h[key] = l.line
		return
	}
	var missing []string
	for _, name := range l.names {
		if !listed(have, name) && !listed(have, "*") {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		h[key] = append(slices.Clip(have), strings.Join(missing, ", "))
	}
}

func listed(lines []string, name string) bool {
	for _, line := range lines {
		for member := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.Trim(member, " \t"), name) {
				return true
			}
		}
	}
	return false
}
