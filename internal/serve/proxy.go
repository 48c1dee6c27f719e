package serve

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/middleware"
	"github.com/spillway-go/spillway/response"
)

// proxy is the reverse proxy behind all stages of the document in force.
type proxy struct {
	follower *config.Follower
	upstream *httputil.ReverseProxy
	to       *url.URL
	keepHost bool
	log      *slog.Logger
	chain    atomic.Pointer[chain]
	quiet    quiet
}

// chain is the stages of one document around the upstream.
type chain struct {
	document *config.Document
	handler  http.Handler
	peers    *peers
}

// exchange is one request on its way through the proxy.
type exchange struct {
	chain  *chain
	header http.Header // of the response
	told   http.Header // what the stages have set there
	body   *body       // of the request; nil: none
}

// body knows whether it has been read to its end.
type body struct {
	io.ReadCloser
	ended atomic.Bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.ended.Store(true)
	}
	return n, err
}

// early reports whether the answer is there before all of the request is. The connection then ends with it, and the client
// has to be told: it could send its next request on it.
func (x *exchange) early() bool { return x.body != nil && !x.body.ended.Load() }

// exchangeKey is the key of the exchange in the request's context.
type exchangeKey struct{}

func exchangeOf(r *http.Request) *exchange {
	x, _ := r.Context().Value(exchangeKey{}).(*exchange)
	return x
}

// restore puts back what the stages have set: an informational response such as 103 takes all fields with it.
func (x *exchange) restore() {
	for name, lines := range x.told {
		if _, there := x.header[name]; !there {
			x.header[name] = append([]string(nil), lines...)
		}
	}
}

func newProxy(upstream *url.URL, keepHost bool, follower *config.Follower, log *slog.Logger) *proxy {
	p := &proxy{follower: follower, to: upstream, keepHost: keepHost, log: log}
	p.upstream = &httputil.ReverseProxy{
		Rewrite:       p.rewrite,
		Transport:     newTransport(),
		FlushInterval: -1, // streams are passed on as they come
		BufferPool:    &buffers{},
		ModifyResponse: func(res *http.Response) error {
			x := exchangeOf(res.Request)
			x.restore()
			response.Join(x.header, res.Header, res.StatusCode)
			if x.early() && res.StatusCode != http.StatusSwitchingProtocols {
				res.Header.Set("Connection", "close")
			}
			return nil
		},
		ErrorHandler: p.failed,
		ErrorLog:     slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	return p
}

// newTransport returns a transport to one host. It changes no content: what a client has not asked for compressed must not
// be asked for compressed and unpacked on the way.
func newTransport() *http.Transport {
	return &http.Transport{
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ExpectContinueTimeout: time.Second,
		IdleConnTimeout:       time.Minute,
		MaxIdleConns:          1024,
		MaxIdleConnsPerHost:   1024,
		DisableCompression:    true,
		ForceAttemptHTTP2:     true,
	}
}

// rewrite makes the request for the upstream.
func (p *proxy) rewrite(r *httputil.ProxyRequest) {
	r.SetURL(p.to)
	r.Out.URL.Opaque, r.Out.URL.User = "", nil // whatever the client has written, the target is a path
	if p.keepHost {
		r.Out.Host = r.In.Host
	}
	if up := r.Out.Header.Get("Upgrade"); up != "" && !strings.EqualFold(up, "websocket") {
		// Whoever got a connection of h2c by one request could send a thousand others on it that no policy sees.
		r.Out.Header.Del("Upgrade")
		r.Out.Header.Del("Connection")
	}
	exchangeOf(r.In).chain.peers.forward(r)
	if len(r.Out.Trailer) > 0 && r.Out.Body != nil {
		r.Out.Body = &trailers{ReadCloser: r.Out.Body, in: r.In, out: r.Out}
	}
}

// trailers takes over the trailers of a request once its body has been read, which is when they arrive.
type trailers struct {
	io.ReadCloser
	in, out *http.Request
}

func (t *trailers) Read(b []byte) (int, error) {
	n, err := t.ReadCloser.Read(b)
	if err != nil {
		for name := range t.out.Trailer { // those announced, without those of forwarding
			t.out.Trailer[name] = t.in.Trailer[name]
		}
	}
	return n, err
}

// failed answers for an upstream that does not.
func (p *proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	x := exchangeOf(r)
	x.restore()
	if x.early() {
		w.Header().Set("Connection", "close")
	}
	if r.Context().Err() != nil {
		// Nobody is there any more, and who left must not have units back as for a fault of the upstream.
		w.WriteHeader(statusClosed)
		return
	}
	status := http.StatusBadGateway
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		status = http.StatusGatewayTimeout
	}
	if others, now := p.quiet.may(time.Now()); now {
		p.log.Warn("spillway: the upstream does not answer", "error", err, "status", status, "since_last", others)
	}
	w.Header().Set("Cache-Control", "no-store")
	http.Error(w, http.StatusText(status), status)
}

