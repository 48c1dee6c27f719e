package apollosource

import (
	"context"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spillway-go/spillway/config"
)

// maxAnswer bounds what is read of an answer. In JSON a byte of a document may take six; the rest is for what is around
// it, such as other items of a namespace of properties.
const maxAnswer = 6*config.MaxDocument + 1<<20

// connection carries the requests of one Load or Watch.
type connection struct {
	http.Client
	own *http.Transport
}

func (s *Source) connect() *connection {
	c := &connection{}
	c.Transport = s.transport
	if s.transport == nil {
		c.own = &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            (&net.Dialer{Timeout: s.timeout}).DialContext,
			TLSHandshakeTimeout:    s.timeout,
			ForceAttemptHTTP2:      true,
			MaxIdleConnsPerHost:    1,
			MaxResponseHeaderBytes: 64 << 10,
		}
		c.Transport = c.own
	}
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c
}

func (c *connection) close() {
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
}

// ask requests path of one server after the other until one answers. It decodes the body of a 200 into answer.
func (s *Source) ask(ctx context.Context, c *connection, timeout time.Duration, path string, query url.Values, answer any) (status int, err error) {
	var errs []error
	first := int(s.last.Load())
	for i := range s.servers {
		at := (first + i) % len(s.servers)
		status, err := s.askOne(ctx, c, timeout, s.servers[at], path, query, answer)
		switch {
		case ctx.Err() != nil:
			return 0, ctx.Err()
		case err == nil && (status >= 500 || status == http.StatusTooManyRequests):
			err = statusError(status)
		}
		if err == nil {
			s.last.Store(int32(at))
			return status, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", s.servers[at].Host, err))
	}
	return 0, errors.Join(errs...)
}

func (s *Source) askOne(ctx context.Context, c *connection, timeout time.Duration, server *url.URL, path string, query url.Values, answer any) (int, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no answer within %v", timeout))
	defer cancel()
	u := *server
	u.Path += path
	u.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return 0, err
	}
	s.sign(req, time.Now())
	resp, err := c.Do(req)
	if err != nil {
		return 0, bare(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return resp.StatusCode, nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return 0, bare(err)
	case len(body) > maxAnswer:
		return 0, fmt.Errorf("an answer above %d bytes", maxAnswer)
	}
	if err := json.Unmarshal(body, answer); err != nil {
		// Not the error itself, which may quote the document.
		return 0, errors.New("an answer that is not what Apollo says")
	}
	return resp.StatusCode, nil
}

// bare drops the URL, which a message does not get shorter by.
func bare(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// sign adds the two headers that prove the access key: a moment, and an HMAC-SHA1 of that moment and of what is requested.
func (s *Source) sign(req *http.Request, now time.Time) {
	if len(s.accessKey) == 0 {
		return
	}
	stamp := strconv.FormatInt(now.UnixMilli(), 10)
	mac := hmac.New(sha1.New, s.accessKey)
	mac.Write([]byte(stamp + "\n" + req.URL.RequestURI()))
	req.Header.Set("Authorization", "Apollo "+s.appID+":"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	req.Header.Set("Timestamp", stamp)
}

// statusError is what an answer means that is no answer to the question.
func statusError(status int) error {
	hint := ""
	switch status {
	case http.StatusUnauthorized:
		hint = ": the access key is missing or wrong, or the clocks are apart"
	case http.StatusBadRequest:
		hint = ": the service does not take these parameters"
	case http.StatusNotFound:
		hint = ": no config service of Apollo answers at this URL"
	case http.StatusNotModified:
		hint = ": nobody asked whether it was"
	}
	return fmt.Errorf("status %d%s", status, hint)
}
