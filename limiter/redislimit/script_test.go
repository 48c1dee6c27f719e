package redislimit_test

import (
	"context"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/redistest"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/redislimit"
)

// since says with which Redis a command, or the option that is used of it, came.
var since = map[string]string{
	"GET": "1.0.0", "DEL": "1.0.0", "SET": "2.6.12" /* PX */, "TIME": "2.6.0", "PTTL": "2.6.0", "PEXPIRE": "2.6.0",
	"STRLEN": "2.2.0", "GETRANGE": "2.4.0", "SETRANGE": "2.2.0", "MGET": "1.0.0",
}

// The script runs on every Redis from 6.2 on: the commands are older, no call is one that other servers lack, and every key is
// declared, as a Cluster demands.
func TestScriptIsPortable(t *testing.T) {
	code := regexp.MustCompile(`--[^\n]*`).ReplaceAllString(redislimit.Source, "")
	used := map[string]bool{}
	for _, m := range regexp.MustCompile(`\bp?call\(([^,)]*)(?:, (\w+))?`).FindAllStringSubmatch(code, -1) {
		name := strings.Trim(m[1], `'"`)
		require.NotEqual(t, m[1], name, "the name of a command is a constant: %s", m[0])
		require.Contains(t, since, name)
		require.Contains(t, []string{"key", "", "spread"}, m[2], "the key of a command is a take's: %s", m[0])
		used[name] = true
	}
	require.Len(t, used, len(since))
	require.NotContains(t, strings.ReplaceAll(code, "spread(KEYS, ", ""), "spread(")
	require.Len(t, regexp.MustCompile(`\bredis\.\w+`).FindAllString(code, -1), 6, "redis.call and redis.pcall alone, once for each of the three ways")
	for _, m := range regexp.MustCompile(`\bkey\b[^\n]*=[^=][^\n]*`).FindAllString(code, -1) {
		if strings.HasPrefix(m, "key, rule =") || strings.HasPrefix(m, "key, burst =") || strings.HasPrefix(m, "key =") {
			require.Contains(t, m, "= KEYS[")
		}
	}
	require.NotRegexp(t, `math\.random|replicate_commands|\.\. *key\b|\bkey *\.\.|loadstring|setmetatable|_G\b`, code)
	for _, m := range regexp.MustCompile(`\b(?:math|string|table|struct|redis|cjson|cmsgpack|bit)\.\w+`).FindAllString(code, -1) {
		require.Contains(t, []string{
			"math.floor", "math.ceil", "math.min", "struct.pack", "struct.unpack", "string.sub", "string.byte",
			"string.format", "table.concat", "table.sort", "redis.call", "redis.pcall",
		}, m)
	}
}

// Redis refuses a script that makes a global variable, so it is enough to run everything.
func TestScriptMakesNoGlobals(t *testing.T) {
	code := regexp.MustCompile(`--[^\n]*`).ReplaceAllString(redislimit.Source, "")
	known := map[string]bool{}
	for _, re := range []string{
		`\blocal ([\w, ]+)`, `\bfor ([\w, ]+?)(?: in\b| *=)`, `\bfunction(?: [\w.]+)?\(([\w, ]*)\)`, `\blocal function (\w+)`,
		`= function\(([\w, ]*)\)`,
	} {
		for _, m := range regexp.MustCompile(re).FindAllStringSubmatch(code, -1) {
			for _, name := range strings.Split(m[1], ",") {
				known[strings.TrimSpace(name)] = true
			}
		}
	}
	for _, m := range regexp.MustCompile(`(?m)(?:^|\bthen|\belse|\bdo|;)\s*((?:\w+, )*\w+) = `).FindAllStringSubmatch(code, -1) {
		for _, name := range strings.Split(m[1], ", ") {
			require.True(t, known[name], "%q is assigned and nowhere local", name)
		}
	}
}

// terms are stored terms of a limit, right or wrong.
func terms(tag byte, rate uint32, period uint64) []byte {
	b := binary.LittleEndian.AppendUint32([]byte{tag}, rate)
	return append(b, byte(period), byte(period>>8), byte(period>>16), byte(period>>24), byte(period>>32), byte(period>>40))
}

func instants(b []byte, at ...float64) []byte {
	for _, v := range at {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(v))
	}
	return b
}

