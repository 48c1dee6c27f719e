package observe

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// Tee returns an Observer that shows every event to each of observers, in their order. It leaves out those that are nil
// and those that are there already, and takes the place of a Tee among them by its observers. Without any it is nil, so
// that nobody makes events for it; of one observer it is that one.
//
// An observer that panics keeps no event from the others: they are shown it, and then the first panic goes on, which a
// guard logs.
//
// A Tee is a [limiter.Binder], which binds those that are one. If the Bind of one panics, that one is shown the events of
// the policy unbound, and all are shown an EventPanic of it. A Tee keeps no key if none of its observers does, and it is a
// [limiter.StateLogger] that logs states if any of them does. It is safe for concurrent use and allocates nothing for an
// event.
func Tee(observers ...limiter.Observer) limiter.Observer {
	t := &tee{keepsNoKey: true}
	for _, o := range observers {
		switch o := o.(type) {
		case nil:
		case limiter.ObserverFunc:
			if o != nil {
				t.add(o)
			}
		case *tee:
			for _, o := range o.observers {
				t.add(o)
			}
		default:
			t.add(o)
		}
	}
	switch len(t.observers) {
	case 0:
		return nil
	case 1:
		return t.observers[0]
	}
	return t
}

// tee is a Tee of two or more.
type tee struct {
	observers  []limiter.Observer
	keepsNoKey bool
	logsStates bool
}

var (
	_ limiter.Binder      = (*tee)(nil)
	_ limiter.StateLogger = (*tee)(nil)
)

// add leaves out an observer that is there: it would count everything twice.
func (t *tee) add(o limiter.Observer) {
	for _, known := range t.observers {
		if same(known, o) {
			return
		}
	}
	t.observers = append(t.observers, o)
	t.keepsNoKey = t.keepsNoKey && keepsNoKey(o)
	l, is := o.(limiter.StateLogger)
	t.logsStates = t.logsStates || is && l.LogsStates()
}

// Observe shows e to all.
func (t *tee) Observe(e limiter.Event) {
	next := 0
	defer func() {
		// Only a panic leaves some. It is not recovered: it goes on by itself, with the stack it began on.
		for ; next < len(t.observers); next++ {
			showQuietly(t.observers[next], &e)
		}
	}()
	for next < len(t.observers) {
		o := t.observers[next]
		next++
		o.Observe(e)
	}
}

// showQuietly drops a panic: another one is under way, and is the one to go on.
func showQuietly(o limiter.Observer, e *limiter.Event) {
	defer func() { _ = recover() }()
	o.Observe(*e)
}

// KeepsNoKey returns t if all its observers keep no part of a key beyond a call, and otherwise nil.
func (t *tee) KeepsNoKey() limiter.Observer {
	if !t.keepsNoKey {
		return nil
	}
	return t
}

// LogsStates reports whether any of the observers writes states to a log.
func (t *tee) LogsStates() bool { return t.logsStates }

// Bind binds every observer that is a [limiter.Binder]. One that panics is used as it is, rather than that all are: of
// those that can bind, each event is then still counted once.
func (t *tee) Bind(policy string) (limiter.Observer, func()) {
	bound := &tee{observers: slices.Clone(t.observers), keepsNoKey: t.keepsNoKey, logsStates: t.logsStates}
	var (
		all    releases
		panics []limiter.Event
	)
	for i, o := range t.observers {
		b, is := o.(limiter.Binder)
		if !is {
			continue
		}
		own, release, err := bind(b, policy)
		if err != nil {
			panics = append(panics, limiter.Event{
				Kind: limiter.EventPanic, Time: time.Now(), Policy: policy, Name: fmt.Sprintf("%T.Bind", o), Reason: limiter.ReasonPanic, Err: err,
			})
		}
		if own != nil {
			bound.observers[i] = own
		}
		if release != nil {
			all = append(all, release)
		}
	}
	// The panic itself cannot go on: whoever called would get no Observer. So it is told as those of other callbacks are.
	for _, e := range panics {
		for _, o := range bound.observers {
			showQuietly(o, &e)
		}
	}
	var once sync.Once
	return bound, func() { once.Do(all.call) }
}

// bind turns a panic into an error.
func bind(b limiter.Binder, policy string) (own limiter.Observer, release func(), err error) {
	defer func() {
		if v := recover(); v != nil {
			own, release, err = nil, nil, fmt.Errorf("observe: Bind panicked: %v", v)
		}
	}()
	own, release = b.Bind(policy)
	return own, release, nil
}

// releases are what is to be called when a policy is gone.
type releases []func()

// call calls all, whichever panics; the first panic goes on.
func (r releases) call() {
	next := 0
	defer func() { r[next:].quietly() }()
	for next < len(r) {
		f := r[next]
		next++
		f()
	}
}

// quietly calls all and drops their panics.
func (r releases) quietly() {
	for _, f := range r {
		func() {
			defer func() { _ = recover() }()
			f()
		}()
	}
}

// keepsNoKey reports whether o says of itself that it keeps no part of a key beyond a call. A type that embeds such an
// observer does not become one, as what it returns is not itself.
func keepsNoKey(o limiter.Observer) (yes bool) {
	defer func() { _ = recover() }()
	f, is := o.(interface{ KeepsNoKey() limiter.Observer })
	return is && same(f.KeepsNoKey(), o)
}

// same is false for values of a type that cannot be compared, such as functions.
func same(a, b limiter.Observer) (yes bool) {
	defer func() { _ = recover() }()
	return a == b
}
