package degrade_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/limiter"
)

func returns(o degrade.Outcome) degrade.Handler {
	return degrade.Func(func(http.ResponseWriter, *http.Request, *degrade.Denial) degrade.Outcome { return o })
}

type moded struct {
	degrade.Handler
	mode string
}

func (m moded) Mode() string { return m.mode }

func ask(h degrade.Handler, d *degrade.Denial) degrade.Outcome {
	return h.Degrade(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil), d)
}

func TestFirst(t *testing.T) {
	for name, c := range map[string]struct {
		h    degrade.Handler
		want degrade.Outcome
		mode string
	}{
		"nothing":         {degrade.First(), degrade.Skip, ""},
		"all skip":        {degrade.First(returns(degrade.Skip), returns(degrade.Skip)), degrade.Skip, ""},
		"done":            {degrade.First(returns(degrade.Skip), moded{returns(degrade.Done), "static"}, returns(degrade.Proceed)), degrade.Done, "static"},
		"proceed":         {degrade.First(returns(degrade.Proceed), returns(degrade.Done)), degrade.Proceed, "func"},
		"innermost mode":  {degrade.First(degrade.First(moded{returns(degrade.Done), "cache"})), degrade.Done, "cache"},
		"mode of skipped": {degrade.First(sets("cache", degrade.Skip), returns(degrade.Done)), degrade.Done, "func"},
		"own mode":        {degrade.First(sets("queue", degrade.Done)), degrade.Done, "queue"},
		"only skipped":    {degrade.First(sets("cache", degrade.Skip)), degrade.Skip, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := new(degrade.Denial)
			require.Equal(t, c.want, ask(c.h, d))
			require.Equal(t, c.mode, d.Mode)
		})
	}
}

func sets(mode string, o degrade.Outcome) degrade.Handler {
	return degrade.Func(func(_ http.ResponseWriter, _ *http.Request, d *degrade.Denial) degrade.Outcome {
		d.Mode = mode
		return o
	})
}

// A panic in a chain is the next one's turn as long as the guard says so, and passes on otherwise.
func TestFirstPanics(t *testing.T) {
	boom := degrade.Func(func(http.ResponseWriter, *http.Request, *degrade.Denial) degrade.Outcome { panic("boom") })
	chain := degrade.First(returns(degrade.Skip), boom, degrade.First(boom), returns(degrade.Done))
	var seen []any
	d := &degrade.Denial{Contain: func(p any) bool { seen = append(seen, p); return true }}
	require.Equal(t, degrade.Done, ask(chain, d))
	require.Equal(t, []any{"boom", "boom"}, seen)
	require.PanicsWithValue(t, "boom", func() { ask(chain, &degrade.Denial{Contain: func(any) bool { return false }}) })
	require.PanicsWithValue(t, "boom", func() { ask(chain, new(degrade.Denial)) })
}

func TestWithin(t *testing.T) {
	h := degrade.Within(limiter.PerMinute(3), moded{returns(degrade.Done), "cache"})
	require.Equal(t, degrade.Skip, ask(h, new(degrade.Denial)), "outside of a guard there is no budget")
	for _, c := range []struct {
		allowed bool
		err     error
		want    degrade.Outcome
	}{{true, nil, degrade.Done}, {false, nil, degrade.Skip}, {true, errors.New("away"), degrade.Skip}} {
		d := &degrade.Denial{Budget: func(_ context.Context, name string, l limiter.Limit) (limiter.Decision, error) {
			require.Equal(t, "cache", name)
			require.Equal(t, limiter.PerMinute(3), l)
			return limiter.Decision{Allowed: c.allowed}, c.err
		}}
		require.Equal(t, c.want, ask(h, d))
	}
	require.Equal(t, "cache", degrade.ModeOf(h))
	require.Equal(t, "func", degrade.ModeOf(returns(degrade.Done)))
}

func TestValidate(t *testing.T) {
	fine := returns(degrade.Done)
	l := limiter.PerMinute(1)
	for name, c := range map[string]struct {
		h    degrade.Handler
		want []string
	}{
		"fine":          {degrade.First(fine, degrade.Within(l, fine), degrade.First(degrade.Within(l, fine))), nil},
		"other modes":   {degrade.First(degrade.Within(l, fine), degrade.Within(limiter.PerHour(1), moded{fine, "cache"})), nil},
		"nil":           {nil, []string{"a handler is nil"}},
		"nil func":      {degrade.Func(nil), []string{"a Func is nil"}},
		"nil in first":  {degrade.First(fine, nil), []string{"a handler is nil"}},
		"nil in within": {degrade.Within(l, nil), []string{"a handler is nil"}},
		"all at once":   {degrade.First(nil, degrade.Within(limiter.Limit{}, degrade.Func(nil))), []string{"a handler is nil", "Within: ", "a Func is nil"}},
		"one counter":   {degrade.First(degrade.Within(l, fine), degrade.Within(limiter.PerHour(1), fine)), []string{"would share a counter"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := degrade.Validate(c.h)
			if c.want == nil {
				require.NoError(t, err)
			}
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

type recorder struct {
	degrade.Handler
	end func(bool)
}

func (r recorder) Record(w http.ResponseWriter, _ *http.Request) (http.ResponseWriter, func(bool)) {
	return w, r.end
}

func TestRecords(t *testing.T) {
	n := 0
	rec := recorder{returns(degrade.Done), func(ok bool) {
		if ok {
			n++
		}
	}}
	require.False(t, degrade.Records(returns(degrade.Done)))
	require.False(t, degrade.Records(degrade.First(returns(degrade.Done), degrade.Within(limiter.PerMinute(1), returns(degrade.Done)))))
	for _, h := range []degrade.Handler{
		degrade.First(rec, recorder{returns(degrade.Done), nil}), degrade.Within(limiter.PerMinute(1), rec), degrade.First(degrade.Within(limiter.PerMinute(1), degrade.First(rec))),
	} {
		require.True(t, degrade.Records(h))
		n = 0
		_, end := h.(degrade.Recorder).Record(httptest.NewRecorder(), nil)
		end(true)
		end(false)
		require.Equal(t, 1, n)
	}
}

func TestContext(t *testing.T) {
	_, ok := degrade.FromContext(context.Background())
	require.False(t, ok)
	want := degrade.Info{Policy: "a", Mode: "flag", Cause: degrade.Capacity, RetryAfter: time.Second}
	got, ok := degrade.FromContext(degrade.NewContext(context.Background(), want))
	require.True(t, ok)
	require.Equal(t, want, got)
}
