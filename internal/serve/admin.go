package serve

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/observe"
	"github.com/spillway-go/spillway/observe/live"
)

// adminHandler shows the state of the process to those who run it. It changes nothing.
func adminHandler(f *config.Follower, registry *prometheus.Registry, top *observe.Top, page *live.Page, profiles bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "/live/     all of it in a browser, while it happens\n/healthz   alive\n/document  the policies in force\n/status    where they come from, and what is wrong with the next\n"+
			"/metrics   for Prometheus\n/top       who is refused most, and who is near a limit (hashed)\n")
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /document", func(w http.ResponseWriter, _ *http.Request) {
		s := f.Status()
		h := w.Header()
		h.Set("Content-Type", "application/yaml; charset=utf-8")
		h.Set("Etag", strconv.Quote(s.Hash))
		h.Set("Last-Modified", s.Loaded.UTC().Format(http.TimeFormat))
		fmt.Fprintf(w, "# from %s, hash %s, in force since %s\n%s", s.Source, s.Hash, s.Loaded.UTC().Format(time.RFC3339), s.Document.Redacted())
	})
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		s := f.Status()
		out := map[string]any{
			"source": s.Source, "hash": s.Hash, "loaded": s.Loaded.UTC(), "checked": s.Checked.UTC(),
			"warnings": append(config.Findings{}, s.Warnings...), "policies": f.Guard().Policies(),
			"changes": append([]config.Change{}, s.Changes...),
		}
		if s.Err != nil {
			out["error"] = s.Err.Error()
		}
		writeJSON(w, out)
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry}))
	mux.HandleFunc("GET /top", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, map[string]any{"refused": top.Refused(shown), "near": top.Near(shown)})
	})
	mux.Handle("/live/", page)
	if profiles { // not the command line, which may hold a secret
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	}
	return onlyLocalNames(mux)
}

// onlyLocalNames refuses names in Host that are not this machine's where the connection is: a page in the browser of an
// operator could give its own name the address 127.0.0.1 and read what is meant for the operator. Addresses are no names,
// and on other interfaces names are the network's business.
func onlyLocalNames(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); ok && local.IP.IsLoopback() && !isLocalName(r.Host) {
			http.Error(w, "Ask by 127.0.0.1 or localhost.", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func isLocalName(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	_, err := netip.ParseAddr(host)
	return err == nil || host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// liveStatus is what a page shows of where the policies come from.
func liveStatus(f *config.Follower) live.Status {
	s := f.Status()
	out := live.Status{Source: s.Source, Hash: s.Hash, Loaded: s.Loaded, Checked: s.Checked}
	if s.Err != nil {
		out.Error = s.Err.Error()
	}
	for _, c := range s.Changes {
		out.Changes = append(out.Changes, c.String())
	}
	for _, w := range s.Warnings {
		out.Warnings = append(out.Warnings, w.String())
	}
	return out
}

// shown is how many keys /top shows.
const shown = 20

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(v)
}
