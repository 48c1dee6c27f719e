// Package rediscall exists because several limiters need the same thing of Redis: it calls scripts through the go-redis client a
// user already has, and bounds every call. A call costs at most the time-out in all (wait for a connection, dial, handshake,
// write and read together), ends no later than the caller's deadline, and is never repeated when it may have run.
package rediscall

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/limiter"
)

// Script is the source of a Lua script and the SHA-1 by which a server knows it. It is immutable.
type Script struct {
	sha string
	// Boxed once, so that a call need not.
	shaArg, sourceArg any
}

// NewScript returns the script of that source. It does no I/O.
func NewScript(source string) *Script {
	sum := sha1.Sum([]byte(source))
	sha := hex.EncodeToString(sum[:])
	return &Script{sha: sha, shaArg: sha, sourceArg: source}
}

// SHA returns the SHA-1 of the source in lower-case hex.
func (s *Script) SHA() string { return s.sha }

// Client makes bounded calls; [Bound] makes one. It is safe for concurrent use.
//
// The caller's deadline is kept to the nanosecond. Its cancellation is answered with the context's error, but while a call
// waits, it is not noticed before the bound: to watch for it would cost every call more than it could save any.
type Client struct {
	rdb     redis.UniversalClient
	own     func() error // closes rdb; nil where its connections are the user's
	timeout time.Duration
	sharded bool
	closed  atomic.Bool
	alarms  alarms
	looked  atomic.Int64 // when a Cluster was last asked who has which slot on account of a failure, in Unix nanoseconds
}

// Timeout returns what a call may cost in all.
func (c *Client) Timeout() time.Duration { return c.timeout }

// Sharded reports whether keys of different slots need different calls, as on a Cluster or a Ring.
func (c *Client) Sharded() bool { return c.sharded }

// Close closes the connections that [Bound] made, never the user's client. Later calls fail with [limiter.ErrUnavailable].
// It may be called more than once.
func (c *Client) Close() error {
	if c.closed.Swap(true) || c.own == nil {
		return nil
	}
	return c.own()
}

// Commands that go-redis must not repeat: after a lost connection or a time-out nobody knows whether they ran.
type (
	stringCmd struct{ *redis.StringCmd }
	anyCmd    struct{ *redis.Cmd }
)

// NoRetry tells go-redis to run the command once.
func (stringCmd) NoRetry() bool { return true }

// NoRetry tells go-redis to run the command once.
func (anyCmd) NoRetry() bool { return true }

// Run runs s once: by its SHA-1, and by its source when the server does not know it yet. While some keys of a call are on
// their way to another node of a Cluster it waits for them. The reply must be a bulk string;
// another single value is returned as its text, and anything else is [limiter.ErrInvalid].
//
// An error is the context's own if that ended; [limiter.ErrUnavailable] if the server could not be asked, did not answer in
// time or answered that it cannot serve now (the script may have run unless the server answered); [limiter.ErrInvalid] if it
// refused what it was asked. [Cause] has a label for each.
func (c *Client) Run(ctx context.Context, s *Script, keys []string, args ...any) (string, error) {
	b, err := c.begin(ctx)
	if err != nil {
		return "", err
	}
	defer b.end()
	return c.run(b, s, keys, args)
}

func (c *Client) run(b *bound, s *Script, keys []string, args []any) (string, error) {
	known, again := true, false
	for pause := firstPause; ; {
		cmd := scriptCmd(b, make([]any, 0, 3+len(keys)+len(args)), s, known, keys, args)
		err := c.rdb.Process(b, cmd)
		switch {
		case err == nil:
			return cmd.Val(), nil
		case known && isUnknown(err):
			known = false // the source is sent instead
		case !again && c.didNotRun(err) && !b.over():
			again = true
		case isMoving(err) && b.pause(&pause):
		default:
			return "", c.fault(b, err)
		}
	}
}

