package config

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// degrade builds the chain of a policy.
func (b *builder) degrade(at string, p *Policy) degrade.Handler {
	var handlers []degrade.Handler
	for k := range p.Degrade {
		if h := b.handler(fmt.Sprintf("%s.degrade[%d]", at, k), p, &p.Degrade[k]); h != nil {
			handlers = append(handlers, h)
		}
	}
	switch len(handlers) {
	case 0:
		return nil
	case 1:
		return handlers[0]
	}
	return degrade.First(handlers...)
}

func (b *builder) handler(at string, p *Policy, h *Handler) degrade.Handler {
	name, _ := h.alone()
	at += "." + name
	switch {
	case h.Cache != nil:
		return b.within(at, h.Cache.Limit, b.cache(at, p, h.Cache))
	case h.ReadOnly != nil:
		return b.within(at, h.ReadOnly.Limit, b.readOnly(at, h.ReadOnly))
	case h.Static != nil:
		return b.within(at, h.Static.Limit, b.static(at, h.Static))
	case h.Queue != nil:
		return b.checked(at, degrade.Queue(degrade.QueueConfig{
			PerKey: h.Queue.PerKey, Total: h.Queue.Total, MaxWait: orOff(h.Queue.MaxWait), ServiceTime: orOff(h.Queue.ServiceTime), NewestFirst: h.Queue.NewestFirst,
		}))
	case h.Redirect != nil:
		return b.within(at, h.Redirect.Limit, b.checked(at, degrade.Redirect(degrade.RedirectConfig{
			URL: h.Redirect.To, Status: h.Redirect.Status, Return: h.Redirect.Return, NoRetryAfter: h.Redirect.NoRetryAfter,
		})))
	case h.Shed != nil:
		return b.shed(at, p, h.Shed)
	case h.Flag != nil:
		return b.within(at, h.Flag.Limit, degrade.Flag())
	case h.Func != nil:
		return b.within(at, h.Func.Limit, registered(b, at+".name", h.Func.Name, b.deps.Degrade, "degrade handler"))
	}
	return b.named(strings.TrimSuffix(at, "."+name), name)
}

// named returns a handler that is written as a name alone.
func (b *builder) named(at, name string) degrade.Handler {
	if name == "" { // which is a finding already
		return nil
	}
	h, ok := b.deps.Degrade[name]
	if !ok {
		known := slices.Sorted(maps.Keys(b.deps.Degrade))
		b.add(false, at, UnknownName, suggest(name, append(known, fieldsOf(typeOfHandler).names...)), "no degrade handler is registered as %q", name)
	}
	return h
}

// needBudget are the handlers that serve requests, or take work to answer: without bounds they would undo the limit.
var needBudget = []string{"cache", "read_only", "flag"}

// within puts a handler into its budget, if it has one.
func (b *builder) within(at string, limit Limit, h degrade.Handler) degrade.Handler {
	if limit == "" || h == nil {
		return h
	}
	l, ok := b.parseLimit(at+".limit", string(limit))
	if !ok {
		return nil
	}
	if name := at[strings.LastIndexByte(at, '.')+1:]; l == limiter.Unlimited && slices.Contains(needBudget, name) {
		b.add(false, at+".limit", Conflict, "Say how much may proceed, such as 60/m.", "without a number there is no budget: %s would serve whatever the policy refuses", name)
		return nil
	}
	return degrade.Within(l, h)
}

// checked tells what a handler finds wrong with its settings, and returns it if nothing is.
func (b *builder) checked(at string, h degrade.Handler) degrade.Handler {
	v, ok := h.(degrade.Validator)
	if !ok {
		return h
	}
	if !b.wrongSettings(at, v.Validate()) {
		return nil
	}
	return h
}

// wrongSettings tells everything that is wrong with the settings of a handler, in the words of a document. true: nothing is.
func (b *builder) wrongSettings(at string, err error) bool {
	for _, err := range split(err) {
		b.bad(at, InvalidValue, "%s", inHandler(err.Error()))
	}
	return err == nil
}

