package response

import (
	"net/http"
	"strings"
)

const keyAccept = "Accept"

// acceptsProblem decides between a problem document and plain text. Text is for clients that name a text type and no
// JSON type: a browser that shows the answer to a person. Everybody else gets the document, which RFC 9457 allows
// whatever Accept says. A wildcard counts for the document only if it is preferred to the text types named.
func acceptsProblem(r *http.Request) bool {
	if r == nil {
		return true
	}
	lines := r.Header[keyAccept]
	if len(lines) == 0 {
		return true
	}
	json, text, rest := -1, -1, -1 // thousandths; −1: not named
	for _, line := range lines {
		for line != "" {
			var element string
			element, line, _ = strings.Cut(line, ",")
			name, params, _ := strings.Cut(element, ";")
			name = strings.Trim(name, " \t")
			switch {
			case name == "*/*":
				rest = max(rest, weight(params))
			case isJSON(name):
				json = max(json, weight(params))
			case strings.EqualFold(name, "text/plain"), strings.EqualFold(name, "text/html"), strings.EqualFold(name, "text/*"):
				text = max(text, weight(params))
			}
		}
	}
	switch {
	case json > 0:
		return true
	case text > 0:
		return json < 0 && rest > text
	}
	// JSON is refused by name, something else is welcome: then text is the only thing left to send.
	return json < 0 || rest <= 0 || text == 0
}

func isJSON(name string) bool {
	return strings.EqualFold(name, "application/json") || strings.EqualFold(name, typeProblem) ||
		strings.EqualFold(name, "application/*") || strings.EqualFold(name, "text/json") ||
		len(name) > 5 && strings.EqualFold(name[len(name)-5:], "+json")
}

// weight reads the q parameter in thousandths (RFC 9110 section 12.4.2): 1000 without one, and for one that is malformed.
func weight(params string) int {
	for params != "" {
		var p string
		p, params, _ = strings.Cut(params, ";")
		p = strings.Trim(p, " \t")
		if len(p) < 2 || p[0]|0x20 != 'q' || p[1] != '=' {
			continue
		}
		v := p[2:]
		if v == "" || v[0] != '0' && v[0] != '1' || len(v) > 5 || len(v) > 1 && v[1] != '.' {
			return 1000
		}
		n := int(v[0]-'0') * 1000
		for i, unit := 2, 100; i < len(v); i, unit = i+1, unit/10 {
			if v[i] < '0' || v[i] > '9' {
				return 1000
			}
			n += int(v[i]-'0') * unit
		}
		return min(n, 1000)
	}
	return 1000
}
