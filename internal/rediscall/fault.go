package rediscall

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/limiter"
)

// fault is a failed call.
type fault struct {
	kind  error  // limiter.ErrUnavailable or limiter.ErrInvalid
	cause error  // nil where it would pass for an error of the caller's context
	label string // for metrics
	text  string
}

func (f *fault) Error() string { return f.kind.Error() + ": redis: " + f.text }

func (f *fault) Unwrap() []error {
	if f.cause == nil {
		return []error{f.kind}
	}
	return []error{f.kind, f.cause}
}

// Answers of a server that cannot serve now. Everything else it refuses is a fault of who asks.
var outages = map[string]string{
	"LOADING":     "loading",
	"MASTERDOWN":  "master_down",
	"CLUSTERDOWN": "cluster_down",
	"TRYAGAIN":    "try_again",
	"READONLY":    "readonly",
	"OOM":         "oom",
	"BUSY":        "busy",
	"UNKILLABLE":  "busy",
	"MOVED":       "moved",
	"ASK":         "moved",
	"NOREPLICAS":  "no_replicas",
	"MISCONF":     "misconf", // it cannot save to disk, and takes no writes until it can
}

var refusals = map[string]string{
	"NOAUTH":    "auth",
	"WRONGPASS": "auth",
	"NOPERM":    "auth",
	"CROSSSLOT": "crossslot",
	"WRONGTYPE": "wrong_type",
}

// fault says what err means for the caller.
func (c *Client) fault(b *bound, err error) error {
	f := classify(err)
	// An answer is an answer, though the caller may have left meanwhile.
	var answer redis.Error
	if !errors.As(err, &answer) {
		ended := b.callerErr()
		if !errors.Is(ended, context.Canceled) {
			c.lookAgain()
		}
		if ended != nil {
			return ended
		}
	}
	switch {
	case f.label == "moved" && !c.sharded:
		f.text += " (the server belongs to a Cluster, which needs a redis.ClusterClient)"
	case f.label == "timeout" && errors.Is(err, context.DeadlineExceeded):
		// go-redis waits for connections with the context, and for replies with the socket's deadline.
		f.text = "no connection within " + c.timeout.String()
		if plain, ok := c.rdb.(*redis.Client); ok && exhausted(plain) {
			f.label, f.text = "pool", f.text+": all of the pool are in use"
		}
	case f.label == "timeout":
		f.text = "no answer within " + c.timeout.String() + ": " + f.text
	}
	return f
}

func exhausted(c *redis.Client) bool {
	s := c.PoolStats()
	return s.IdleConns == 0 && int(s.TotalConns) >= c.Options().PoolSize
}

func classify(err error) *fault {
	f := &fault{kind: limiter.ErrUnavailable, cause: err, label: "other", text: strings.TrimPrefix(err.Error(), "redis: ")}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		f.cause = nil
	}
	var answer redis.Error
	switch {
	case errors.Is(err, redis.Nil), strings.HasPrefix(err.Error(), "redis: can't parse"):
		// A reply of a kind that the script was not to give.
		f.kind, f.label, f.text = limiter.ErrInvalid, "script", "the reply is no bulk string: "+f.text
	case errors.As(err, &answer):
		f.label, f.kind = ofAnswer(answer.Error())
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		f.label = "pool"
	case errors.Is(err, redis.ErrClosed):
		f.label = "closed"
	case isTimeout(err):
		f.label = "timeout"
	case errors.Is(err, syscall.ECONNREFUSED):
		f.label = "refused"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		f.label = "reset"
	}
	return f
}

func ofAnswer(text string) (label string, kind error) {
	code := codeOf(text)
	if label, ok := outages[code]; ok {
		return label, limiter.ErrUnavailable
	}
	if label, ok := refusals[code]; ok {
		return label, limiter.ErrInvalid
	}
	switch {
	case strings.Contains(text, "max number of clients"):
		return "clients", limiter.ErrUnavailable
	case strings.Contains(text, "user_script"), strings.Contains(text, "running script"), strings.Contains(text, "compiling script"):
		return "script", limiter.ErrInvalid
	case strings.Contains(text, "unknown command"):
		return "command", limiter.ErrInvalid
	}
	return "other", limiter.ErrInvalid
}

// code is the first word of a server's error, or "".
func code(err error) string {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return ""
	}
	return codeOf(answer.Error())
}

func codeOf(text string) string {
	first, rest, _ := strings.Cut(text, " ")
	if first != "ERR" {
		return first
	}
	// Redis before 7 wraps what a command of a script was told: "ERR Error running script (…): …: -OOM command not allowed".
	if strings.HasPrefix(rest, "Error running script") {
		if i := strings.LastIndex(rest, ": -"); i >= 0 {
			rest = rest[i+len(": -"):]
		}
	}
	// KVRocks writes ERR before the code.
	second, _, _ := strings.Cut(rest, " ")
	if _, ok := outages[second]; ok {
		return second
	}
	if _, ok := refusals[second]; ok {
		return second
	}
	return first
}

// isDial reports that no connection came about, so nothing was sent.
func isDial(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// Label returns what [Cause] does: a word of a fixed list.
func (f *fault) Label() string { return f.label }

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// Cause returns a short label of an error for metrics, "" for none: timeout, refused, reset, pool, closed, auth, oom, readonly,
// loading, moved, busy, cluster_down, master_down, try_again, no_replicas, misconf, clients, crossslot, wrong_type, command,
// script, canceled, deadline (the caller's own) or other.
func Cause(err error) string {
	var f *fault
	switch {
	case err == nil:
		return ""
	case errors.As(err, &f):
		return f.label
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline"
	case errors.Is(err, limiter.ErrClosed):
		return "closed"
	}
	return classify(err).label
}