// inHandler writes the names of settings in Go as they are in a document.
func inHandler(message string) string {
	message = strings.ReplaceAll(message, limiter.ErrInvalid.Error()+": ", "")
	message = strings.TrimPrefix(strings.TrimSuffix(message, ": "+limiter.ErrInvalid.Error()), "degrade: ")
	for _, kind := range []string{"Pages: ", "ReadOnly: ", "Static: ", "Queue: ", "Redirect: ", "Shed: ", "Within: "} {
		message = strings.TrimPrefix(message, kind)
	}
	return settingNames.Replace(message)
}

var settingNames = strings.NewReplacer(
	"MaxStaleIfError", "max_stale_if_error", "MaxStale", "max_stale", "MaxBytes", "max_bytes", "MaxPage", "max_page", "Statuses", "statuses",
	"Credentials", "credentials", "IgnoreCookies", "ignore_cookies", "ReadRoutes", "read_routes", "Latch", "latch", "Contents", "contents", "CacheControl", "cache_control", "Header", "headers",
	"PerKey", "per_key", "Total", "total", "MaxWait", "max_wait", "ServiceTime", "service_time", "URL", "to", "Return", "return", "Keep", "keep", "Rotate", "rotate",
	"Status ", "status ",
)

func (b *builder) cache(at string, p *Policy, c *Cache) degrade.Handler {
	partition, ok := b.keyOf(at+".partition", c.Partition)
	if !b.mixes(at, c) || !ok || b.noCaches {
		return nil
	}
	cfg := degrade.PagesConfig{
		MaxBytes: int64(c.MaxBytes), MaxPage: c.MaxPage, MaxStale: orOff(c.MaxStale), MaxStaleIfError: orOff(c.MaxStaleIfError), Statuses: c.Statuses,
		Partition: partition, PartitionName: strings.Join(c.Partition, ","), Credentials: b.who.credentials(c.Credentials), IgnoreCookies: c.IgnoreCookies, Query: c.Query, Flushed: c.Flushed || b.deps.Flushes,
	}
	cfg.Log = b.deps.Logger
	if b.deps.Copies != nil {
		cfg.Store, cfg.MaxBytes = b.deps.Copies(p.Name), 0
	}
	return b.checked(at, degrade.Cached(degrade.NewPages(cfg)))
}

// keyOf returns the key of a list of elements, nil for none. false: some of it is not known.
func (b *builder) keyOf(at string, list List) (keyfunc.Func, bool) {
	var funcs []keyfunc.Func
	for k, text := range list {
		e, err := b.keys.parse(text)
		if err != nil {
			b.keyWrong(fmt.Sprintf("%s[%d]", at, k), err)
			continue
		}
		funcs = append(funcs, e.fn)
	}
	switch {
	case len(funcs) < len(list):
		return nil, false
	case len(funcs) == 0:
		return nil, true
	case len(funcs) == 1:
		return funcs[0], true
	}
	key := keyfunc.Join(funcs...)
	if err := keyfunc.Check(key); err != nil {
		return nil, b.wrongSettings(at, err)
	}
	return key, true
}

func (b *builder) readOnly(at string, r *ReadOnly) degrade.Handler {
	return b.checked(at, degrade.ReadOnly(degrade.ReadOnlyConfig{
		ReadRoutes: r.ReadRoutes, Latch: float64(value(r.Latch)),
		Reads:  registered(b, at+".reads", r.Reads, b.deps.Predicates, "predicate"),
		Writes: registered(b, at+".writes", r.Writes, b.deps.Predicates, "predicate"),
	}))
}

