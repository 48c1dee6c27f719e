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
	building sync.Mutex
	inForce  atomic.Pointer[version]
	quiet    quiet
}

// exchange is one request on its way through the proxy.
type exchange struct {
	peers  *peers
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
		Transport:     &unlimited{newTransport()},
		FlushInterval: -1, // streams are passed on as they come
		BufferPool:    &buffers{},
		ModifyResponse: func(res *http.Response) error {
			x := exchangeOf(res.Request)
			x.restore()
			response.Join(x.header, res.Header, res.StatusCode)
			if x.early() && res.StatusCode != http.StatusSwitchingProtocols {
				res.Header.Set("Connection", "close")
			}
			untold(res)
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
	exchangeOf(r.In).peers.forward(r)
	forwardMode(r)
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
	// All stages decide by one set of policies, in its own order: a policy that a reload moves meets each request.
	guard := p.follower.Guard()
	ctx := guard.Pin(r.Context())
	p.enter(w, r.WithContext(ctx), guard.StagesOf(ctx), p.version())
}

// enter asks the stages that are left, and then the upstream.
func (p *proxy) enter(w http.ResponseWriter, r *http.Request, stages []string, v *version) {
	if len(stages) == 0 {
		p.pass(w, r, v)
		return
	}
	guard := v.guards[stages[0]]
	if guard == nil { // of a document that has just come or gone
		guard = p.follower.Guard().Stage(stages[0])
	}
	pass := guard.Enter(w, r, middleware.Entry{Mux: v.routes})
	if pass.Proceed() {
		pass.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.enter(w, r, stages[1:], v) }))
	}
}

func (p *proxy) pass(w http.ResponseWriter, r *http.Request, v *version) {
	// The upstream may answer before it has read all of the request.
	_ = http.NewResponseController(w).EnableFullDuplex()
	x := &exchange{peers: v.peers, header: w.Header(), told: w.Header().Clone()}
	r = r.WithContext(context.WithValue(r.Context(), exchangeKey{}, x))
	if r.Body != nil && r.Body != http.NoBody {
		x.body = &body{ReadCloser: r.Body}
		r.Body = x.body
	}
	p.upstream.ServeHTTP(w, r)
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
