package serve

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/response"
)

// proxy is the reverse proxy behind all stages of the document in force.
type proxy struct {
	follower *config.Follower
	upstream *httputil.ReverseProxy
	chain    atomic.Pointer[chain]
}

// chain is the stages of one document around the upstream.
type chain struct {
	document *config.Document
	handler  http.Handler
}

// outerHeader is the context key of the fields that the guard has set.
type outerHeader struct{}

func newProxy(upstream *url.URL, follower *config.Follower, log *slog.Logger) *proxy {
	p := &proxy{follower: follower}
	p.upstream = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(upstream)
			// Whom the document does not believe about addresses has none passed on.
			if doc := follower.Status().Document; doc.ClientIP != nil && doc.ClientIP.Strategy != "" && doc.ClientIP.Strategy != "remote_addr" {
				r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
			}
			r.SetXForwarded()
		},
		FlushInterval: -1, // streams are passed on as they come
		ModifyResponse: func(res *http.Response) error {
			if outer, ok := res.Request.Context().Value(outerHeader{}).(http.Header); ok {
				response.Join(outer, res.Header, res.StatusCode)
			}
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() != nil {
				return // nobody is there any more
			}
			status := http.StatusBadGateway
			var tooLarge *http.MaxBytesError
			if errors.As(err, &tooLarge) {
				status = http.StatusRequestEntityTooLarge
			}
			log.Warn("spillway: the upstream does not answer", "error", err)
			http.Error(w, http.StatusText(status), status)
		},
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	return p
}

// ServeHTTP serves by the stages of the document in force.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	doc := p.follower.Status().Document
	c := p.chain.Load()
	if c == nil || c.document != doc {
		c = &chain{doc, p.stages(doc)}
		p.chain.Store(c)
	}
	c.handler.ServeHTTP(w, r)
}

func (p *proxy) stages(doc *config.Document) http.Handler {
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.upstream.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), outerHeader{}, w.Header())))
	})
	stages := doc.Stages()
	for k := len(stages) - 1; k >= 0; k-- {
		guard, next := p.follower.Guard().Stage(stages[k]), h
		h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { guard.Serve(w, r, next) })
	}
	return h
}
