package serve

import (
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
)

// ours reports whether a field tells of limits. In the fields of a response those of the upstream and of the proxy are
// joined; elsewhere the upstream's would contradict what was joined.
func ours(name string) bool {
	return name == "Retry-After" || strings.HasPrefix(name, "Ratelimit") || strings.HasPrefix(name, "X-Ratelimit-")
}

func withoutOurs[H ~map[string][]string](h H) {
	for name := range h {
		if ours(name) {
			delete(h, name)
		}
	}
}

// unlimited is a transport whose informational responses tell nothing of limits.
type unlimited struct{ *http.Transport }

func (u *unlimited) RoundTrip(r *http.Request) (*http.Response, error) {
	// The newest trace is called first.
	trace := &httptrace.ClientTrace{Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
		withoutOurs(h)
		return nil
	}}
	return u.Transport.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
}

// untold removes fields of limits from the trailers of a response, which are there once its body is closed.
func untold(res *http.Response) {
	if res.StatusCode == http.StatusSwitchingProtocols {
		return // its body is the connection
	}
	withoutOurs(res.Trailer)
	res.Body = &ending{ReadCloser: res.Body, res: res}
}

type ending struct {
	io.ReadCloser
	res *http.Response
}

func (e *ending) Close() error {
	err := e.ReadCloser.Close()
	withoutOurs(e.res.Trailer)
	return err
}
