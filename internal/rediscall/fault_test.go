package rediscall_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/rediscall"
	"github.com/spillway-go/spillway/limiter"
)

// What a server answers, as texts of servers old and new, and what that means.
func TestAnswers(t *testing.T) {
	unavailable, invalid := limiter.ErrUnavailable, limiter.ErrInvalid
	for _, c := range []struct {
		answer string
		kind   error
		label  string
	}{
		{"LOADING Redis is loading the dataset in memory", unavailable, "loading"},
		{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", unavailable, "master_down"},
		{"CLUSTERDOWN The cluster is down", unavailable, "cluster_down"},
		{"TRYAGAIN Multiple keys request during rehashing of slot", unavailable, "try_again"},
		{"READONLY You can't write against a read only replica. script: 5f, on @user_script:1.", unavailable, "readonly"},
		{"OOM command not allowed when used memory > 'maxmemory'. script: 5f, on @user_script:1.", unavailable, "oom"},
		{"ERR Error running script (call to f_5f): @user_script:1: @user_script: 1: -OOM command not allowed when used memory > 'maxmemory'.", unavailable, "oom"},
		{"ERR Error running script (call to f_5f): @user_script:1: @user_script: 1: -READONLY You can't write against a read only replica.", unavailable, "readonly"},
		{"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", unavailable, "busy"},
		{"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", unavailable, "misconf"},
		{"NOREPLICAS Not enough good replicas to write.", unavailable, "no_replicas"},
		{"MOVED 3999 127.0.0.1:6381", unavailable, "moved"},
		{"ASK 3999 127.0.0.1:6381", unavailable, "moved"},
		{"ERR max number of clients reached", unavailable, "clients"},
		{"ERR LOADING kvrocks is restoring", unavailable, "loading"},
		{"NOAUTH Authentication required.", invalid, "auth"},
		{"WRONGPASS invalid username-password pair or user is disabled.", invalid, "auth"},
		{"NOPERM this user has no permissions to run the 'evalsha' command", invalid, "auth"},
		{"CROSSSLOT Keys in request don't hash to the same slot", invalid, "crossslot"},
		{"WRONGTYPE Operation against a key holding the wrong kind of value script: 5f, on @user_script:1.", invalid, "wrong_type"},
		{"ERR Error running script (call to f_5f): @user_script:1: -WRONGTYPE Operation against a key", invalid, "wrong_type"},
		{"ERR unknown command 'EVALSHA', with args beginning with:", invalid, "command"},
		{"ERR Error compiling script (new function): user_script:1: '=' expected", invalid, "script"},
		{"ERR user_script:1: attempt to index a nil value script: 5f, on @user_script:1.", invalid, "script"},
		{"ERR This instance has cluster support disabled", invalid, "other"},
		{"SOMETHING new", invalid, "other"},
	} {
		f := newFake(t, false, func([]string) string { return "-" + c.answer + "\r\n" })
		timeout := generous
		if c.label == "try_again" {
			timeout = bit // it is asked again and again
		}
		err := run(bound(t, plain(t, f.addr), timeout), "k")
		require.ErrorIs(t, err, c.kind, c.answer)
		for _, other := range []error{unavailable, invalid} {
			require.Equal(t, other == c.kind, errors.Is(err, other), c.answer)
		}
		require.Equal(t, c.label, rediscall.Cause(err), c.answer)
		require.Equal(t, c.label, rediscall.Cause(fmt.Errorf("wrapped: %w", err)), c.answer)
		var answer redis.Error
		require.ErrorAs(t, err, &answer, c.answer)
		require.ErrorContains(t, err, c.answer)
		want := int64(1)
		if c.label == "readonly" {
			want = 2 // did not run
		}
		if c.label != "try_again" {
			require.Equal(t, want, f.calls.Load(), c.answer)
		}
	}
}

func TestServersOwnAnswers(t *testing.T) {
	ctx := context.Background()
	locked := server(t)
	require.NoError(t, plain(t, locked).ConfigSet(ctx, "requirepass", "secret").Err())
	err := run(bound(t, plain(t, locked), generous), "k")
	require.ErrorIs(t, err, limiter.ErrInvalid)
	require.Equal(t, "auth", rediscall.Cause(err))
	err = run(bound(t, plain(t, locked, func(o *redis.Options) { o.Password = "wrong" }), generous), "k")
	require.ErrorIs(t, err, limiter.ErrInvalid)
	require.Equal(t, "auth", rediscall.Cause(err))

	full := bound(t, plain(t, server(t, "--maxmemory", "1")), generous)
	err = run(full, "k")
	require.ErrorIs(t, err, limiter.ErrUnavailable)
	require.Equal(t, "oom", rediscall.Cause(err))

	rdb := plain(t, server(t))
	require.NoError(t, rdb.RPush(ctx, "list", 1).Err())
	err = run(bound(t, rdb, generous), "list")
	require.ErrorIs(t, err, limiter.ErrInvalid)
	require.Equal(t, "wrong_type", rediscall.Cause(err))
	_, err = bound(t, rdb, generous).Run(ctx, rediscall.NewScript(`this is no Lua`), nil)
	require.ErrorIs(t, err, limiter.ErrInvalid)
	require.Equal(t, "script", rediscall.Cause(err))
	require.NoError(t, rdb.ReplicaOf(ctx, "127.0.0.1", "1").Err())
	err = run(bound(t, rdb, generous), "k")
	require.ErrorIs(t, err, limiter.ErrUnavailable)
	require.Contains(t, []string{"readonly", "master_down"}, rediscall.Cause(err))
}

func TestCause(t *testing.T) {
	for want, err := range map[string]error{
		"":         nil,
		"canceled": context.Canceled,
		"deadline": context.DeadlineExceeded,
		"closed":   limiter.ErrClosed,
		"pool":     redis.ErrPoolTimeout,
		"reset":    io.ErrUnexpectedEOF,
		"refused":  &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
		"other":    errors.New("x"),
	} {
		require.Equal(t, want, rediscall.Cause(err))
	}
}
