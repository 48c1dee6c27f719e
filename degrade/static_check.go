package degrade

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spillway-go/spillway/internal/negotiate"
	"github.com/spillway-go/spillway/limiter"
)

func newStatic(cfg StaticConfig) *static {
	s := &static{status: cfg.Status, control: fixedNoStore}
	if cfg.CacheControl != "" {
		s.control = []string{cfg.CacheControl}
		s.shared = !listed(s.control, "no-store") && !listed(s.control, "private")
	}
	s.checkStatus(cfg)
	vary := s.checkHeader(cfg.Header)
	s.vary = newFieldList(vary...)
	s.checkContents(cfg, vary)
	return s
}

func (s *static) wrong(format string, args ...any) {
	s.errs = append(s.errs, fmt.Errorf("degrade: Static: %w: "+format, append([]any{limiter.ErrInvalid}, args...)...))
}

func (s *static) checkStatus(cfg StaticConfig) {
	switch {
	case cfg.Status == 0 && len(cfg.Contents) == 0:
		s.wrong("neither Status nor Contents: nothing to serve")
	case cfg.Status != 0 && (cfg.Status < 200 || cfg.Status > 599):
		s.wrong("Status: %d, want 200…599, or 0 for that of the refusal", cfg.Status)
	case bodiless(cfg.Status) && len(cfg.Contents) > 0:
		s.wrong("Status: %d has no body, want no Contents", cfg.Status)
	}
	switch {
	case !isFieldValue(cfg.CacheControl):
		s.wrong("CacheControl: %q is no value of a field", cfg.CacheControl)
	case cfg.CacheControl != "" && (cfg.Status == 0 || cfg.Status == http.StatusTooManyRequests) && !listed(s.control, "no-store"):
		s.wrong("CacheControl: %q: a 429 is never to be stored, want no-store, or another Status", cfg.CacheControl)
	}
}

// elsewhere says of fields that are not to be set why.
var elsewhere = map[string]string{
	"Content-Type": "is the Type of a Content", "Content-Language": "is the Language of a Content", "Cache-Control": "is CacheControl",
	"X-Content-Type-Options": "is always nosniff",
	"Content-Length":         "is counted", "Content-Encoding": "is not negotiated", "Content-Range": "is of a part",
	"Set-Cookie": "is of one client", "Set-Cookie2": "is of one client",
	"Date": "is of the server", "Age": "is of a copy", "Cache-Status": "is of a cache",
	"Connection": "is of the connection", "Keep-Alive": "is of the connection", "Proxy-Connection": "is of the connection", "Te": "is of the connection",
	"Trailer": "is of the connection", "Transfer-Encoding": "is of the connection", "Upgrade": "is of the connection", "Retry-After": "is of the limit",
}

var fieldName = regexp.MustCompile("^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")

