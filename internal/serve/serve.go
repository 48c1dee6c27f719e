// Package serve exists so that "spillway serve" and the commands that add sources of documents to it are one program: a
// reverse proxy behind a guard whose policies are a document.
package serve

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/config/stores"
	"github.com/spillway-go/spillway/observe"
	"github.com/spillway-go/spillway/observe/live"
	"github.com/spillway-go/spillway/observe/prom"
)

// ErrUsage is wrong use that has been explained.
var ErrUsage = errors.New("usage")

type options struct {
	config, listen, admin string
	upstream              *url.URL
	names                 Names
	drain, start          time.Duration
	keepHost, pprof       bool
	files                 string
}

// title is what the page is called: by what is served.
func (o *options) title() string {
	host := o.upstream.Host
	return host[:min(len(host), 60)]
}

const usage = `usage: spillway serve -config WHERE -upstream URL [flags]

A reverse proxy behind the policies of a document, which is followed while serving.

`

func parse(args []string, stderr io.Writer, sources Sources) (*options, error) {
	var o options
	var upstream string
	flags := flag.NewFlagSet("serve", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, usage)
		flags.PrintDefaults()
	}
	flags.StringVar(&o.config, "config", "", "`where` the policy document is: "+sources.String())
	flags.StringVar(&o.listen, "listen", "127.0.0.1:8080", "`host:port` to serve on")
	flags.StringVar(&upstream, "upstream", "", "`URL` of the service behind")
	flags.BoolVar(&o.keepHost, "keep-host", false, "send the upstream the Host that the client has sent, instead of its own")
	flags.StringVar(&o.admin, "admin", "", "`host:port` of health, metrics, the running document and a page that shows all of it live; a port alone is on loopback; empty: none")
	flags.Var(&o.names, "name", "a name that the document uses and where it is found, as `tenant=header:X-Tenant`; may be repeated")
	flags.StringVar(&o.files, "files", "", "`folder` of the files that contents of static name; empty: none may be named")
	flags.DurationVar(&o.drain, "drain", 10*time.Second, "how long requests in service may take once told to stop")
	flags.DurationVar(&o.start, "start", 30*time.Second, "how long to wait for a document at the start")
	flags.BoolVar(&o.pprof, "pprof", false, "serve profiles on the admin address")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, err
		}
		return nil, ErrUsage
	}
	var bad []string
	if flags.NArg() > 0 {
		bad = append(bad, fmt.Sprintf("serve takes no arguments, but got %q", flags.Args()))
	}
	if o.config == "" {
		bad = append(bad, "serve needs -config")
	}
	if upstream == "" {
		bad = append(bad, "serve needs -upstream")
	} else if u, err := upstreamURL(upstream); err != nil {
		bad = append(bad, err.Error())
	} else {
		o.upstream = u
	}
	if o.pprof && o.admin == "" {
		bad = append(bad, "-pprof needs -admin")
	}
	if o.drain < 0 {
		bad = append(bad, "-drain: want a time from 0s")
	}
	if o.start <= 0 {
		bad = append(bad, "-start: want a time above 0s")
	}
	if len(bad) > 0 {
		for _, what := range bad {
			fmt.Fprintln(stderr, "spillway:", what)
		}
		fmt.Fprintln(stderr, `"spillway serve -h" lists the flags.`)
		return nil, ErrUsage
	}
	return &o, nil
}