func (b *builder) static(at string, s *Static) degrade.Handler {
	if b.files == nil {
		b.files = &meteredFiles{files: b.deps.Files, left: maxFiles}
	}
	settings := *s
	settings.Limit = ""
	same, err := json.Marshal(settings)
	if err != nil { // never: texts and numbers
		panic("config: " + err.Error())
	}
	if h, known := b.statics[string(same)]; known { // an alias costs no body of its own
		return h
	}
	cfg := degrade.StaticConfig{Status: s.Status, CacheControl: s.CacheControl, FS: b.files}
	for name, v := range s.Headers {
		if cfg.Header == nil {
			cfg.Header = make(http.Header)
		}
		cfg.Header.Set(name, v)
	}
	ok := true
	for k, c := range s.Contents {
		path := fmt.Sprintf("%s.contents[%d]", at, k)
		switch {
		case c.Body == "" && c.File == "":
			b.add(false, path, MissingField, "Write body: or file:.", "the content has no body")
			ok = false
		case c.Body != "" && c.File != "":
			b.bad(path, Conflict, "body and file are two bodies")
			ok = false
		case c.File != "" && b.deps.Files == nil:
			b.add(false, path+".file", MissingField, "Write the body itself.", "the application gives no access to files")
			ok = false
		}
		content := degrade.Content{Type: c.Type, Language: c.Language, File: c.File}
		if c.Body != "" {
			content.Body = []byte(c.Body)
		}
		cfg.Contents = append(cfg.Contents, content)
	}
	if !ok {
		return nil
	}
	h := b.checked(at, degrade.Static(cfg))
	if h != nil {
		if b.statics == nil {
			b.statics = make(map[string]degrade.Handler)
		}
		b.statics[string(same)] = h
	}
	return h
}

// maxFiles is how many bytes of files the contents of a document may have together: each is named in a few, and held.
const maxFiles = 64 << 20

// meteredFiles are the files of the application, as many bytes of them as are left; nil: none.
type meteredFiles struct {
	files fs.FS
	left  int64
}

func (m *meteredFiles) Open(name string) (fs.File, error) {
	if m.files == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	f, err := m.files.Open(name)
	if err != nil {
		return nil, err
	}
	return &meteredFile{File: f, left: &m.left}, nil
}

type meteredFile struct {
	fs.File
	left *int64
}

func (f *meteredFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	if *f.left -= int64(n); *f.left < 0 {
		return 0, fmt.Errorf("the files of all contents have more than %d bytes together", int64(maxFiles))
	}
	return n, err
}

func (b *builder) shed(at string, p *Policy, s *Shed) degrade.Handler {
	by, ok := b.keyOf(at+".by", s.By)
	if !ok {
		return nil
	}
	if by == nil && !slices.ContainsFunc(p.Key, func(e string) bool { return e != "global" && e != "route" }) {
		b.add(false, at, MissingField, "Say who is told apart, such as by: ip.", "the key of the policy is the same for all, who would be shed together")
		return nil
	}
	class := registered(b, at+".class", s.Class, b.deps.Classes, "class")
	if s.Class != "" && (s.Routes != nil || s.Default != "") {
		b.bad(at+".class", Conflict, "class tells the class of every request, and routes and default are there too")
		return nil
	}
	if s.Class == "" {
		if class, ok = b.classes(at, s); !ok {
			return nil
		}
	}
	cfg := degrade.ShedConfig{Class: class, By: by, Keep: float64(value(s.Keep)), Rotate: time.Duration(value(s.Rotate))}
	return b.checked(at, degrade.Shed(cfg))
}

// classOf are the classes by name.
var classOf = map[string]degrade.Class{
	degrade.Sheddable.String(): degrade.Sheddable, degrade.SheddablePlus.String(): degrade.SheddablePlus, degrade.Critical.String(): degrade.Critical,
	degrade.CriticalPlus.String(): degrade.CriticalPlus,
}

func (b *builder) classes(at string, s *Shed) (func(*keyfunc.Request) degrade.Class, bool) {
	other, ok := degrade.Critical, true
	if s.Default != "" {
		other = classOf[s.Default]
	}
	routes := make(map[degrade.Class][]string)
	for _, name := range slices.Sorted(maps.Keys(s.Routes)) {
		class, known := classOf[name]
		if !known {
			ok = false
			names := slices.Sorted(maps.Keys(classOf))
			b.add(false, at+".routes."+name, InvalidValue, meant(name, names), "there is no class %q", name)
		}
		routes[class] = s.Routes[name]
	}
	if !ok {
		return nil, false
	}
	class, err := degrade.ClassOfRoutes(routes, other)
	return class, b.wrongSettings(at+".routes", err)
}
