package observe

import (
	"sync"

	"github.com/spillway-go/spillway/limiter"
)

// Tee returns an Observer that shows every event to each of observers, in their order. It leaves out those that are nil,
// and takes the place of a Tee among them by its observers. Without any it is nil, so that nobody makes events for it; of
// one observer it is that one.
//
// An observer that panics keeps no event from the others: they are shown it, and then the first panic goes on, which a
// guard logs.
//
// A Tee is a [limiter.Binder], which binds those that are one, and keeps no key if none of them does. It is safe for
// concurrent use and allocates nothing for an event.
func Tee(observers ...limiter.Observer) limiter.Observer {
	var all []limiter.Observer
	for _, o := range observers {
		switch o := o.(type) {
		case nil:
		case limiter.ObserverFunc:
			if o != nil {
				all = append(all, o)
			}
		case *tee:
			all = append(all, o.observers...)
		default:
			all = append(all, o)
		}
	}
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	t := &tee{observers: all, keepsNoKey: true}
	for _, o := range all {
		t.keepsNoKey = t.keepsNoKey && keepsNoKey(o)
	}
	return t
}

// tee is a Tee of two or more.
type tee struct {
	observers  []limiter.Observer
	keepsNoKey bool
}

var _ limiter.Binder = (*tee)(nil)

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

// Bind binds every observer that is a [limiter.Binder]. If one panics, what was bound is released and the panic goes on.
func (t *tee) Bind(policy string) (limiter.Observer, func()) {
	bound := &tee{observers: make([]limiter.Observer, len(t.observers)), keepsNoKey: t.keepsNoKey}
	var all releases
	done := false
	defer func() {
		if !done {
			all.quietly()
		}
	}()
	for i, o := range t.observers {
		bound.observers[i] = o
		b, is := o.(limiter.Binder)
		if !is {
			continue
		}
		own, release := b.Bind(policy)
		if own != nil {
			bound.observers[i] = own
		}
		if release != nil {
			all = append(all, release)
		}
	}
	done = true
	var once sync.Once
	return bound, func() { once.Do(all.call) }
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
	defer func() {
		if recover() != nil { // values of a type that cannot be compared
			yes = false
		}
	}()
	f, is := o.(interface{ KeepsNoKey() limiter.Observer })
	return is && f.KeepsNoKey() == o
}
