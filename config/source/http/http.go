package httpsource

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillway-go/spillway/config"
)

// Config is what [New] takes. Only URL is required.
type Config struct {
	// URL is the document's, http or https. A user and password in it are sent as basic authentication.
	URL string
	// Header is sent with each request. It may hold secrets.
	Header http.Header
	// Prepare completes each request before it is sent, as with a token that is renewed; nil: nothing to do. Its error is
	// that of the request. It can run at the same time for several requests.
	Prepare func(*http.Request) error

	// Interval is how often the server is asked for a change, at least 1 ms; zero: 10 s.
	Interval time.Duration
	// Timeout is how long a request may take, with all redirects and all of the body, 1 ms…5 min; zero: 10 s.
	Timeout time.Duration

	// Client makes the requests, as with a certificate of its own or by a proxy; nil: one that opens a connection for each
	// request, so that nothing is left to close. Its CheckRedirect is asked in addition to what this package allows.
	Client *http.Client
	// Logger is warned once if the document travels in the clear; nil: [slog.Default].
	Logger *slog.Logger
}

const (
	defaultInterval = 10 * time.Second
	defaultTimeout  = 10 * time.Second
	maxTimeout      = 5 * time.Minute
	maxRetryAfter   = 10 * time.Minute
	maxRedirects    = 5
	maxHeader       = 64 << 10
)

// Source is the [config.Source] of a document on a web server. It is safe for concurrent use and owns nothing between
// calls. Make one with [New].
type Source struct {
	url      *url.URL
	name     string
	header   http.Header
	prepare  func(*http.Request) error
	interval time.Duration
	timeout  time.Duration
	client   *http.Client
	logger   *slog.Logger
	warn     sync.Once

	mu        sync.Mutex
	last      edition   // the last document, with what tells the server which one it is
	notBefore time.Time // the server wants to be left alone until then
	because   string
}

var _ config.Source = (*Source)(nil)

// New returns a source, or an error that names everything wrong with c. It asks nobody.
func New(c Config) (*Source, error) {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("httpsource: "+format, args...)) }
	u, err := url.Parse(c.URL)
	switch {
	case c.URL == "":
		bad("no URL")
	case err != nil:
		// The reason would quote parts of it, as of a password that is not escaped.
		bad("URL does not parse: a user or a password in it may have to be escaped")
	case u.Scheme != "http" && u.Scheme != "https":
		bad("URL has the scheme %q, not http or https", u.Scheme)
	case u.Hostname() == "":
		bad("URL has no host")
	}
	for name, values := range c.Header {
		if !isToken(name) || slices.ContainsFunc(values, hasControls) {
			bad("Header %q is no valid field", name)
		}
	}
	if c.Interval != 0 && c.Interval < time.Millisecond {
		bad("Interval %v is below 1ms", c.Interval)
	}
	if c.Timeout != 0 && (c.Timeout < time.Millisecond || c.Timeout > maxTimeout) {
		bad("Timeout %v is outside 1ms…%v", c.Timeout, maxTimeout)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	s := &Source{
		url:      u,
		name:     (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}).String(),
		header:   c.Header.Clone(),
		prepare:  c.Prepare,
		interval: c.Interval,
		timeout:  c.Timeout,
		logger:   c.Logger,
	}
	if s.interval == 0 {
		s.interval = defaultInterval
	}
	if s.timeout == 0 {
		s.timeout = defaultTimeout
	}
	s.client = s.newClient(c.Client)
	return s, nil
}

// String is the URL without its user, password and query.
func (s *Source) String() string { return s.name }

// Load asks the server. See the package for what its answers mean.
func (s *Source) Load(ctx context.Context) ([]byte, error) {
	e, err := s.ask(ctx)
	if err != nil {
		return nil, err
	}
	return slices.Clone(e.doc), nil
}

// Watch asks the server every Config.Interval, and calls changed when the document is another one, has come or is gone. It
// does so for the first time once the server has answered. Any answer but a document or its absence ends the watch.
func (s *Source) Watch(ctx context.Context, changed func()) error {
	var seen []byte
	for first := true; ; first = false {
		pause := time.Duration(0)
		if !first {
			pause = time.Duration(float64(s.interval) * (0.9 + 0.2*rand.Float64()))
		}
		if err := s.wait(ctx, pause); err != nil {
			return err
		}
		e, err := s.ask(ctx)
		if err != nil && !errors.Is(err, config.ErrIncomplete) {
			return err
		}
		if !first && string(seen) == string(e.doc) {
			continue
		}
		seen = e.doc
		changed()
	}
}

// wait waits for a pause, and for as long as the server wants to be left alone.
func (s *Source) wait(ctx context.Context, pause time.Duration) error {
	s.mu.Lock()
	pause = max(pause, time.Until(s.notBefore))
	s.mu.Unlock()
	if pause <= 0 {
		return nil
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return fmt.Errorf("httpsource: %w", ctx.Err())
	case <-timer.C:
		return nil
	}
}

// warnOnce tells that anybody on the way may read and write the document.
func (s *Source) warnOnce() {
	if s.url.Scheme == "https" || isLoopback(s.url.Hostname()) {
		return
	}
	s.warn.Do(func() {
		logger := s.logger
		if logger == nil {
			logger = slog.Default()
		}
		logger.Warn("a policy document travels in the clear: use https", "source", s.name, "credentials", s.hasCredentials())
	})
}

func (s *Source) hasCredentials() bool {
	return s.url.User != nil || len(s.header) > 0 || s.prepare != nil
}

func isLoopback(host string) bool {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().IsLoopback()
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// isToken says whether a header may have this name.
func isToken(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

func hasControls(value string) bool {
	return strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}
