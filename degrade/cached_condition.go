package degrade

import (
	"net/http"
	"strings"
)

// notModified evaluates the conditions of a request against a page, RFC 9110 13.2.2.
func notModified(r *http.Request, page *Page) bool {
	if page.Status/100 != 2 {
		return false
	}
	if lines := r.Header["If-None-Match"]; len(lines) > 0 {
		return matchesTag(strings.Join(lines, ", "), page.Header.Get("Etag"))
	}
	since, err := http.ParseTime(r.Header.Get("If-Modified-Since"))
	if err != nil || len(r.Header["If-Modified-Since"]) > 1 {
		return false
	}
	modified, err := http.ParseTime(page.Header.Get("Last-Modified"))
	return err == nil && !modified.After(since)
}

// matchesTag compares weakly, RFC 9110 8.8.3.2. A list that cannot be read matches nothing from there on.
func matchesTag(list, tag string) bool {
	if strings.TrimSpace(list) == "*" {
		return true
	}
	opaque, rest, ok := cutTag(tag)
	if !ok || rest != "" {
		return false
	}
	for list = afterCommas(list); list != ""; list = afterCommas(list) {
		var other string
		if other, list, ok = cutTag(list); !ok {
			return false
		}
		if list = strings.TrimLeft(list, " \t"); list != "" && list[0] != ',' {
			return false
		}
		if other == opaque {
			return true
		}
	}
	return false
}

// cutTag cuts an entity-tag off s and returns its opaque part, quotes included.
func cutTag(s string) (opaque, rest string, ok bool) {
	s = strings.TrimPrefix(s, "W/")
	if !strings.HasPrefix(s, `"`) {
		return "", "", false
	}
	end := strings.IndexByte(s[1:], '"')
	if end < 0 {
		return "", "", false
	}
	return s[:end+2], s[end+2:], true
}
