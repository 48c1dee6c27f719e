package config_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/middleware"
)

// What the standards ask of keys and of response fields holds for guards made of documents: the vectors of packages keyfunc
// and response, written as documents.

// scripted decides everything alike.
type scripted struct{ decision limiter.Decision }

func (s scripted) Allow(_ context.Context, _ limiter.Key, l limiter.Limit, _ int) (limiter.Decision, error) {
	d := s.decision
	d.Limit = l
	return d, nil
}

// witness notes keys and errors of events.
type witness struct {
	keys   []limiter.Key
	causes []error
}

func (s *witness) Observe(e limiter.Event) {
	switch e.Kind {
	case limiter.EventDecision:
		s.keys = append(s.keys, e.Key)
	case limiter.EventError:
		s.causes = append(s.causes, e.Err)
	}
}

// guardOf builds a guard of a document that is written as JSON.
func guardOf(t *testing.T, document map[string]any, deps config.Deps) (*middleware.Guard, config.Findings) {
	t.Helper()
	text, err := json.Marshal(document)
	require.NoError(t, err)
	doc, findings := config.Parse(text)
	require.NoError(t, findings.Err(), "%s", text)
	if deps.Central == nil {
		deps.Central = func(config.Store) (limiter.Limiter, error) { return memory.New(memory.Config{}) }
	}
	deps.Logger = slog.New(slog.DiscardHandler)
	cfg, findings := config.Build(doc, deps)
	if findings.Err() != nil {
		return nil, findings
	}
	g, err := middleware.New(cfg)
	require.NoError(t, err)
	return g, findings
}

func readVectors(t *testing.T, file string, into any) {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, into))
}

func TestDocumentsFindClients(t *testing.T) {
	var file struct {
		Vectors []struct {
			ID             string
			RemoteAddr     string `json:"remote_addr"`
			Headers        [][2]string
			TrustedProxies []string `json:"trusted_proxies"`
			Strategy       string
			StrategyArg    string   `json:"strategy_arg"`
			IPv6Prefix     int      `json:"ipv6_prefix"`
			IPv4Prefix     int      `json:"ipv4_prefix"`
			TrustUnix      bool     `json:"trust_unix"`
			NAT64Prefixes  []string `json:"nat64_prefixes"`
			Expected       struct {
				Key, Error  string
				ConfigError string `json:"config_error"`
				FallbackKey string `json:"fallback_key"`
			}
		} `json:"ip_extraction"`
	}
	readVectors(t, "../keyfunc/testdata/vectors.json", &file)
	require.Len(t, file.Vectors, 87)
	causes := map[string]error{
		"no_peer": keyfunc.ErrNoPeer, "no_client_ip": keyfunc.ErrNoClientIP, "invalid_forwarded": keyfunc.ErrInvalidForwarded, "too_few_hops": keyfunc.ErrTooFewHops,
	}
	for _, v := range file.Vectors {
		t.Run(v.ID, func(t *testing.T) {
			trust := map[string]any{"strategy": v.Strategy, "trust_unix": v.TrustUnix}
			if v.TrustedProxies != nil {
				trust["trusted_proxies"] = v.TrustedProxies
			}
			if v.NAT64Prefixes != nil {
				trust["nat64_prefixes"] = v.NAT64Prefixes
			}
			if v.IPv6Prefix != 0 {
				trust["ipv6_prefix"] = v.IPv6Prefix
			}
			if v.IPv4Prefix != 0 {
				trust["ipv4_prefix"] = v.IPv4Prefix
			}
			switch v.Strategy {
			case "xff_count":
				n, err := strconv.Atoi(v.StrategyArg)
				require.NoError(t, err)
				trust["count"] = n
			case "header":
				trust["header"] = v.StrategyArg
			}
			document := map[string]any{"version": 1, "client_ip": trust, "policies": []any{map[string]any{"name": "api", "key": "ip", "limit": "100/m"}}}
			if v.Expected.ConfigError != "" {
				text, err := json.Marshal(document)
				require.NoError(t, err)
				doc, findings := config.Parse(text)
				if findings.Err() == nil {
					_, findings = config.Build(doc, config.Deps{Central: func(config.Store) (limiter.Limiter, error) { return memory.New(memory.Config{}) }})
				}
				require.Error(t, findings.Err())
				require.True(t, strings.HasPrefix(findings[0].Path, "client_ip"), findings.Error())
				return
			}
			o := new(witness)
			g, _ := guardOf(t, document, config.Deps{Observer: o})
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.RemoteAddr = v.RemoteAddr
			for _, h := range v.Headers {
				r.Header.Add(h[0], h[1])
			}
			w := httptest.NewRecorder()
			g.Serve(w, r, http.NotFoundHandler())
			want := v.Expected.Key
			if v.Expected.Error != "" {
				require.NotEmpty(t, o.causes)
				require.ErrorIs(t, o.causes[0], causes[v.Expected.Error])
				if want = v.Expected.FallbackKey; want == "" {
					require.Equal(t, http.StatusForbidden, w.Code)
					return
				}
			}
			require.Equal(t, []limiter.Key{{Space: "api", ID: "ip=" + want}}, o.keys)
		})
	}
}