// What another program left in a key is refused as invalid and stays as it is, and nobody else suffers.
func TestKeyOfAnotherProgram(t *testing.T) {
	c, ctx := redistest.Shared(t).Client(), t.Context()
	prefix := "foreign" + redistest.Prefix(t)[:4]
	l := open(t, redislimit.Config{DenyCache: -1, Prefix: prefix})
	rng := rand.New(rand.NewPCG(1, 2))
	noise := make([]byte, 200)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	for _, a := range limiter.Algorithms() {
		tag, limit, other := byte(0xA1+a), small(a), small(a)
		other.Rate++
		rendered := who.Render(prefix, a.Tag())
		require.NoError(t, c.Del(ctx, rendered).Err())
		takes := []limiter.Take{{Key: who, Limit: other, N: 1, MaxDelay: forever}}
		_, err := l.AllowAll(ctx, time.Time{}, takes)
		require.NoError(t, err)
		state := c.Get(ctx, rendered).Val()
		type value = func() error
		text := func(v string) value { return func() error { return c.Set(ctx, rendered, v, 0).Err() } }
		values := map[string]value{
			"a number": text("17"), "text": text("hello, world"), "a long text": text(strings.Repeat("x", 100_000)),
			"a tag":          text(string(tag)),
			"noise":          text(string(tag) + string(noise)),
			"zeros":          text(string(tag) + strings.Repeat("\x00", 60)),
			"ones":           text(string(tag) + strings.Repeat("\xff", 60)),
			"a list":         func() error { return c.RPush(ctx, rendered, "a", "b").Err() },
			"a hash":         func() error { return c.HSet(ctx, rendered, "a", "b").Err() },
			"a set":          func() error { return c.SAdd(ctx, rendered, "a").Err() },
			"a state":        text(string(0xA1+(a+1)%5) + state[1:]),
			"no rate":        text(state[:1] + "\x00\x00\x00\x00" + state[5:]),
			"a longer state": text(state + "\x00"),
			"no instant":     text(string(instants([]byte(state[:len(terms(0, 0, 0))+extra(a)]), math.NaN())) + state[len(terms(0, 0, 0))+extra(a)+8:]),
			"half a tick":    text(string(instants([]byte(state[:len(terms(0, 0, 0))+extra(a)]), 1e9+0.5)) + state[len(terms(0, 0, 0))+extra(a)+8:]),
			"endless shift":  text(string(instants([]byte(state[:len(terms(0, 0, 0))+extra(a)+8]), math.Inf(1))) + state[len(terms(0, 0, 0))+extra(a)+16:]),
			"negative shift": text(string(instants([]byte(state[:len(terms(0, 0, 0))+extra(a)+8]), -1e15)) + state[len(terms(0, 0, 0))+extra(a)+16:]),
		}
		for n := 1; n < len(state); n += 3 {
			values["a state cut at "+string(rune('A'+n))] = text(state[:n])
		}
		for k := range 200 { // noise of every length behind the right tag
			n := rng.IntN(120)
			values["noise "+string(rune(0x100+k))] = text(string(tag) + string(noise[n:n+rng.IntN(80)]))
		}
		for name, put := range values {
			require.NoError(t, c.Del(ctx, rendered).Err())
			require.NoError(t, put())
			was := c.Dump(ctx, rendered).Val()
			requireForeign(t, l, limit, name)
			require.Equal(t, was, c.Dump(ctx, rendered).Val(), "%v: %s is written", a, name)
		}
		require.NoError(t, l.Reset(ctx, who))
		d, err := l.Allow(ctx, who, limit, 1)
		require.NoError(t, err, "a reset helps")
		require.True(t, d.Allowed)
	}
}

// extra is how much longer an algorithm's terms are than rate and period.
func extra(a limiter.Algorithm) int {
	switch a {
	case limiter.TokenBucket, limiter.LeakyBucket:
		return 4
	case limiter.SlidingWindow:
		return 1
	}
	return 0
}

// requireForeign wants every way of asking to be refused, alone, in a group and in the trip of others.
func requireForeign(t *testing.T, l *redislimit.Limiter, limit limiter.Limit, what string) {
	t.Helper()
	ctx := context.Background()
	for n := range 2 {
		_, err := l.AllowAll(ctx, time.Time{}, []limiter.Take{{Key: who, Limit: limit, N: n, MaxDelay: forever}})
		require.ErrorIs(t, err, limiter.ErrInvalid, "%v: %s", limit.Algorithm, what)
	}
	other := limiter.Key{Space: "good", ID: limit.Algorithm.String()}
	free, err := l.Allow(ctx, other, limiter.Per(1000, limiter.MaxPeriod), 0)
	require.NoError(t, err)
	_, err = l.AllowAll(ctx, time.Time{}, []limiter.Take{
		{Key: other, Limit: limiter.Per(1000, limiter.MaxPeriod), N: 1},
		{Key: who, Limit: limit, N: 1, MaxDelay: forever},
	})
	require.ErrorIs(t, err, limiter.ErrInvalid, "%v: %s", limit.Algorithm, what)
	again, err := l.Allow(ctx, other, limiter.Per(1000, limiter.MaxPeriod), 0)
	require.NoError(t, err)
	require.Equal(t, free.Remaining, again.Remaining, "nothing of the group is booked")
	taken := limiter.Take{Key: who, Limit: limit, N: 1, Decision: limiter.Decision{Mark: time.Now().UnixNano()}}
	if err := l.Refund(ctx, time.Time{}, &taken); err != nil {
		require.ErrorIs(t, err, limiter.ErrInvalid, "%v: %s", limit.Algorithm, what)
		require.NotContains(t, err.Error(), "user_script", "%v: %s", limit.Algorithm, what)
	}
}
