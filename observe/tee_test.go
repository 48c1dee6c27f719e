package observe_test

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/observe"
)

// diary notes who saw which policy.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(s string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, s)
}

// named is an observer that notes, and panics if told to.
type named struct {
	name   string
	diary  *diary
	panics bool
}

func (n *named) Observe(e limiter.Event) {
	n.diary.note(n.name + " " + e.Policy)
	if n.panics {
		panic(n.name)
	}
}

// forgetful keeps no key.
type forgetful struct{ named }

func (f *forgetful) KeepsNoKey() limiter.Observer { return f }

// embedder embeds one that keeps none, and keeps them itself.
type embedder struct{ *forgetful }

// incomparable cannot be compared, so nobody can tell that it returns itself.
type incomparable struct{ _ []int }

func (incomparable) Observe(limiter.Event)          {}
func (i incomparable) KeepsNoKey() limiter.Observer { return i }

// binder notes what is bound and released.
type binder struct {
	named
	bindPanics, releasePanics, bare bool
}

func (b *binder) Bind(policy string) (limiter.Observer, func()) {
	if b.bindPanics {
		panic("bind " + b.name)
	}
	b.diary.note("bind " + b.name + " " + policy)
	if b.bare {
		return nil, nil
	}
	return &named{name: b.name + "/" + policy, diary: b.diary}, func() {
		b.diary.note("release " + b.name)
		if b.releasePanics {
			panic("release " + b.name)
		}
	}
}

func TestTeeShowsEveryEventToEachInOrder(t *testing.T) {
	var d diary
	tee := observe.Tee(&named{name: "a", diary: &d}, nil, &named{name: "b", diary: &d}, limiter.ObserverFunc(nil),
		limiter.ObserverFunc(func(e limiter.Event) { d.note("c " + e.Policy) }))
	tee.Observe(limiter.Event{Policy: "x"})
	tee.Observe(limiter.Event{Policy: "y"})
	require.Equal(t, []string{"a x", "b x", "c x", "a y", "b y", "c y"}, d.lines)
}

func TestTeeOfNobodyIsNil(t *testing.T) {
	require.Nil(t, observe.Tee())
	require.Nil(t, observe.Tee(nil, nil, limiter.ObserverFunc(nil)))
	require.Nil(t, observe.Tee(observe.Tee(), observe.Tee(nil)))
}

func TestTeeOfOneIsThatOne(t *testing.T) {
	a := &named{name: "a"}
	require.Same(t, a, observe.Tee(nil, a))
	require.Same(t, a, observe.Tee(observe.Tee(a), nil))
}

func TestTeeDoesNotAliasItsArguments(t *testing.T) {
	var d diary
	given := []limiter.Observer{&named{name: "a", diary: &d}, &named{name: "b", diary: &d}}
	tee := observe.Tee(given...)
	given[0] = nil
	tee.Observe(limiter.Event{})
	require.Equal(t, []string{"a ", "b "}, d.lines)
}

func TestNestedTeesAreFlat(t *testing.T) {
	var d diary
	a, b, c := &named{name: "a", diary: &d}, &named{name: "b", diary: &d}, &named{name: "c", diary: &d}
	flat := observe.Tee(a, b, c)
	require.Equal(t, flat, observe.Tee(observe.Tee(a, b), c))
	require.Equal(t, flat, observe.Tee(a, observe.Tee(nil, observe.Tee(b, c))))
}

func TestAPanicKeepsNoEventFromTheOthers(t *testing.T) {
	var d diary
	tee := observe.Tee(
		&named{name: "a", diary: &d}, &named{name: "b", diary: &d, panics: true}, &named{name: "c", diary: &d},
		&named{name: "d", diary: &d, panics: true}, &named{name: "e", diary: &d},
	)
	for range 2 {
		d.lines = nil
		require.PanicsWithValue(t, "b", func() { tee.Observe(limiter.Event{}) }, "the first one")
		require.Equal(t, []string{"a ", "b ", "c ", "d ", "e "}, d.lines)
	}

	d.lines = nil
	tee = observe.Tee(&named{name: "a", diary: &d}, &named{name: "b", diary: &d, panics: true})
	require.PanicsWithValue(t, "b", func() { tee.Observe(limiter.Event{}) }, "of the last one")
	require.Equal(t, []string{"a ", "b "}, d.lines)
}

