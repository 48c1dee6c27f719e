package middleware_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/middleware"
)

// binder is an observer that notes what it is asked to bind, and who saw an event.
type binder struct {
	log   []string
	panic string // what panics: bind, release, observe
}

type boundTo struct {
	*binder
	policy string
}

func (b *binder) note(what, detail string) {
	b.log = append(b.log, what+" "+detail)
	if b.panic == what {
		panic(what)
	}
}

func (b *binder) Bind(policy string) (limiter.Observer, func()) {
	b.note("bind", policy)
	return boundTo{b, policy}, func() { b.note("release", policy) }
}

func (b *binder) Observe(e limiter.Event) { b.note("observe", e.Policy) }
func (b boundTo) Observe(e limiter.Event) { b.note("observe", b.policy+"="+e.Policy) }

func (b *binder) take() string {
	seen := strings.Join(b.log, ", ")
	b.log = nil
	return seen
}

func named(names ...string) (out []policy) {
	for _, name := range names {
		out = append(out, policy{Name: name, Limit: perMinute})
	}
	return byIP(out...)
}

// A policy is bound while it is in force, once, and its events go to what was bound.
func TestPoliciesAreBound(t *testing.T) {
	b := new(binder)
	g := newGuard(t, config{Observer: b, Policies: named("a", "b")})
	require.Equal(t, "bind a, bind b", b.take())
	get(g, "192.0.2.7")
	require.Equal(t, "observe a=a, observe b=b", b.take())

	require.NoError(t, g.Update(named("b", "c")))
	require.Equal(t, "bind c, release a", b.take())
	get(g, "192.0.2.7")
	require.Equal(t, "observe b=b, observe c=c", b.take())

	require.Error(t, g.Update(named("d", "d")))
	require.Empty(t, b.take(), "a set that is refused binds nothing")
	_, err := g.Take(t.Context(), "c", "key", 1)
	require.NoError(t, err)
	require.Equal(t, "observe c=c", b.take())
	require.NoError(t, g.Update(nil))
	require.Equal(t, "release b, release c", b.take())
}

// Whatever panics in an observer costs it its events and nobody else anything.
func TestBindersMayPanic(t *testing.T) {
	for what, want := range map[string]string{
		"bind":    "bind a, observe a, bind b, release b",
		"release": "bind a, observe a=a, bind b, release a, release b",
		"observe": "bind a, observe a=a, bind b, release a, release b",
	} {
		b := &binder{panic: what}
		g := newGuard(t, config{Observer: b, Policies: named("a")})
		require.Equal(t, 200, get(g, "192.0.2.7").Code)
		require.NoError(t, g.Update(named("b")))
		if what == "bind" {
			b.panic = ""
			require.NoError(t, g.Update(named("c")))
			require.Equal(t, "bind a, observe a, bind b, bind c", b.take())
			continue
		}
		require.NoError(t, g.Update(nil))
		require.Equal(t, want, b.take())
	}
}

// hoarder keeps the keys it sees; spares says that it keeps none.
type hoarder struct{ keys *[]string }

func (k hoarder) Observe(e limiter.Event) { *k.keys = append(*k.keys, e.Key.ID) }

type spares struct{ hoarder }

func (f spares) KeepsNoKey() limiter.Observer { return f }

type embeds struct{ spares }

var _ middleware.ForgetfulObserver = spares{}

// An observer may keep keys unless it says that it does not, and only who says so of itself saves the copy.
func TestObserversMayKeepKeys(t *testing.T) {
	for _, o := range []func(hoarder) limiter.Observer{
		func(k hoarder) limiter.Observer { return k },
		func(k hoarder) limiter.Observer { return embeds{spares{k}} },
	} {
		store, err := memory.New(memory.Config{}) // which keeps no key either
		require.NoError(t, err)
		var keys []string
		g := newGuard(t, config{Limiter: store, Observer: o(hoarder{&keys}), Policies: named("a")})
		for k := range 50 {
			get(g, fmt.Sprint("192.0.2.", k))
		}
		for k, key := range keys {
			require.Equal(t, fmt.Sprint("ip=192.0.2.", k), key)
		}
		require.Len(t, keys, 50)
	}
}
