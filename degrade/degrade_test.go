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
	"github.com/spillway-go/spillway/keyfunc"
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
	d.Mode = degrade.ModeOf(h) // as a guard does
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

type proceeder struct{ degrade.Handler }

func (proceeder) Proceeds()    {}
func (proceeder) Mode() string { return degrade.ModeFlag }

type wrong struct{ degrade.Handler }

func (wrong) Validate() error { return errors.New("wrong settings") }

// spender serves if it can afford to.
type spender struct{ mode string }

func (s spender) Spends()      {}
func (s spender) Mode() string { return s.mode }
func (s spender) Degrade(_ http.ResponseWriter, r *http.Request, d *degrade.Denial) degrade.Outcome {
	if !d.Afford(r.Context()) {
		return degrade.Skip
	}
	return degrade.Done
}

// Every budget around a handler is asked; without one it is ten times the policy's limit.
func TestAfford(t *testing.T) {
	l := limiter.PerMinute
	flagged := moded{returns(degrade.Done), "flag"}
	for name, c := range map[string]struct {
		h       degrade.Handler
		policy  limiter.Limit
		asked   []string
		refused string
		want    degrade.Outcome
		cost    int
	}{
		"default":         {spender{"cache"}, l(3), []string{"cache 30/m"}, "", degrade.Done, 1},
		"with a burst":    {spender{"cache"}, l(3).WithBurst(2), []string{"cache 30/m burst 20"}, "", degrade.Done, 1},
		"of a window":     {spender{"cache"}, l(3).With(limiter.FixedWindow), []string{"cache 30/m"}, "", degrade.Done, 1},
		"of a bound":      {spender{"cache"}, limiter.Limit{Burst: 7}, []string{"cache 70/s"}, "", degrade.Done, 1},
		"largest":         {spender{"cache"}, l(limiter.MaxRate), []string{"cache 1000000000/m"}, "", degrade.Done, 1},
		"of a cost":       {spender{"cache"}, l(6), []string{"cache 20/m"}, "", degrade.Done, 3},
		"of a large cost": {spender{"cache"}, l(1).WithBurst(3), []string{"cache 3/m burst 10"}, "", degrade.Done, 3},
		"no number":       {spender{"static"}, limiter.DenyAll, nil, "", degrade.Done, 1},
		"default spent":   {spender{"cache"}, l(3), []string{"cache 30/m"}, "cache 30/m", degrade.Skip, 1},
		"its own":         {degrade.Within(l(5), spender{"cache"}), l(3), []string{"cache 5/m"}, "", degrade.Done, 1},
		"two":             {degrade.Within(l(6), degrade.Within(l(5), spender{"cache"})), l(3), []string{"cache 6/m", "cache 5/m"}, "", degrade.Done, 1},
		"two, one spent":  {degrade.Within(l(6), degrade.Within(l(5), flagged)), l(3), []string{"flag 6/m", "flag 5/m"}, "flag 5/m", degrade.Skip, 1},
		"paid for":        {degrade.Within(l(6), degrade.First(returns(degrade.Skip), spender{"cache"})), l(3), []string{"func 6/m"}, "", degrade.Done, 1},
		"of a chain":      {degrade.Within(l(6), degrade.First(returns(degrade.Skip), flagged)), l(3), []string{"func 6/m"}, "", degrade.Done, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			d := &degrade.Denial{Cost: c.cost, Decision: limiter.Decision{Limit: c.policy}, Budget: func(_ context.Context, name string, l limiter.Limit) (limiter.Decision, error) {
				require.NoError(t, l.Validate())
				asked = append(asked, name+" "+l.String())
				return limiter.Decision{Allowed: name+" "+l.String() != c.refused}, nil
			}}
			require.Equal(t, c.want, ask(c.h, d))
			require.Equal(t, c.asked, asked)
		})
	}
	require.Equal(t, degrade.Done, ask(spender{"static"}, &degrade.Denial{Decision: limiter.Decision{Limit: l(3)}}), "outside of a guard there is none")
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
		"proceeds":      {degrade.First(proceeder{fine}, degrade.Within(l, degrade.First(proceeder{fine}))), []string{"flag lets requests through"}},
		"settings":      {degrade.Within(l, wrong{fine}), []string{"wrong settings"}},
		"mode":          {moded{fine, "read only"}, []string{`mode "read only": want`}},
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

type recorder struct{ degrade.Handler }

func (recorder) Record(w http.ResponseWriter, _ *keyfunc.Request, _, _ string) (http.ResponseWriter, func(bool)) {
	return w, func(bool) {}
}

func TestFind(t *testing.T) {
	rec := recorder{returns(degrade.Done)}
	l := limiter.PerMinute(1)
	for _, c := range []struct {
		h    degrade.Handler
		want int
	}{
		{nil, 0},
		{returns(degrade.Done), 0},
		{degrade.First(returns(degrade.Done), degrade.Within(l, returns(degrade.Done))), 0},
		{rec, 1},
		{degrade.First(rec, rec), 2},
		{degrade.Within(l, rec), 1},
		{degrade.First(degrade.Within(l, degrade.First(rec)), returns(degrade.Skip), rec), 2},
	} {
		require.Len(t, degrade.Find[degrade.Recorder](c.h), c.want)
	}
}

type heir struct {
	degrade.Handler
	setting string
	state   *int
}

func (h *heir) Inherit(prev degrade.Handler) bool {
	p, ok := prev.(*heir)
	if !ok || p.setting != h.setting {
		return false
	}
	h.state = p.state
	return true
}

// A state goes to one handler with equal settings, wherever it stands in the chain.
func TestInherit(t *testing.T) {
	fresh := func(setting string) *heir { return &heir{returns(degrade.Skip), setting, new(int)} }
	a, b, twin := fresh("a"), fresh("b"), fresh("a")
	prev := degrade.First(a, degrade.Within(limiter.PerMinute(1), b), twin)
	a2, a3, b2, c := fresh("a"), fresh("a"), fresh("b"), fresh("c")
	own := c.state
	degrade.Inherit(degrade.First(b2, c, degrade.First(a2), a3), prev)
	require.Same(t, b.state, b2.state)
	require.Same(t, a.state, a2.state)
	require.Same(t, twin.state, a3.state)
	require.Same(t, own, c.state)
	degrade.Inherit(nil, prev)
	degrade.Inherit(a2, nil)
}

func TestContext(t *testing.T) {
	_, ok := degrade.FromContext(context.Background())
	require.False(t, ok)
	want := degrade.Info{Policy: "a", Mode: "flag", Cause: degrade.Capacity, RetryAfter: time.Second}
	got, ok := degrade.FromContext(degrade.NewContext(context.Background(), want))
	require.True(t, ok)
	require.Equal(t, want, got)
}
