package observe_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
	"github.com/spillway-go/spillway/observe"
)

// later is a handler that writes when it is told to, as those do that send lines to somewhere.
type later struct {
	mu    sync.Mutex
	lines []slog.Record
}

func (*later) Enabled(context.Context, slog.Level) bool { return true }
func (h *later) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h *later) WithGroup(string) slog.Handler          { return h }

func (h *later) Handle(_ context.Context, r slog.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, r)
	return nil
}

// said returns what the lines say under a name.
func (h *later) said(name string) (all []string) {
	for _, r := range h.lines {
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == name {
				all = append(all, a.Value.String())
			}
			return true
		})
	}
	return all
}

// away is a store that fails, and keeps no key.
type away struct{}

func (away) Allow(context.Context, limiter.Key, limiter.Limit, int) (limiter.Decision, error) {
	return limiter.Decision{}, limiter.ErrUnavailable
}

func (a away) KeepsNoKey() limiter.Limiter { return a }

func TestLogKeepsNoKey(t *testing.T) {
	l, _ := newLog(t, slog.LevelInfo, observe.LogConfig{})
	require.Same(t, l, l.KeepsNoKey())
	own, _ := newLog(t, slog.LevelInfo, observe.LogConfig{ErrorText: func(limiter.Event) string { return "" }})
	require.Nil(t, own.KeepsNoKey(), "what a function of the user returns may be kept")
}

// TestALineThatIsWrittenLaterIsWhatItWas: a guard writes over keys that nobody keeps, and lines may be kept.
func TestALineThatIsWrittenLaterIsWhatItWas(t *testing.T) {
	for name, text := range map[string]func(limiter.Event) string{
		"error texts": nil, "one's own": func(e limiter.Event) string { return e.Key.ID },
	} {
		t.Run(name, func(t *testing.T) {
			h := &later{}
			l, err := observe.NewLog(observe.LogConfig{Logger: slog.New(h), Decisions: 1000, ErrorText: text})
			require.NoError(t, err)
			guard, err := middleware.New(middleware.Config{
				Limiter: away{}, Observer: l, Logger: slog.New(slog.DiscardHandler), Policies: []middleware.Policy{{
					Name: "p", Key: keyfunc.IP(), Limit: limiter.PerMinute(10), OnStoreError: middleware.FailClosed,
				}},
			})
			require.NoError(t, err)
			var texts, hashes []string
			for k := range 50 {
				r := httptest.NewRequest(http.MethodGet, "/", nil)
				r.RemoteAddr = fmt.Sprintf("203.0.113.%d:1", 100+k)
				guard.Serve(httptest.NewRecorder(), r, http.NotFoundHandler())
				id := fmt.Sprintf("ip=203.0.113.%d", 100+k)
				texts, hashes = append(texts, id), append(hashes, l.Hash(id))
			}
			require.NotEmpty(t, h.lines)
			require.Subset(t, h.said("key"), hashes)
			if text != nil {
				require.Subset(t, h.said("error"), texts)
				require.Subset(t, texts, h.said("error"))
			}
		})
	}
}

func TestLogLogsStates(t *testing.T) {
	l, _ := newLog(t, slog.LevelInfo, observe.LogConfig{})
	var o limiter.Observer = l
	require.True(t, o.(limiter.StateLogger).LogsStates())
}
