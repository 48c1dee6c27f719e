package middleware

import (
	"net/http"
	"net/url"
	"strings"
)

// muxRoute is the framework of a request that has not reached its ServeMux yet.
type muxRoute struct {
	r   *http.Request
	mux *http.ServeMux
}

// Route costs a look-up in the mux: it is called only if a key wants the route.
func (m *muxRoute) Route() string {
	_, pattern := m.mux.Handler(m.r)
	return pattern
}

// Param returns what the mux will match, or what one further out has matched.
func (m *muxRoute) Param(name string) string {
	if value := pathValue(m.Route(), m.r.URL.EscapedPath(), name); value != "" {
		return value
	}
	return m.r.PathValue(name)
}

func (m *muxRoute) Value(string) (any, bool) { return nil, false }

// PathRouted: a ServeMux matches by path, as policies do.
func (m *muxRoute) PathRouted() bool { return true }

// pathValue returns the value of the wildcard of that name where path matches pattern.
func pathValue(pattern, path, name string) string {
	_, pattern, _ = strings.Cut(pattern, "/") // method and host
	path = strings.TrimPrefix(path, "/")
	for pattern != "" {
		segment, more, _ := strings.Cut(pattern, "/")
		value, rest, _ := strings.Cut(path, "/")
		if wild, ok := strings.CutPrefix(segment, "{"); ok {
			wild, all := strings.CutSuffix(strings.TrimSuffix(wild, "}"), "...")
			if wild == name {
				if all {
					value = path
				}
				if text, err := url.PathUnescape(value); err == nil {
					return text
				}
				return value
			}
		}
		pattern, path = more, rest
	}
	return ""
}
