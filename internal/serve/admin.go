package serve

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/pprof"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/observe"
)

// adminHandler shows the state of the process to those who run it. It changes nothing.
func adminHandler(f *config.Follower, registry *prometheus.Registry, top *observe.Top, profiles bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "/healthz   alive\n/document  the policies in force\n/status    where they come from, and what is wrong with the next\n"+
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
			"source": s.Source, "hash": s.Hash, "loaded": s.Loaded.UTC(), "checked": s.Checked.UTC(), "warnings": s.Warnings, "policies": f.Guard().Policies(),
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
	if profiles {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	}
	return mux
}

// shown is how many keys /top shows.
const shown = 20

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	_ = e.Encode(v)
}