// Run serves until ctx ends. Its errors are those of the start and of servers that fail; requests in service are drained.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer, sources Sources) error {
	o, err := parse(args, stderr, sources)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	source, closeSource, err := sources.Open(o.config)
	if err != nil {
		fmt.Fprintln(stderr, "spillway: -config:", err)
		return ErrUsage
	}
	defer closeSource()

	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	metrics, err := prom.New(registry)
	if err != nil {
		return err
	}
	top, err := observe.NewTop(observe.TopConfig{})
	if err != nil {
		return err
	}
	watch := observe.Tee(metrics, top)
	var page *live.Page
	if o.admin != "" {
		// Who reaches the admin address may look; onlyLocalNames keeps pages of others out.
		if page, err = live.New(live.Config{Title: o.title(), Top: top, Authorize: func(*http.Request) bool { return true }}); err != nil {
			return err
		}
		defer page.Close()
		watch = observe.Tee(watch, page)
	}
	limiters := stores.New(stores.Config{Observer: watch, Logger: log})
	defer func() { _ = limiters.Close() }()
	deps := o.names.Deps()
	deps.Central, deps.Local, deps.Leased, deps.Observer, deps.Logger = limiters.Central, limiters.Local, limiters.Leased, watch, log
	deps.Flushes = true // the proxy does
	if deps.Files, err = Folder(o.files); err != nil {
		fmt.Fprintln(stderr, "spillway: -files:", err)
		return ErrUsage
	}

	// All ports are taken before a document is waited for: who cannot serve should say so at once.
	listeners, err := listen(ctx, o)
	if err != nil {
		return err
	}
	defer listeners.close()
	follower, err := open(ctx, source, deps, o.start, log)
	if err != nil {
		if ctx.Err() != nil {
			return nil // told to stop while waiting
		}
		return err
	}
	servers := []*http.Server{newServer(newProxy(o.upstream, o.keepHost, follower, log), log)}
	if listeners.admin != nil {
		page.Watch(follower.Guard(), func() live.Status { return liveStatus(follower) })
		admin := newServer(adminHandler(follower, registry, top, page, o.pprof), log)
		admin.RegisterOnShutdown(page.Close) // its streams end with it, and not by themselves
		servers = append(servers, admin)
	}
	fmt.Fprintf(stdout, "serving %s on http://%s\n", o.upstream, listeners.public.Addr())
	if listeners.admin != nil {
		fmt.Fprintf(stdout, "admin on http://%s\n", listeners.admin.Addr())
		fmt.Fprintf(stdout, "watch it at http://%s/live/\n", listeners.admin.Addr())
	}
	return run(ctx, o.drain, follower, servers, listeners, stdout, log)
}

// patience is how long a start is silent while there is no document.
const patience = time.Second

// open waits for a document, and says so.
func open(ctx context.Context, source config.Source, deps config.Deps, most time.Duration, log *slog.Logger) (*config.Follower, error) {
	starting, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	told := time.AfterFunc(patience, func() {
		log.Warn("spillway: waiting for the policy document; nothing is served yet", "source", fmt.Sprint(source), "at_most", most)
	})
	defer told.Stop()
	f, err := config.Open(starting, source, deps)
	if err != nil && starting.Err() != nil {
		err = fmt.Errorf("no policy document came within %v (-start): %w", most, err)
	}
	if err != nil {
		err = fmt.Errorf("%v: %w", source, err)
		if Nameless(err.Error()) {
			err = fmt.Errorf("%w\n    %s", err, NameHint)
		}
	}
	return f, err
}

type listening struct{ public, admin net.Listener }

func listen(ctx context.Context, o *options) (l listening, err error) {
	var lc net.ListenConfig
	if l.public, err = lc.Listen(ctx, "tcp", o.listen); err != nil {
		return l, fmt.Errorf("%w; choose another address with -listen host:port", err)
	}
	if o.admin == "" {
		return l, nil
	}
	if l.admin, err = lc.Listen(ctx, "tcp", adminAddress(o.admin)); err != nil {
		l.close()
		return l, fmt.Errorf("%w; choose another address with -admin host:port", err)
	}
	return l, nil
}

func (l listening) close() {
	for _, x := range []net.Listener{l.public, l.admin} {
		if x != nil {
			_ = x.Close()
		}
	}
}

// adminAddress is on loopback unless a host is told: what it shows is not for everybody.
func adminAddress(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	switch {
	case err != nil && addr != "" && !strings.Contains(addr, ":"):
		return net.JoinHostPort("127.0.0.1", addr)
	case err == nil && host == "":
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}

func upstreamURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("-upstream: want an http or https URL without user, query and fragment, such as http://127.0.0.1:3000")
	}
	return u, nil
}

func newServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// run serves and follows until ctx ends or a server fails, and then drains.
func run(ctx context.Context, drain time.Duration, follower *config.Follower, servers []*http.Server, l listening, stdout io.Writer, log *slog.Logger) error {
	following, endFollowing := context.WithCancel(context.WithoutCancel(ctx))
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		_ = follower.Follow(following)
	}()
	// Requests live longer than ctx, but not longer than run: connections that were taken over, as those of websockets, are
	// no server's any more and end with it.
	serving, endServing := context.WithCancel(context.WithoutCancel(ctx))
	failed := make(chan error, len(servers))
	for k, s := range servers {
		s.BaseContext = func(net.Listener) context.Context { return serving }
		go func() { failed <- s.Serve([]net.Listener{l.public, l.admin}[k]) }()
	}
	var err error
	select {
	case <-ctx.Done():
		fmt.Fprintln(stdout, "stopping")
	case err = <-failed:
	}
	draining, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	for _, s := range servers {
		if s.Shutdown(draining) != nil {
			log.Warn("spillway: requests in service were cut off", "after", drain)
			_ = s.Close()
		}
	}
	endServing()
	endFollowing()
	<-followed
	return err
}