func TestAnObserverThatEndsItsGoroutineKeepsNoEventFromTheOthers(t *testing.T) {
	var d diary
	tee := observe.Tee(limiter.ObserverFunc(func(limiter.Event) { runtime.Goexit() }), &named{name: "b", diary: &d})
	done := make(chan struct{})
	go func() {
		defer close(done)
		tee.Observe(limiter.Event{})
		d.note("went on")
	}()
	<-done
	require.Equal(t, []string{"b "}, d.lines)
}

func TestTeeKeepsNoKeyIfAllKeepNone(t *testing.T) {
	keepsNoKey := func(o limiter.Observer) bool {
		return o.(interface{ KeepsNoKey() limiter.Observer }).KeepsNoKey() == o
	}
	f, g := &forgetful{}, &forgetful{}
	require.True(t, keepsNoKey(observe.Tee(f, g)))
	require.True(t, keepsNoKey(observe.Tee(f, observe.Tee(g, f))))
	for name, other := range map[string]limiter.Observer{
		"a plain one": &named{}, "a function": limiter.ObserverFunc(func(limiter.Event) {}),
		"one that embeds": embedder{g}, "one that cannot be compared": incomparable{},
	} {
		require.Nil(t, observe.Tee(f, other).(interface{ KeepsNoKey() limiter.Observer }).KeepsNoKey(), name)
	}
}

func TestTeeBindsThoseThatCan(t *testing.T) {
	var d diary
	tee := observe.Tee(
		&binder{named: named{name: "a", diary: &d}}, &named{name: "b", diary: &d},
		&binder{named: named{name: "c", diary: &d}}, &binder{named: named{name: "d", diary: &d}, bare: true},
	)
	bound, release := tee.(limiter.Binder).Bind("login")
	bound.Observe(limiter.Event{Policy: "login"})
	tee.Observe(limiter.Event{Policy: "other"})
	release()
	release()
	bound.Observe(limiter.Event{Policy: "late"})
	require.Equal(t, []string{
		"bind a login", "bind c login", "bind d login",
		"a/login login", "b login", "c/login login", "d login",
		"a other", "b other", "c other", "d other",
		"release a", "release c",
		"a/login late", "b late", "c/login late", "d late",
	}, d.lines)
}

func TestTeeOfNoBinderBindsToTheSame(t *testing.T) {
	f := observe.Tee(&forgetful{}, &forgetful{})
	bound, release := f.(limiter.Binder).Bind("p")
	require.Equal(t, f, bound)
	require.NotPanics(t, release)
}

func TestAPanicInBindReleasesWhatWasBound(t *testing.T) {
	var d diary
	tee := observe.Tee(
		&binder{named: named{name: "a", diary: &d}, releasePanics: true}, &binder{named: named{name: "b", diary: &d}},
		&binder{named: named{name: "c", diary: &d}, bindPanics: true},
	)
	require.PanicsWithValue(t, "bind c", func() { tee.(limiter.Binder).Bind("p") })
	require.Equal(t, []string{"bind a p", "bind b p", "release a", "release b"}, d.lines)
}

func TestAPanicInAReleaseKeepsNoneFromTheOthers(t *testing.T) {
	var d diary
	tee := observe.Tee(
		&binder{named: named{name: "a", diary: &d}, releasePanics: true},
		&binder{named: named{name: "b", diary: &d}, releasePanics: true}, &binder{named: named{name: "c", diary: &d}},
	)
	_, release := tee.(limiter.Binder).Bind("p")
	d.lines = nil
	require.PanicsWithValue(t, "release a", release)
	require.NotPanics(t, release)
	require.Equal(t, []string{"release a", "release b", "release c"}, d.lines)
}

// count is as cheap as an observer can be.
type count struct{ n int }

func (c *count) Observe(limiter.Event) { c.n++ }

func TestTeeAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	tee := observe.Tee(&count{}, &count{}, &count{})
	e := limiter.Event{Kind: limiter.EventDecision, Policy: "login", Key: limiter.Key{Space: "login", ID: "ip=203.0.113.7"}}
	require.Zero(t, testing.AllocsPerRun(1000, func() { tee.Observe(e) }))
	bound, _ := tee.(limiter.Binder).Bind("login")
	require.Zero(t, testing.AllocsPerRun(1000, func() { bound.Observe(e) }))
}
