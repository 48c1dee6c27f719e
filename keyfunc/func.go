package keyfunc

import (
	"errors"
	"fmt"

	"github.com/spillway-go/spillway/limiter"
)

// Func names the key of a request. It returns [ErrNoKey] (or an empty [Key]) if the request has none, [ErrSkip] if the
// policy does not apply to the request, and an error wrapping [limiter.ErrInvalid] if the function itself is wrong.
//
// A Func is called for many requests at once and must be safe for that; the [Request] it is given belongs to it alone
// while it runs. It must not keep the Request or a Key after the request has been served.
type Func func(*Request) (Key, error)

var (
	// ErrNoKey means that the request has no such key: an absent header, an empty value, no client address. What follows
	// is the policy's choice; it is never a bucket shared by all such requests.
	ErrNoKey = errors.New("keyfunc: no key")
	// ErrSkip means that the policy does not apply to this request. [IP] returns it where [Trust] says [AllowRequest].
	ErrSkip = errors.New("keyfunc: policy does not apply to this request")
)

// invalid builds an error wrapping [limiter.ErrInvalid].
func invalid(format string, args ...any) error {
	return fmt.Errorf("keyfunc: "+format+": %w", append(args, limiter.ErrInvalid)...)
}

// fail is a wrongly configured Func: constructors return no error, so the function does, at every call. Refusing is the
// safe side, for a mistake in the configuration must not open a gate.
func fail(err error) Func {
	return func(*Request) (Key, error) { return Key{}, err }
}

// Join is the key made of the keys of all funcs, in that order: Join(Tenant(t), Route()) counts each tenant's calls of
// each route apart. It has no key if one of them has none. A kind that occurs twice is an error wrapping
// [limiter.ErrInvalid], and so is a Join of nothing or of a nil function.
func Join(funcs ...Func) Func {
	funcs, err := checked("Join", funcs)
	if err != nil {
		return fail(err)
	}
	return func(r *Request) (Key, error) {
		if r.probe != nil {
			return r.probeJoin(funcs)
		}
		return r.join(funcs)
	}
}

// First is the first of funcs that has a key, as in First(User(u), IP()): the user if there is one, else the address.
// Only [ErrNoKey] goes on to the next one; any other error stops. It returns [ErrNoKey] if none has a key. A First of
// nothing or of a nil function is an error wrapping [limiter.ErrInvalid].
func First(funcs ...Func) Func {
	funcs, err := checked("First", funcs)
	if err != nil {
		return fail(err)
	}
	return func(r *Request) (Key, error) {
		if r.probe != nil {
			return r.probeFirst(funcs)
		}
		var last error
		for _, f := range funcs {
			k, err := r.Resolve(f)
			if err == nil || !errors.Is(err, ErrNoKey) {
				return k, err
			}
			last = err
		}
		return Key{}, last
	}
}

// checked copies funcs and refuses none and nil ones.
func checked(name string, funcs []Func) ([]Func, error) {
	if len(funcs) == 0 {
		return nil, invalid("%s of no functions", name)
	}
	for i, f := range funcs {
		if f == nil {
			return nil, invalid("%s: function %d is nil", name, i+1)
		}
	}
	return append([]Func(nil), funcs...), nil
}
