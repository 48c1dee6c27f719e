package nacossource

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
	"strings"
	"time"
)

// maxLogin bounds the answer to a login.
const maxLogin = 64 << 10

// resource names the configuration in a request about it.
type resource struct {
	Module string `json:"module"`
	DataID string `json:"dataId"`
	Group  string `json:"group"`
	Tenant string `json:"tenant"`
}

func (s *Source) resource() resource {
	return resource{Module: "config", DataID: s.dataID, Group: s.group, Tenant: s.namespace}
}

// token is what a login gives. The zero value is none.
type token struct {
	text  string
	until time.Time
}

// headers says who asks.
func (s *Source) headers(ctx context.Context, srv server, request any) (map[string]string, error) {
	headers := map[string]string{"charset": "utf-8"}
	if _, ok := request.(internal); ok {
		return headers, nil // about the connection: whoever asks
	}
	if s.accessKey != "" {
		stamp := strconv.FormatInt(time.Now().UnixMilli(), 10)
		text := stamp
		if r, ok := request.(resource); ok {
			text = r.Group + "+" + stamp
			if r.Tenant != "" {
				text = r.Tenant + "+" + text
			}
		}
		mac := hmac.New(sha1.New, []byte(s.secretKey))
		mac.Write([]byte(text))
		headers["Spas-AccessKey"] = s.accessKey
		headers["Timestamp"] = stamp
		headers["Spas-Signature"] = base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	if s.username != "" {
		text, err := s.login(ctx, srv)
		if err != nil {
			return nil, fmt.Errorf("login: %w", err)
		}
		headers["accessToken"] = text
	}
	return headers, nil
}

// login returns a token, the one it has or a new one.
func (s *Source) login(ctx context.Context, srv server) (string, error) {
	s.mu.Lock()
	have := s.token
	s.mu.Unlock()
	if have.text != "" && time.Now().Before(have.until) {
		return have.text, nil
	}
	var answer struct {
		AccessToken string `json:"accessToken"`
		TokenTTL    int64  `json:"tokenTtl"` // seconds
	}
	err := s.post(ctx, srv, "/v1/auth/users/login", &answer)
	if gone, ok := errors.AsType[statusError](err); ok && (gone == http.StatusNotFound || gone == http.StatusGone || gone == http.StatusNotImplemented) {
		err = s.post(ctx, srv, "/v3/auth/user/login", &answer)
	}
	if refused, ok := errors.AsType[statusError](err); ok && refused >= 400 && refused < 500 && refused != http.StatusTooManyRequests {
		return "", &finalError{err}
	}
	if err != nil {
		return "", err
	}
	if answer.AccessToken == "" {
		return "", &finalError{errors.New("an answer without a token")}
	}
	ttl := time.Duration(min(max(answer.TokenTTL, 0), 7*24*3600)) * time.Second
	s.mu.Lock()
	s.token = token{answer.AccessToken, time.Now().Add(ttl - ttl/10)}
	s.mu.Unlock()
	return answer.AccessToken, nil
}

// forget has the next request log in again.
func (s *Source) forget() {
	s.mu.Lock()
	s.token = token{}
	s.mu.Unlock()
}

// statusError is the status of an answer that is not 200. What the answer says is not shown: it may repeat what was sent.
type statusError int

func (e statusError) Error() string { return "status " + strconv.Itoa(int(e)) }

// post sends user and password, and decodes the answer.
func (s *Source) post(ctx context.Context, srv server, path string, into any) error {
	u := srv.http
	u.Path += path
	form := url.Values{"username": {s.username}, "password": {s.password}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	client := http.Client{
		// Used once: no connection is left behind. No proxy gets to see a password.
		Transport: &http.Transport{
			DialContext:     func(ctx context.Context, _, addr string) (net.Conn, error) { return s.dial(ctx, addr) },
			TLSClientConfig: s.tls, DisableKeepAlives: true, MaxResponseHeaderBytes: maxLogin,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       s.timeout,
	}
	resp, err := client.Do(req)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return statusError(resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxLogin))
	if err != nil {
		return err
	}
	if json.Unmarshal(body, into) != nil {
		return errors.New("an answer that is not what Nacos says")
	}
	return nil
}

// scrub shortens what a server says and takes secrets out of it.
func (s *Source) scrub(text string) string {
	s.mu.Lock()
	token := s.token.text
	s.mu.Unlock()
	for _, secret := range []string{s.password, s.secretKey, token} {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	if len(text) > 200 {
		text = strings.ToValidUTF8(text[:200], "") + "…"
	}
	return text
}
