// Package patterns exists so that policies and degrade handlers refuse the same patterns of routes, which http.ServeMux does not.
package patterns

import (
	"fmt"
	"strings"
)

// Mistaken finds patterns that ServeMux takes for others than their author means, and that would never match. Nobody would
// notice before the day they are needed.
func Mistaken(pattern string) error {
	host := pattern
	if end := strings.IndexAny(pattern, " \t"); end >= 0 {
		if method := pattern[:end]; method != strings.ToUpper(method) {
			return fmt.Errorf("route %q: methods are in upper case", pattern)
		}
		host = strings.TrimLeft(pattern[end:], " \t")
	}
	host, rest, _ := strings.Cut(host, "/")
	if host != "" && host == strings.ToUpper(host) && strings.Trim(host, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" {
		return fmt.Errorf("route %q: %q is read as a host; a blank belongs between method and path", pattern, host)
	}
	for segment := range strings.SplitSeq(rest, "/") {
		if strings.HasPrefix(segment, ":") || strings.HasPrefix(segment, "*") {
			return fmt.Errorf("route %q: write {name} for one segment and {name...} for the rest; routes have the syntax of http.ServeMux in every framework", pattern)
		}
	}
	return nil
}
