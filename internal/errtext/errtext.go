// Package errtext exists so that logs say what is wrong with a store and never hold a key: it tells of an error what can be
// told without its text.
package errtext

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/spillway-go/spillway/limiter"
)

// Of says of err what can be said without its text. observe.ErrorText is this for users, and tells how it is made. It does
// not panic, whatever err's methods do.
func Of(err error) string {
	if err == nil {
		return ""
	}
	var w walk
	w.visit(err)
	if len(w.parts) == 0 {
		return "text withheld"
	}
	return strings.Join(w.parts, ": ")
}

// walk gathers the parts of a text.
type walk struct {
	parts []string
	nodes int
}

// mostNodes bounds a walk: a tree may be large, or no tree.
const mostNodes = 64

func (w *walk) say(part string) {
	if !slices.Contains(w.parts, part) {
		w.parts = append(w.parts, part)
	}
}

// visit says nothing of an error whose methods panic, as those of a nil pointer may: who logs a fault must not become one.
func (w *walk) visit(err error) {
	if w.nodes++; err == nil || w.nodes > mostNodes {
		return
	}
	defer func() { _ = recover() }()
	text, ok := textOf(err)
	if slices.Contains(constants, text) {
		w.say(text)
		return
	}
	if errno, is := err.(syscall.Errno); is { //nolint:errorlint // each node of the tree is looked at by itself
		w.say(errno.Error())
		return
	}
	named := false
	switch e := err.(type) { //nolint:errorlint // each node of the tree is looked at by itself
	case *net.OpError:
		// Its addresses are left out: those of a connection that was accepted are the client's.
		named = slices.Contains(operations, e.Op)
		if named {
			w.say(e.Op)
		}
	case interface{ RedisError() }:
		if ok {
			w.say(redisCode(text))
		}
		named = true
	case interface{ Label() string }: // a fault of a call to a store
		label := e.Label()
		if named = slices.Contains(labels, label); named {
			known := len(w.parts) + 1 // and that the store is unavailable
			defer func() {
				if len(w.parts) <= known {
					w.say(label)
				}
			}()
		}
	case *net.DNSError:
		missing := e.IsNotFound
		w.say("lookup")
		if missing {
			w.say("no such host")
		}
		named = true
	}
	switch e := err.(type) { //nolint:errorlint // as above
	case interface{ Unwrap() error }:
		if inner := e.Unwrap(); inner != nil {
			w.visit(inner)
			return
		}
	case interface{ Unwrap() []error }:
		if inner := e.Unwrap(); len(inner) > 0 {
			for _, err := range inner[:min(len(inner), mostNodes)] {
				w.visit(err)
			}
			return
		}
	}
	if t, is := err.(interface{ Timeout() bool }); is && t.Timeout() {
		w.say("timeout")
		return
	}
	if name := fmt.Sprintf("%T", err); ok && !named && !slices.Contains(plain, name) && len(name) <= mostName {
		w.say(name)
	}
}

// mostName is the longest name of a type that is worth its place.
const mostName = 80

// plain are the types of errors made of nothing but a text.
var plain = []string{"*errors.errorString", "*fmt.wrapError", "*fmt.wrapErrors", "*errors.joinError", "*fmt.fmtError"}

var operations = []string{"dial", "read", "write", "accept", "close", "listen", "set"}

// textOf returns the text of err; "" where it is made up of others, at a cost. One that panics is not ok: a tree with one in
// it can still be walked.
func textOf(err error) (text string, ok bool) {
	switch err.(type) { //nolint:errorlint // each node of the tree is looked at by itself
	case *net.OpError, *os.SyscallError, *net.DNSError, syscall.Errno:
		return "", true
	}
	defer func() { ok = recover() == nil }()
	return err.Error(), true
}

// constants are told by their text, so no package has to be imported for its errors. A text that is in this list cannot
// be a key's.
var constants = []string{
	limiter.ErrUnavailable.Error(), limiter.ErrInvalid.Error(), limiter.ErrClosed.Error(), limiter.ErrNever.Error(),
	"keyfunc: no key", "keyfunc: policy does not apply to this request", "keyfunc: no peer address",
	"keyfunc: no client address", "keyfunc: invalid forwarded address", "keyfunc: too few forwarded hops",
	"middleware: a callback panicked",
	"redis: client is closed", "redis: connection pool timeout", "redis: connection pool exhausted",
	context.Canceled.Error(), context.DeadlineExceeded.Error(),
	errors.ErrUnsupported.Error(), io.EOF.Error(), io.ErrUnexpectedEOF.Error(), net.ErrClosed.Error(),
	os.ErrDeadlineExceeded.Error(),
}

// labels are the causes that faults of a store are known by.
var labels = []string{
	"timeout", "refused", "reset", "pool", "closed", "auth", "oom", "readonly", "loading", "moved", "busy", "cluster_down", "master_down",
	"try_again", "no_replicas", "misconf", "clients", "crossslot", "wrong_type", "command", "script", "canceled", "deadline", "other",
}

// redisCodes are first words of answers of Redis.
var redisCodes = []string{
	"ASK", "BUSY", "CLUSTERDOWN", "CROSSSLOT", "ERR", "EXECABORT", "LOADING", "MASTERDOWN", "MISCONF", "MOVED", "NOAUTH",
	"NOPERM", "NOREPLICAS", "NOSCRIPT", "OOM", "READONLY", "TRYAGAIN", "UNKILLABLE", "WRONGPASS", "WRONGTYPE",
}

func redisCode(text string) string {
	code, rest, _ := strings.Cut(text, " ")
	if !slices.Contains(redisCodes, code) {
		return "redis: an answer"
	}
	if code == "ERR" && strings.HasPrefix(rest, "unknown command") {
		return "redis: ERR unknown command"
	}
	return "redis: " + code
}