// statusClosed is what servers log of a client that has left before the answer; nobody reads it.
const statusClosed = 499

// ServeHTTP serves by the stages of the document in force.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect {
		http.Error(w, "This is no forward proxy.", http.StatusMethodNotAllowed)
		return
	}
	if why := misdirected(r); why != "" {
		w.Header().Set("Connection", "close")
		http.Error(w, why, http.StatusBadRequest)
		return
	}
	doc := p.follower.Status().Document
	c := p.chain.Load()
	if c == nil || c.document != doc {
		c = p.chainOf(doc)
		p.chain.Store(c)
	}
	c.handler.ServeHTTP(w, r)
}

func (p *proxy) chainOf(doc *config.Document) *chain {
	c := &chain{document: doc, peers: newPeers(doc.ClientIP)}
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// The upstream may answer before it has read all of the request.
		_ = http.NewResponseController(w).EnableFullDuplex()
		x := &exchange{chain: c, header: w.Header(), told: w.Header().Clone()}
		r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
		if r.Body != nil && r.Body != http.NoBody {
			x.body = &body{ReadCloser: r.Body}
			r.Body = x.body
		}
		p.upstream.ServeHTTP(w, r)
	})
	routes := muxOf(doc)
	stages := doc.Stages()
	for k := len(stages) - 1; k >= 0; k-- {
		guard, next := p.follower.Guard().Stage(stages[k]), h
		h = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			pass := guard.Enter(w, r, middleware.Entry{Mux: routes})
			if pass.Proceed() {
				pass.Serve(next)
			}
		})
	}
	c.handler = h
	return c
}

// muxOf knows the routes of the document, which are all the routes that a proxy has: keys of routes and of parameters of
// paths are read by it.
func muxOf(doc *config.Document) *http.ServeMux {
	mux := http.NewServeMux()
	add := func(pattern string) {
		defer func() { _ = recover() }() // is there already, or is neither more nor less special than one that is
		mux.Handle(pattern, http.NotFoundHandler())
	}
	for k := range doc.Policies {
		if m := doc.Policies[k].Match; m != nil {
			for _, pattern := range m.Routes {
				add(pattern)
			}
		}
	}
	return mux
}

// buffers are what bodies are copied through.
type buffers struct{ pool sync.Pool }

const bufferSize = 32 << 10

func (b *buffers) Get() []byte {
	if x, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return x[:]
	}
	return make([]byte, bufferSize)
}

func (b *buffers) Put(x []byte) {
	if len(x) == bufferSize {
		b.pool.Put((*[bufferSize]byte)(x))
	}
}

// quiet lets one line of a log pass a second: an upstream that is down is told of and not for each request.
type quiet struct {
	mu     sync.Mutex
	last   time.Time
	others int
}

// may reports whether to tell, and how often that was not done since.
func (q *quiet) may(now time.Time) (others int, yes bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.last.IsZero() && now.Sub(q.last) < time.Second {
		q.others++
		return 0, false
	}
	others, q.last, q.others = q.others, now, 0
	return others, true
}