func TestDocumentsSpellKeys(t *testing.T) {
	type keyOf struct {
		Prefix, Policy, Suffix string
		Parts                  []struct {
			Kind, Value, Mode string
			ValueHex          string `json:"value_hex"`
		}
	}
	var file struct {
		Vectors []struct {
			ID        string
			A, B      *keyOf
			ExpectedA string `json:"expected_a"`
			ExpectedB string `json:"expected_b"`
			ErrorA    string `json:"error_a"`
		} `json:"key_encoding"`
	}
	readVectors(t, "../keyfunc/testdata/vectors.json", &file)
	done := 0
	for _, v := range file.Vectors {
		for k, one := range []*keyOf{v.A, v.B} {
			want := []string{v.ExpectedA, v.ExpectedB}[k]
			if one == nil || want == "" || k == 0 && v.ErrorA != "" {
				continue
			}
			done++
			t.Run(fmt.Sprint(v.ID, "ab"[k:k+1]), func(t *testing.T) {
				deps := config.Deps{Keys: map[string]keyfunc.Func{}}
				var elements []string
				for _, p := range one.Parts {
					value := p.Value
					if p.ValueHex != "" {
						raw, err := hex.DecodeString(p.ValueHex)
						require.NoError(t, err)
						value = string(raw)
					}
					name := "of_" + p.Kind
					deps.Keys[name] = func(r *keyfunc.Request) (keyfunc.Key, error) { return r.Key(p.Kind, value), nil }
					if p.Kind == "all" {
						name = "global"
					}
					if p.Mode == "hmac" {
						name = "hmac(" + name + ")"
					}
					elements = append(elements, name)
				}
				o := new(witness)
				deps.Observer = o
				g, findings := guardOf(t, map[string]any{
					"version": 1, "key_secret": "vector-secret-do-not-use",
					"policies": []any{map[string]any{"name": one.Policy, "key": elements, "limit": "100/m"}},
				}, deps)
				require.NoError(t, findings.Err())
				g.Serve(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil), http.NotFoundHandler())
				require.Len(t, o.keys, 1)
				require.Equal(t, want, o.keys[0].Render(one.Prefix, one.Suffix))
			})
		}
	}
	require.Greater(t, done, 30)
}

func TestDocumentsTellFields(t *testing.T) {
	var file struct {
		Retries []struct {
			ID, Format, Existing string
			Denied               bool
			MS                   json.Number
			JitterMS             int64 `json:"jitter_ms"`
			MaxS                 int64 `json:"max_s"`
			NowMS                int64 `json:"now_ms"`
			Expected             struct {
				Value  string
				Absent bool
			}
		} `json:"retry_after"`
		Fields []struct {
			ID, Kind string
			Derive   *struct {
				Algorithm    string
				Denied       bool
				Quota        int
				Remaining    int
				ResetMS      int64 `json:"reset_ms"`
				RetryAfterMS int64 `json:"retry_after_ms"`
				WindowMS     int64 `json:"window_ms"`
				Rate, Burst  int
				PeriodMS     int64 `json:"period_ms"`
			}
			Expected map[string]*string
		} `json:"ratelimit_fields"`
	}
	readVectors(t, "../response/testdata/standards.json", &file)
	serve := func(t *testing.T, response map[string]any, headers, limit string, d limiter.Decision, existing string) http.Header {
		t.Helper()
		g, findings := guardOf(t, map[string]any{
			"version": 1, "headers": headers, "response": response, "policies": []any{map[string]any{"name": "p", "key": "global", "limit": limit, "max_delay": "off"}},
		}, config.Deps{Central: func(config.Store) (limiter.Limiter, error) { return scripted{d}, nil }})
		require.NoError(t, findings.Err())
		w := httptest.NewRecorder()
		if existing != "" {
			w.Header().Set("Retry-After", existing)
		}
		g.Serve(w, httptest.NewRequest(http.MethodGet, "/", nil), http.NotFoundHandler())
		return w.Header()
	}
	for _, v := range file.Retries {
		t.Run(v.ID, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if v.NowMS > 0 {
					time.Sleep(time.Until(time.UnixMilli(v.NowMS)))
				}
				whole, frac, _ := strings.Cut(v.MS.String(), ".")
				ns, err := strconv.ParseInt(whole+(frac + "000000")[:6], 10, 64)
				require.NoError(t, err)
				wait := time.Duration(ns) + time.Duration(v.JitterMS)*time.Millisecond
				if v.MS == "-1" {
					wait = limiter.Never
				}
				options := map[string]any{"retry_after_date": v.Format == "date"}
				if v.MaxS > 0 {
					options["max_retry_after"] = fmt.Sprint(v.MaxS, "s")
				}
				h := serve(t, options, "x", "100/m", limiter.Decision{Allowed: !v.Denied, RetryAfter: wait}, v.Existing)
				if v.Expected.Absent {
					require.Empty(t, h.Values("Retry-After"))
				} else {
					require.Equal(t, []string{v.Expected.Value}, h.Values("Retry-After"))
				}
			})
		})
	}
	for _, v := range file.Fields {
		d := v.Derive
		switch v.Kind {
		case "policy_mapping":
			t.Run(v.ID, func(t *testing.T) {
				h := serve(t, map[string]any{}, "draft-11", fmt.Sprintf("%d/%dms burst %d", d.Rate, d.PeriodMS, d.Burst), limiter.Decision{Allowed: true, Remaining: 1}, "")
				require.Equal(t, `"p";q=`+*v.Expected["q"]+";w="+*v.Expected["w"], h.Get("RateLimit-Policy"))
			})
		case "effective_window":
			t.Run(v.ID, func(t *testing.T) {
				h := serve(t, map[string]any{}, "draft-11", fmt.Sprintf("%d/%dms %s", d.Quota, d.WindowMS, d.Algorithm), limiter.Decision{
					Allowed: !d.Denied, Remaining: d.Remaining, ResetAfter: time.Duration(d.ResetMS) * time.Millisecond, RetryAfter: time.Duration(d.RetryAfterMS) * time.Millisecond,
				}, "")
				require.Equal(t, `"p";r=`+strconv.Itoa(d.Remaining)+";t="+*v.Expected["t"], h.Get("RateLimit"))
			})
		}
	}
}