// isFieldValue reports whether s can be the value of a field (RFC 9110 section 5.5).
func isFieldValue(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

// checkHeader takes over the fields, and returns the names that Vary has.
func (s *static) checkHeader(h http.Header) (vary []string) {
	s.header = make(http.Header, len(h))
	seen := make(map[string]string, len(h))
	for _, name := range slices.Sorted(maps.Keys(h)) {
		key := http.CanonicalHeaderKey(name)
		other, twice := seen[key]
		seen[key] = name
		why := elsewhere[key]
		if why == "" && (strings.HasPrefix(key, "Ratelimit") || strings.HasPrefix(key, "X-Ratelimit")) {
			why = "is of the limit"
		}
		switch {
		case !fieldName.MatchString(name):
			s.wrong("Header: %q is no name of a field", name)
			continue
		case twice:
			s.wrong("Header: %q and %q are one field", other, name)
		case why != "":
			s.wrong("Header: %s %s, and not to be set", key, why)
		}
		lines := slices.Clone(h[name])
		for _, line := range lines {
			if !isFieldValue(line) {
				s.wrong("Header: %s: %q is no value of a field", key, line)
			}
		}
		switch key {
		case "Vary":
			vary = members(lines)
		case "Access-Control-Expose-Headers":
			s.expose = newFieldList(members(lines)...)
		default:
			s.header[key] = slices.Clip(lines)
		}
	}
	return vary
}

func members(lines []string) (names []string) {
	for _, line := range lines {
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.Trim(name, " \t"); name != "" && !listed(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// checkContents makes the choices: by type in the order of their first content, and then by language.
func (s *static) checkContents(cfg StaticConfig, vary []string) {
	var types []string
	var tags [][]negotiate.Tag
	for i, c := range cfg.Contents {
		body, name := s.readContent(cfg.FS, i, c)
		if name == "" {
			continue // nothing more to say of it
		}
		at := slices.Index(types, name)
		if at < 0 {
			at = len(types)
			types, tags, s.choices = append(types, name), append(tags, nil), append(s.choices, staticChoice{rest: -1})
		}
		choice := &s.choices[at]
		if c.Language == "" {
			if choice.rest >= 0 {
				s.wrong("Contents[%d]: %s without a language is there twice", i, name)
			}
			choice.rest = len(choice.bodies)
		} else if tag, err := negotiate.ParseTag(c.Language); err != nil {
			s.wrong("Contents[%d]: Language: %q: %w", i, c.Language, err)
		} else {
			if slices.Contains(tags[at], tag) {
				s.wrong("Contents[%d]: %s in %v is there twice", i, name, tag)
			}
			tags[at], choice.tagged = append(tags[at], tag), append(choice.tagged, len(choice.bodies))
			body.language = []string{tag.String()}
		}
		choice.bodies = append(choice.bodies, body)
	}
	for i := range s.choices {
		c := &s.choices[i]
		c.languages, c.rest = negotiate.NewLanguages(tags[i]...), max(0, c.rest)
		names := slices.Clone(vary)
		if len(types) > 1 {
			names = append(names, "Accept")
		}
		if len(c.bodies) > 1 {
			names = append(names, "Accept-Language")
		}
		c.vary = newFieldList(members(names)...)
	}
	s.types = negotiate.NewTypes(types...)
}

// readContent returns the body of Contents[i] and its type without parameters, "" if that is none.
func (s *static) readContent(files fs.FS, i int, c Content) (body fixedBody, name string) {
	name, params, err := mime.ParseMediaType(c.Type)
	if main, sub, _ := strings.Cut(name, "/"); err != nil || main == "" || sub == "" || strings.Contains(name, "*") {
		s.wrong("Contents[%d]: Type: %q is no media type", i, c.Type)
		name = ""
	}
	b := bytes.Clone(c.Body)
	switch {
	case c.File != "" && c.Body != nil:
		s.wrong("Contents[%d]: Body and File, want one", i)
	case c.File != "" && files == nil:
		s.wrong("Contents[%d]: File: %q, and no FS", i, c.File)
	case c.File != "":
		if b, err = readBounded(files, c.File); err != nil {
			s.wrong("Contents[%d]: File: %w", i, err)
		}
	case c.Body == nil:
		s.wrong("Contents[%d]: neither Body nor File", i)
	}
	if len(b) > MaxContent {
		s.wrong("Contents[%d]: longer than %d bytes", i, MaxContent)
	}
	if strings.HasPrefix(name, "text/") && params["charset"] == "" && utf8.Valid(b) {
		params["charset"] = "utf-8"
	}
	return newFixedBody(b, mime.FormatMediaType(name, params)), name
}

// readBounded reads a file, at most one byte more than a content may have.
func readBounded(files fs.FS, name string) ([]byte, error) {
	// Opening a pipe waits for its other end.
	info, err := fs.Stat(files, name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", name)
	}
	f, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return io.ReadAll(io.LimitReader(f, MaxContent+1))
}
