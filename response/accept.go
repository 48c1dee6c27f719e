package response

import (
	"net/http"
	"strings"

	"github.com/spillway-go/spillway/internal/negotiate"
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
				rest = max(rest, negotiate.Weight(params))
			case negotiate.IsJSON(name):
				json = max(json, negotiate.Weight(params))
			case strings.EqualFold(name, "text/plain"), strings.EqualFold(name, "text/html"), strings.EqualFold(name, "text/*"):
				text = max(text, negotiate.Weight(params))
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