// scriptCmd puts the arguments into room, which has space for them.
func scriptCmd(b *bound, room []any, s *Script, known bool, keys []string, args []any) stringCmd {
	if known {
		room = append(room, "evalsha", s.shaArg, len(keys))
	} else {
		room = append(room, "eval", s.sourceArg, len(keys))
	}
	for _, k := range keys {
		room = append(room, k)
	}
	cmd := stringCmd{redis.NewStringCmd(b, append(room, args...)...)}
	// Where the keys stand, so that a Cluster's client does not ask a server about the command.
	cmd.SetStepCount(1)
	if len(keys) > 0 {
		cmd.SetFirstKeyPos(3)
	}
	return cmd
}

// didNotRun reports failures after which a second try cannot run anything twice and may do better. A ClusterClient sees to
// READONLY itself; of a plain client the connection to the former master is closed by now.
func (c *Client) didNotRun(err error) bool {
	if code(err) == "READONLY" {
		return !c.sharded
	}
	return isDial(err)
}

// Call is one run of a script by [Client.RunEach]: Keys and Args go in, Reply and Err come out.
type Call struct {
	Keys  []string
	Args  []any
	Reply string
	Err   error
}

// RunEach runs s for every call by itself, in as few round trips as possible: one pipeline, on a Cluster or Ring one for each
// node. All of them end within one time-out. It fills in Reply and Err as [Client.Run] returns them. What a server did not
// know by its SHA-1 is sent again with the source; nothing else is tried twice, so that no call waits for another one.
func (c *Client) RunEach(ctx context.Context, s *Script, calls []Call) {
	b, err := c.begin(ctx)
	if err != nil {
		for i := range calls {
			calls[i].Reply, calls[i].Err = "", err
		}
		return
	}
	defer b.end()
	if len(calls) == 1 { // a pipeline would use connections of its own
		calls[0].Reply, calls[0].Err = c.run(b, s, calls[0].Keys, calls[0].Args)
		return
	}
	cmds := make([]stringCmd, len(calls))
	c.pipeline(b, s, true, calls, cmds)
	for i := range calls {
		if isUnknown(cmds[i].Err()) {
			c.pipeline(b, s, false, calls, cmds)
			break
		}
	}
	for i := range calls {
		calls[i].Reply, calls[i].Err = cmds[i].Result()
		if calls[i].Err != nil {
			calls[i].Reply, calls[i].Err = "", c.fault(b, calls[i].Err)
		}
	}
}

// isUnknown reports that the server does not know the script by its SHA-1.
func isUnknown(err error) bool { return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") }

// isMoving reports that nothing ran as only some of the keys have been moved to another node yet.
func isMoving(err error) bool { return code(err) == "TRYAGAIN" }

// pipeline runs all calls by the SHA-1, or by the source those that were not known by it.
func (c *Client) pipeline(b *bound, s *Script, known bool, calls []Call, cmds []stringCmd) {
	size := 0
	for i := range calls {
		size += 3 + len(calls[i].Keys) + len(calls[i].Args)
	}
	room := make([]any, size)
	pipe := c.rdb.Pipeline()
	for i := range calls {
		if !known && !isUnknown(cmds[i].Err()) {
			continue
		}
		n := 3 + len(calls[i].Keys) + len(calls[i].Args)
		cmds[i] = scriptCmd(b, room[:0:n], s, known, calls[i].Keys, calls[i].Args)
		room = room[n:]
		_ = pipe.Process(b, cmds[i]) // queues
	}
	_, _ = pipe.Exec(b) // every command has its own error
}

// Do runs one command that may run twice without harm, such as DEL, GET or ZCARD, with the bound and the errors of
// [Client.Run]. Of a sharded client its keys must share a slot. A reply of nil is a nil value, not an error.
func (c *Client) Do(ctx context.Context, args ...any) (any, error) {
	if len(args) == 0 {
		return nil, fmt.Errorf("%w: a command without a name", limiter.ErrInvalid)
	}
	b, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer b.end()
	again := false
	for pause := firstPause; ; {
		cmd := anyCmd{redis.NewCmd(b, args...)}
		cmd.SetStepCount(1)
		err := c.rdb.Process(b, cmd)
		switch {
		case err == nil:
			return cmd.Val(), nil
		case errors.Is(err, redis.Nil):
			return nil, nil
		case !again && c.didNotRun(err) && !b.over():
			again = true
		case isMoving(err) && b.pause(&pause):
		default:
			return nil, c.fault(b, err)
		}
	}
}
