package response_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/response"
)

// fields reads "Name: value" lines.
func fields(text string) http.Header {
	h := http.Header{}
	for line := range strings.SplitSeq(text, "\n") {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			h.Add(name, value)
		}
	}
	return h
}

// What a proxy sends is the fields of both, and true.
func TestJoin(t *testing.T) {
	for name, c := range map[string]struct {
		outer, inner string
		status       int
		want         string
	}{
		"nothing from them": {
			`X-RateLimit-Remaining: 5`, `Content-Type: text/plain`, 200,
			"X-RateLimit-Remaining: 5\nContent-Type: text/plain",
		},
		"they have fewer left": {
			"X-RateLimit-Limit: 10\nX-RateLimit-Remaining: 5\nX-RateLimit-Reset: 1", "X-RateLimit-Limit: 3\nX-RateLimit-Remaining: 2\nX-RateLimit-Reset: 7", 200,
			"X-RateLimit-Limit: 3\nX-RateLimit-Remaining: 2\nX-RateLimit-Reset: 7",
		},
		"we have fewer left": {
			"X-RateLimit-Limit: 10\nX-RateLimit-Remaining: 1\nX-RateLimit-Reset: 1", "X-RateLimit-Limit: 3\nX-RateLimit-Remaining: 2\nX-RateLimit-Reset: 7", 200,
			"X-RateLimit-Limit: 10\nX-RateLimit-Remaining: 1\nX-RateLimit-Reset: 1",
		},
		"both lists": {
			"RateLimit: \"a\";r=5;t=1\nRateLimit-Policy: \"a\";q=10;w=1", "RateLimit: \"b\";r=4;t=1\nRateLimit-Policy: \"b\";q=9;w=1", 200,
			"RateLimit: \"a\";r=5;t=1\nRateLimit: \"b\";r=4;t=1\nRateLimit-Policy: \"a\";q=10;w=1\nRateLimit-Policy: \"b\";q=9;w=1",
		},
		"they refuse": {
			"RateLimit: \"a\";r=5;t=1\nRateLimit-Policy: \"a\";q=10;w=1\nX-RateLimit-Remaining: 0", "RateLimit: \"b\";r=0;t=9\nRateLimit-Policy: \"b\";q=9;w=1\nX-RateLimit-Remaining: 0\nRetry-After: 9", 429,
			"RateLimit: \"b\";r=0;t=9\nRateLimit-Policy: \"a\";q=10;w=1\nRateLimit-Policy: \"b\";q=9;w=1\nX-RateLimit-Remaining: 0\nRetry-After: 9",
		},
		"they are overloaded": {
			"X-RateLimit-Remaining: 5", "Retry-After: 9", 503, "Retry-After: 9",
		},
		"503 of another kind": {
			"X-RateLimit-Remaining: 5", "Content-Type: text/plain", 503, "X-RateLimit-Remaining: 5\nContent-Type: text/plain",
		},
		"another draft on a pass": {
			"RateLimit: \"a\";r=5;t=1\nRateLimit-Policy: \"a\";q=10;w=1", "RateLimit: limit=9, remaining=1, reset=1\nRateLimit-Policy: 9;w=1", 200,
			"RateLimit: \"a\";r=5;t=1\nRateLimit-Policy: \"a\";q=10;w=1",
		},
		"another draft on a refusal": {
			"RateLimit: \"a\";r=5;t=1\nRateLimit-Policy: \"a\";q=10;w=1", "RateLimit: limit=9, remaining=0, reset=1\nRateLimit-Policy: 9;w=1\nRetry-After: 1", 429,
			"RateLimit: limit=9, remaining=0, reset=1\nRateLimit-Policy: 9;w=1\nRetry-After: 1",
		},
		"draft 7 twice": {
			"RateLimit: limit=9, remaining=5, reset=1\nRateLimit-Policy: 9;w=1", "RateLimit: limit=8, remaining=4, reset=1\nRateLimit-Policy: 8;w=1", 200,
			"RateLimit: limit=8, remaining=4, reset=1\nRateLimit-Policy: 8;w=1",
		},
		"draft 6 twice": {
			"RateLimit-Limit: 9\nRateLimit-Remaining: 4\nRateLimit-Reset: 1", "RateLimit-Limit: 8\nRateLimit-Remaining: 5\nRateLimit-Reset: 2", 200,
			"RateLimit-Limit: 9\nRateLimit-Remaining: 4\nRateLimit-Reset: 1",
		},
		"lines that repeat themselves": {
			"X-RateLimit-Remaining: 5", "X-RateLimit-Remaining: 2\nX-RateLimit-Remaining: 3\nRetry-After: 2\nRetry-After: 30", 200,
			"X-RateLimit-Remaining: 2\nRetry-After: 30",
		},
		"what is no number is plenty": {
			"X-RateLimit-Remaining: 5", "X-RateLimit-Remaining: many", 200, "X-RateLimit-Remaining: 5",
		},
	} {
		t.Run(name, func(t *testing.T) {
			outer, inner := fields(c.outer), fields(c.inner)
			response.Join(outer, inner, c.status)
			for key, lines := range inner {
				for _, line := range lines {
					outer.Add(key, line)
				}
			}
			require.Equal(t, fields(c.want), outer)
		})
	}
}
