package middleware

import (
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/spillway-go/spillway/limiter"
)

// watch is the observer of a guard. The zero value is one that nobody has.
type watch struct {
	observer   limiter.Observer // nil: nobody
	keepsNoKey bool
	logsStates bool
	log        *slog.Logger
	blind      sync.Once
}

// ForgetfulObserver is an [Observer] that keeps no part of Event.Key beyond a call, and says so of itself: KeepsNoKey
// returns the receiver, and what it binds as a [limiter.Binder] keeps none either. Such observers are shown keys that may
// be overwritten once the request has been served, which spares a copy. A type that embeds one does not become one.
type ForgetfulObserver interface{ KeepsNoKey() limiter.Observer }

func (w *watch) init(o limiter.Observer, log *slog.Logger) {
	w.observer, w.log = o, log
	f, ok := o.(ForgetfulObserver)
	w.keepsNoKey = o == nil || ok && same(f.KeepsNoKey(), o)
	l, ok := o.(limiter.StateLogger)
	w.logsStates = ok && l.LogsStates()
}

// bind gives every policy of s its observer: the one it had in old, or a new one.
func (w *watch) bind(old, s *snapshot) {
	if w.observer == nil {
		return
	}
	for _, p := range s.policies {
		if old != nil {
			if was := old.byName[p.Name]; was != nil {
				p.observer, p.unbind = was.observer, was.unbind
				continue
			}
		}
		p.observer, p.unbind = w.bound(p.Name)
	}
}

// bound returns the observer of one policy. If preparing it panics it is the one of all.
func (w *watch) bound(name string) (o limiter.Observer, unbind func()) {
	b, ok := w.observer.(limiter.Binder)
	if !ok {
		return w.observer, nil
	}
	defer func() {
		if v := recover(); v != nil {
			w.panicked(v)
		}
		if o == nil {
			o = w.observer
		}
	}()
	return b.Bind(name)
}

// release tells the observers of policies that are in old and no more in s.
func (w *watch) release(old, s *snapshot) {
	for _, p := range old.policies {
		if p.unbind != nil && s.byName[p.Name] == nil {
			w.call(p.unbind)
		}
	}
}

func (w *watch) call(f func()) {
	defer w.contain()
	f()
}

// contain is deferred around observers.
func (w *watch) contain() {
	if v := recover(); v != nil {
		w.panicked(v)
	}
}

func (w *watch) panicked(v any) {
	w.blind.Do(func() {
		w.log.Error("spillway: observer panicked", "panic", panicText(v), "stack", string(debug.Stack()))
	})
}

// panicText says of a panic what can be said without its value, which may quote a key: the stack tells the rest.
func panicText(v any) string {
	if e, ok := v.(runtime.Error); ok {
		return e.Error()
	}
	return fmt.Sprintf("a %T", v)
}
