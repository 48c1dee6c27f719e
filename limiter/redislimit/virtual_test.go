package redislimit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/redislimit"
)

// virtual is a Redis whose clock is the test's: TIME tells what was set, and keys end by it as Redis ends them, by a clock cut
// to whole milliseconds. The script itself runs unchanged, on a table redis of its own that also notes every command. The
// clock is a key of the server, so there is one in a test process and its tests are not parallel.
type virtual struct {
	*redis.Client
	t      testing.TB
	prefix string
	now    int64 // µs
}

// command is one command of the script. ttl is what a write gave the key, empty if nothing.
type command struct{ name, key, ttl string }

const (
	clockKey, endsKey, logKey = "virtual:clock", "virtual:ends", "virtual:log"

	before = `
local real, clock = redis, tonumber(redis.call('GET', 'virtual:clock'))
local ms = math.floor(clock / 1000)
local function number(v) return string.format('%.17g', v) end
local function ends(key, ttl) real.call('HSET', 'virtual:ends', key, number(ms + ttl)) end
for _, key in ipairs(KEYS) do
  local at = real.call('HGET', 'virtual:ends', key)
  if at and ms >= tonumber(at) then
    real.call('DEL', key)
    real.call('HDEL', 'virtual:ends', key)
  end
end
local function through(f)
  return function(name, ...)
    local a = {...}
    local ttl = name == 'SET' and a[4] or name == 'PEXPIRE' and a[2]
    real.call('RPUSH', 'virtual:log', name .. '\n' .. (a[1] or '') .. '\n' .. (ttl and number(ttl) or ''))
    if ttl then ends(a[1], ttl) end
    if name == 'TIME' then
      return {number(math.floor(clock / 1000000)), number(clock % 1000000)}
    elseif name == 'SET' then
      return f('SET', a[1], a[2])
    elseif name == 'PEXPIRE' then
      return 1
    elseif name == 'PTTL' then
      if real.call('EXISTS', a[1]) == 0 then return -2 end
      local at = real.call('HGET', 'virtual:ends', a[1])
      return at and tonumber(at) - ms or -1
    end
    return f(name, ...)
  end
end
local redis = {call = through(real.call), pcall = through(real.pcall)}
`
)

func newVirtual(t testing.TB) *virtual {
	t.Helper()
	redislimit.Surround(t, before, "")
	v := &virtual{Client: redistest.Shared(t).Client(), t: t, prefix: fmt.Sprintf("v%d", prefixes.Add(1))}
	require.NoError(t, v.Del(context.Background(), logKey).Err())
	return v
}

var prefixes atomic.Int64

// set puts the clock to an instant in ns.
func (v *virtual) set(ns int64) {
	v.now = ns / 1000
	require.NoError(v.t, v.Set(context.Background(), clockKey, v.now, 0).Err())
}

// commands returns what ran since the last call.
func (v *virtual) commands() (out []command) {
	lines, err := v.LRange(context.Background(), logKey, 0, -1).Result()
	require.NoError(v.t, err)
	require.NoError(v.t, v.Del(context.Background(), logKey).Err())
	for _, line := range lines {
		parts := strings.Split(line, "\n")
		out = append(out, command{parts[0], parts[1], parts[2]})
	}
	return out
}

// persist takes the end from a key.
func (v *virtual) persist(key string) {
	require.NoError(v.t, v.HDel(context.Background(), endsKey, key).Err())
}

// ttl returns how many ms a key has left, −1 if it has no end.
func (v *virtual) ttl(key string) int64 {
	at, err := v.HGet(context.Background(), endsKey, key).Int64()
	if errors.Is(err, redis.Nil) {
		return -1
	}
	require.NoError(v.t, err)
	return at - int64(math.Floor(float64(v.now)/1000))
}

// open returns a limiter on the virtual Redis. Nothing is decided elsewhere.
func (v *virtual) open(t *testing.T, c redislimit.Config) *redislimit.Limiter {
	t.Helper()
	c.Client, c.DenyCache, c.Prefix = v.Client, -1, v.prefix
	return open(t, c)
}

func (v *virtual) key(k limiter.Key, a limiter.Algorithm) string { return k.Render(v.prefix, a.Tag()) }

// clocked gives a limiter of one clock the instants of a trace by setting that clock.
type clocked struct {
	limiter.Limiter
	set func(ns int64)
}

func (c clocked) AllowAll(ctx context.Context, at time.Time, takes []limiter.Take) (bool, error) {
	c.set(at.UnixNano())
	return c.Limiter.(limiter.Batcher).AllowAll(ctx, time.Time{}, takes)
}

func (c clocked) Refund(ctx context.Context, at time.Time, t *limiter.Take) error {
	c.set(at.UnixNano())
	return c.Limiter.(limiter.Refunder).Refund(ctx, time.Time{}, t)
}

func (c clocked) Reset(ctx context.Context, key limiter.Key) error {
	return c.Limiter.(limiter.Resetter).Reset(ctx, key)
}

func TestVirtualClock(t *testing.T) {
	v := newVirtual(t)
	l := v.open(t, redislimit.Config{})
	key, limit := limiter.Key{Space: "s", ID: "k"}, limiter.PerSecond(2).WithBurst(2)
	for _, step := range []struct {
		at   int64
		left int
	}{{0, 1}, {0, 0}, {500, 0}, {1500, 1}, {2000, 1}} {
		v.set((1_800_000_000_000 + step.at) * 1_000_000)
		d, err := l.Allow(t.Context(), key, limit, 1)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		require.Equal(t, step.left, d.Remaining)
	}
	require.Equal(t, int64(501), v.ttl(v.key(key, limiter.TokenBucket)))
	require.Equal(t, []command{{"TIME", "", ""}, {"GET", v.key(key, limiter.TokenBucket), ""}, {"SET", v.key(key, limiter.TokenBucket), "501"}},
		v.commands()[:3])
}
