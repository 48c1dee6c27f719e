package observe_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/middleware"
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

// The others are bound as ever, the one that panics sees every event nevertheless, and all are told once.
func TestAPanicInBindIsTheBindersOwn(t *testing.T) {
	var d diary
	var panics []limiter.Event
	tee := observe.Tee(
		&binder{named: named{name: "a", diary: &d}}, &binder{named: named{name: "b", diary: &d}, bindPanics: true},
		limiter.ObserverFunc(func(e limiter.Event) {
			if e.Kind == limiter.EventPanic {
				panics = append(panics, e)
			}
			panic("an observer's own, while it is told")
		}),
		&binder{named: named{name: "c", diary: &d}},
	)
	bound, release := tee.(limiter.Binder).Bind("p")
	require.Equal(t, []string{"bind a p", "bind c p", "a/p p", "b p", "c/p p"}, d.lines)
	require.Len(t, panics, 1)
	require.Equal(t, "p", panics[0].Policy)
	require.Equal(t, "*observe_test.binder.Bind", panics[0].Name)
	require.Equal(t, limiter.ReasonPanic, panics[0].Reason)
	require.ErrorContains(t, panics[0].Err, "bind b")

	d.lines = nil
	require.Panics(t, func() { bound.Observe(limiter.Event{Policy: "p"}) })
	require.Equal(t, []string{"a/p p", "b p", "c/p p"}, d.lines)
	d.lines = nil
	require.NotPanics(t, release)
	require.Equal(t, []string{"release a", "release c"}, d.lines)
}

// A guard that has it tells its log's observer of the panic, and loses no event of any policy.
func TestAGuardSurvivesAPanicInBind(t *testing.T) {
	var d diary
	l, p := newLog(t, slog.LevelError, observe.LogConfig{})
	store, err := memory.New(memory.Config{})
	require.NoError(t, err)
	defer store.Close()
	guard, err := middleware.New(middleware.Config{
		Limiter: store, Observer: observe.Tee(&binder{named: named{name: "a", diary: &d}}, &binder{named: named{name: "b", diary: &d}, bindPanics: true}, l),
		Policies: []middleware.Policy{
			{Name: "one", Key: keyfunc.IP(), Limit: limiter.PerHour(1)}, {Name: "two", Key: keyfunc.IP(), Limit: limiter.PerHour(1)},
		},
	})
	require.NoError(t, err)
	lines := p.lines(t)
	require.NotEmpty(t, lines)
	require.Equal(t, "spillway: a callback panicked", lines[0]["msg"])
	d.lines = nil
	guard.Serve(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil), http.NotFoundHandler())
	require.Equal(t, []string{"a/one one", "b one", "a/two two", "b two"}, d.lines)
}

func TestTeeCountsEqualObserversOnce(t *testing.T) {
	var d diary
	a, b := &named{name: "a", diary: &d}, &named{name: "b", diary: &d}
	require.Same(t, a, observe.Tee(a, a, observe.Tee(a, nil, a)))
	tee := observe.Tee(a, b, a, observe.Tee(b, a))
	tee.Observe(limiter.Event{})
	require.Equal(t, []string{"a ", "b "}, d.lines)

	d.lines = nil
	note := limiter.ObserverFunc(func(limiter.Event) { d.note("f") }) // nobody can tell whether these are one
	observe.Tee(note, note, incomparable{}, incomparable{}).Observe(limiter.Event{})
	require.Equal(t, []string{"f", "f"}, d.lines)
}

func TestTeeLogsStatesIfAnyDoes(t *testing.T) {
	l, _ := newLog(t, slog.LevelInfo, observe.LogConfig{})
	a, b := &named{}, &named{name: "b"}
	logs := func(o limiter.Observer) bool { return o.(limiter.StateLogger).LogsStates() }
	require.True(t, logs(observe.Tee(a, l)))
	require.True(t, logs(observe.Tee(observe.Tee(l, b), a)))
	require.False(t, logs(observe.Tee(a, b)))
	bound, _ := observe.Tee(a, l).(limiter.Binder).Bind("p")
	require.True(t, logs(bound))
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
