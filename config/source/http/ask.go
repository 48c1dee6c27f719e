package httpsource

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-go/spillway/config"
)

// edition is a document and how the server knows it again. doc is never written to.
type edition struct {
	doc          []byte
	etag         string
	lastModified string
}

// newClient returns a client that follows only what may be followed, based on the user's.
func (s *Source) newClient(base *http.Client) *http.Client {
	var c http.Client
	if base != nil {
		c = *base
	} else {
		c.Transport = &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DisableKeepAlives:      true,
			MaxResponseHeaderBytes: maxHeader,
		}
	}
	theirs := c.CheckRedirect
	c.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		from := via[len(via)-1].URL
		req.Header.Del("Referer") // its query is nobody else's business
		switch {
		case len(via) > maxRedirects:
			return fmt.Errorf("more than %d redirects", maxRedirects)
		case s.hasCredentials() && !sameOrigin(s.url, req.URL):
			return fmt.Errorf("a redirect to %s is not followed with credentials", origin(req.URL))
		case from.Scheme == "https" && req.URL.Scheme != "https":
			return fmt.Errorf("a redirect from https to %s is not followed", origin(req.URL))
		case theirs != nil:
			return theirs(req, via)
		}
		return nil
	}
	return &c
}

func sameOrigin(a, b *url.URL) bool { return origin(a) == origin(b) }

// origin is scheme, host and port.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return u.Scheme + "://" + net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// ask asks the server for the document as it is now.
func (s *Source) ask(ctx context.Context) (edition, error) {
	s.mu.Lock()
	last, left, because := s.last, time.Until(s.notBefore), s.because
	s.mu.Unlock()
	fail := func(err error) (edition, error) { return edition{}, fmt.Errorf("httpsource: %s: %w", s.name, err) }
	if err := ctx.Err(); err != nil {
		return fail(err)
	}
	if left > 0 {
		return fail(fmt.Errorf("%s: not to be asked for %v", because, left.Round(time.Second)))
	}
	s.warnOnce()
	bounded, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	e, err := s.get(bounded, last)
	switch {
	case err == nil:
		s.mu.Lock()
		s.last = e
		s.mu.Unlock()
		return e, nil
	case ctx.Err() != nil:
		return fail(ctx.Err())
	case bounded.Err() != nil:
		return fail(fmt.Errorf("no whole answer within %v", s.timeout)) // the caller's context has not ended
	}
	return fail(s.redact(err))
}

// redact takes out of an error what the server may have sent back of the URL, as in a Location that does not parse.
func (s *Source) redact(err error) error {
	text := err.Error()
	password, _ := s.url.User.Password()
	for _, secret := range []string{s.url.RawQuery, s.url.User.String(), password, s.url.User.Username()} {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "xxxxx")
		}
	}
	if text != err.Error() {
		return errors.New(text)
	}
	return err
}

func (s *Source) get(ctx context.Context, last edition) (edition, error) {
	req := (&http.Request{Method: http.MethodGet, URL: s.url, Host: s.header.Get("Host"), Header: http.Header{}}).WithContext(ctx)
	u := *s.url
	req.URL = &u // Prepare may write to it
	for name, values := range s.header {
		req.Header[http.CanonicalHeaderKey(name)] = append([]string(nil), values...)
	}
	req.Header.Set("Cache-Control", "no-cache")
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", "spillway")
	}
	switch {
	case last.etag != "":
		req.Header.Set("If-None-Match", last.etag)
	case last.lastModified != "":
		req.Header.Set("If-Modified-Since", last.lastModified)
	}
	if err := s.complete(req); err != nil {
		return edition{}, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		if e := (*url.Error)(nil); errors.As(err, &e) {
			err = e.Err // its text has the URL
		}
		return edition{}, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read alone
	switch resp.StatusCode {
	case http.StatusOK:
		return received(resp)
	case http.StatusNotModified:
		if last.doc == nil {
			return edition{}, errors.New("304 Not Modified, but nothing was there before")
		}
		return last, nil
	case http.StatusNoContent, http.StatusNotFound, http.StatusGone:
		return edition{}, fmt.Errorf("%s: %w", status(resp), config.ErrIncomplete)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		s.leave(resp)
	}
	return edition{}, errors.New(status(resp))
}

// complete runs Prepare.
func (s *Source) complete(req *http.Request) (err error) {
	if s.prepare == nil {
		return nil
	}
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic in Prepare: %v", v)
		}
	}()
	if err := s.prepare(req); err != nil {
		return fmt.Errorf("in Prepare: %w", err)
	}
	return nil
}

// status is the status by its number: the text that a server gives it may be anything.
func status(resp *http.Response) string {
	return fmt.Sprintf("status %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
}

// leave notes how long the server wants to be left alone.
func (s *Source) leave(resp *http.Response) {
	wait, ok := retryAfter(resp.Header.Get("Retry-After"), time.Now())
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notBefore, s.because = time.Now().Add(min(wait, maxRetryAfter)), status(resp)
}

// retryAfter reads a Retry-After: seconds, or a date (RFC 9110, section 10.2.3).
func retryAfter(value string, now time.Time) (time.Duration, bool) {
	if n, err := strconv.ParseUint(value, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(n, uint64(maxRetryAfter/time.Second))) * time.Second, true
	}
	at, err := http.ParseTime(value)
	return at.Sub(now), err == nil
}

// received reads a document with what makes it known again.
func received(resp *http.Response) (edition, error) {
	body, framed := io.Reader(resp.Body), resp.ContentLength >= 0 || len(resp.TransferEncoding) > 0 || resp.ProtoMajor > 1
	switch encoding := resp.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
		if !framed && !resp.Uncompressed {
			return edition{}, errors.New("the answer says nowhere where it ends, so half of it could pass for the whole")
		}
	case "gzip", "x-gzip": // unasked, or asked for by Prepare
		z, err := gzip.NewReader(body)
		if err != nil {
			return edition{}, err
		}
		body = z
	default:
		return edition{}, fmt.Errorf("the answer has the Content-Encoding %q", encoding)
	}
	var doc bytes.Buffer
	if n := resp.ContentLength; n > 0 && n <= config.MaxDocument {
		doc.Grow(int(n) + bytes.MinRead)
	}
	n, err := doc.ReadFrom(io.LimitReader(body, config.MaxDocument+1))
	switch {
	case err != nil:
		return edition{}, err
	case n > config.MaxDocument:
		return edition{}, fmt.Errorf("the document is larger than %d bytes", config.MaxDocument)
	case n == 0:
		return edition{}, fmt.Errorf("the document is empty: %w", config.ErrIncomplete)
	}
	return edition{doc: doc.Bytes(), etag: etag(resp.Header), lastModified: lastModified(resp.Header)}, nil
}

// etag returns the ETag if it can be sent back.
func etag(h http.Header) string {
	tag := h.Get("ETag")
	if len(tag) > 1024 || hasControls(tag) {
		return ""
	}
	return tag
}

// lastModified returns the Last-Modified if it tells editions apart. It counts in seconds, so a document that has just been
// written may become another one without it (RFC 9110, section 8.8.2.2).
func lastModified(h http.Header) string {
	value := h.Get("Last-Modified")
	at, err := http.ParseTime(value)
	if err != nil {
		return ""
	}
	sent, err := http.ParseTime(h.Get("Date"))
	if err != nil || sent.Sub(at) < 2*time.Second {
		return ""
	}
	return value
}
