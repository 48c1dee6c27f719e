package observe_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/observe"
)

// page is what a Log has written.
type page struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (p *page) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

// line is a line that was written.
type line map[string]any

// lines returns what was written since the last call, without its times.
func (p *page) lines(t *testing.T) (out []line) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	d := json.NewDecoder(&p.text)
	for d.More() {
		var l line
		require.NoError(t, d.Decode(&l))
		delete(l, "time")
		out = append(out, l)
	}
	return out
}

var secret = []byte("0123456789abcdef")

// newLog returns a Log whose lines of at least the level are on the page.
func newLog(t *testing.T, level slog.Level, c observe.LogConfig) (*observe.Log, *page) {
	t.Helper()
	p := &page{}
	c.Logger = slog.New(slog.NewJSONHandler(p, &slog.HandlerOptions{Level: level}))
	if c.Secret == nil {
		c.Secret = secret
	}
	l, err := observe.NewLog(c)
	require.NoError(t, err)
	return l, p
}

var aKey = limiter.Key{Space: "login", ID: "ip=203.0.113.7"}

func hashOf(secret []byte, id string) string {
	m := hmac.New(sha256.New, secret)
	m.Write([]byte(id))
	return "$" + base64.RawURLEncoding.EncodeToString(m.Sum(nil)[:16])
}

func TestNewLogNamesWhatIsWrong(t *testing.T) {
	_, err := observe.NewLog(observe.LogConfig{Decisions: -2, Secret: []byte("short")})
	require.ErrorIs(t, err, limiter.ErrInvalid)
	require.ErrorContains(t, err, "Decisions -2")
	require.ErrorContains(t, err, "5 bytes")
	_, err = observe.NewLog(observe.LogConfig{Decisions: 1_000_001})
	require.ErrorContains(t, err, "Decisions 1000001")
	for _, c := range []observe.LogConfig{{}, {Decisions: -1}, {Decisions: 1_000_000, Secret: secret}, {Secret: []byte{}}} {
		_, err := observe.NewLog(c)
		require.NoError(t, err)
	}
}

// TestEveryKindHasItsLine holds one case at least for each kind there is, also those that are added later.
func TestEveryKindHasItsLine(t *testing.T) {
	limit := limiter.PerMinute(10)
	cause := fmt.Errorf("%w: 10.0.0.1 does not answer", limiter.ErrUnavailable)
	hash := hashOf(secret, aKey.ID)
	cases := []struct {
		event limiter.Event
		want  line // nil: none
	}{
		{limiter.Event{
			Kind: limiter.EventDecision, Policy: "p", Key: aKey, N: 2,
			Decision: limiter.Decision{Allowed: true, Limit: limit, Remaining: 3, Via: limiter.ViaStore},
		}, line{
			"level": "DEBUG", "msg": "spillway: allowed", "policy": "p", "outcome": "allowed", "key": hash, "n": 2.0,
			"via": "store", "limit": "10/m", "remaining": 3.0,
		}},
		{limiter.Event{
			Kind: limiter.EventDecision, Policy: "p", Key: aKey, N: 1, Outcome: limiter.OutcomeBlocked,
			Decision: limiter.Decision{Limit: limit, RetryAfter: time.Second, Via: limiter.ViaDenyCache},
		}, line{
			"level": "DEBUG", "msg": "spillway: blocked", "policy": "p", "outcome": "blocked", "key": hash, "n": 1.0,
			"via": "deny_cache", "limit": "10/m", "remaining": 0.0, "retry_after": 1e9,
		}},
		{limiter.Event{
			Kind: limiter.EventDecision, Policy: "p", N: 1, Decision: limiter.Decision{Allowed: true, Limit: limiter.Limit{Burst: 5}, Remaining: 4},
		}, line{
			"level": "DEBUG", "msg": "spillway: allowed", "policy": "p", "outcome": "allowed", "n": 1.0, "via": "memory",
			"limit": "5 in flight", "remaining": 4.0,
		}},
		{limiter.Event{
			Kind: limiter.EventDecision, Policy: "p", N: 11, Outcome: limiter.OutcomeShadowBlocked,
			Decision: limiter.Decision{Limit: limit, RetryAfter: limiter.Never},
		}, line{
			"level": "INFO", "msg": "spillway: would be blocked", "policy": "p", "outcome": "shadow_blocked", "n": 11.0,
			"via": "memory", "limit": "10/m", "remaining": 0.0, "never": true,
		}},
		{limiter.Event{
			Kind: limiter.EventRejected, Policy: "p", Key: aKey, Reason: limiter.ReasonQuota,
			Decision: limiter.Decision{Limit: limit, RetryAfter: time.Second},
		}, line{
			"level": "INFO", "msg": "spillway: a request is refused", "policy": "p", "reason": "quota", "key": hash,
			"via": "memory", "limit": "10/m", "remaining": 0.0, "retry_after": 1e9,
		}},
		{limiter.Event{Kind: limiter.EventRejected, Policy: "p", Reason: limiter.ReasonUnavailable, Err: cause}, line{
			"level": "INFO", "msg": "spillway: a request is refused", "policy": "p", "reason": "unavailable",
			"error": "limiter: store unavailable",
		}},
		{limiter.Event{Kind: limiter.EventDegraded, Policy: "p", Key: aKey, Mode: "cache", N: 200}, line{
			"level": "INFO", "msg": "spillway: a refused request is served otherwise", "policy": "p", "mode": "cache",
			"key": hash, "status": 200.0,
		}},
		{limiter.Event{Kind: limiter.EventError, Policy: "p", Key: aKey, Reason: limiter.ReasonUnavailable, Err: cause}, line{
			"level": "WARN", "msg": "spillway: a policy could not decide", "policy": "p", "cause": "unavailable", "key": hash,
			"error": "limiter: store unavailable",
		}},
		{limiter.Event{Kind: limiter.EventError, Reason: limiter.ReasonClientIP}, line{
			"level": "WARN", "cause": "client_ip",
			"msg": "spillway: a client's address cannot be told; its nearest verified hop is counted",
		}},
		{limiter.Event{Kind: limiter.EventError, Policy: "p", Reason: limiter.ReasonNoKey}, line{
			"level": "WARN", "msg": "spillway: a request has no key", "policy": "p", "cause": "no_key",
		}},
		{limiter.Event{Kind: limiter.EventError, Policy: "p", Reason: limiter.ReasonCanceled, Err: context.Canceled}, line{
			"level": "DEBUG", "msg": "spillway: the client left before a decision", "policy": "p", "cause": "canceled",
			"error": "context canceled",
		}},
		{limiter.Event{Kind: limiter.EventError, Policy: "p", Reason: limiter.ReasonRefund, Err: cause}, line{
			"level": "WARN", "msg": "spillway: units could not be given back", "policy": "p", "cause": "refund",
			"error": "limiter: store unavailable",
		}},
		{limiter.Event{Kind: limiter.EventStoreState, Policy: "p", State: 1, Reason: limiter.ReasonUnavailable, Err: cause}, line{
			"level": "ERROR", "msg": "spillway: a policy cannot decide", "policy": "p", "state": "failing",
			"cause": "unavailable", "error": "limiter: store unavailable",
		}},
		{limiter.Event{Kind: limiter.EventStoreState, Policy: "p"}, line{
			"level": "INFO", "msg": "spillway: a policy decides again", "policy": "p", "state": "ok",
		}},
		{limiter.Event{Kind: limiter.EventPanic, Policy: "p", Name: "Cost", Reason: limiter.ReasonPanic, Err: cause}, line{
			"level": "ERROR", "msg": "spillway: a callback panicked", "policy": "p", "callback": "Cost",
			"error": "limiter: store unavailable",
		}},
		{limiter.Event{Kind: limiter.EventStore, Name: "redis", Op: "take", N: 3, Duration: time.Millisecond}, line{
			"level": "DEBUG", "msg": "spillway: a call to a store", "limiter": "redis", "op": "take", "n": 3.0, "duration": 1e6,
		}},
		{limiter.Event{Kind: limiter.EventStore, Name: "redis", Op: "take", N: 3, Duration: time.Millisecond, Reason: "refused", Err: cause}, line{
			"level": "WARN", "msg": "spillway: a call to a store failed", "limiter": "redis", "op": "take", "n": 3.0,
			"duration": 1e6, "cause": "refused", "error": "limiter: store unavailable",
		}},
		{limiter.Event{Kind: limiter.EventStore, Name: "redis", Op: "take", Reason: "canceled", Err: context.Canceled}, line{
			"level": "DEBUG", "msg": "spillway: a call to a store ended with its caller", "limiter": "redis", "op": "take",
			"n": 0.0, "duration": 0.0, "cause": "canceled", "error": "context canceled",
		}},
		{limiter.Event{Kind: limiter.EventStore, Name: "redis", Op: "take", Reason: "deadline", Err: context.DeadlineExceeded}, line{
			"level": "DEBUG", "msg": "spillway: a call to a store ended with its caller", "limiter": "redis", "op": "take",
			"n": 0.0, "duration": 0.0, "cause": "deadline", "error": "context deadline exceeded",
		}},
		{limiter.Event{Kind: limiter.EventMemory, Name: "m", Keys: 10}, nil},
		{limiter.Event{Kind: limiter.EventMemory, Name: "m", Keys: 20, Overflow: 1}, line{
			"level": "WARN", "msg": "spillway: the table of a memory limiter is full, further keys share cells", "limiter": "m",
			"keys": 20.0, "overflow": 1.0,
		}},
		{limiter.Event{Kind: limiter.EventBreaker, Name: "b", State: limiter.BreakerOpen, Err: cause}, line{
			"level": "WARN", "msg": "spillway: a limiter is away, its substitute decides", "limiter": "b", "state": "open",
			"error": "limiter: store unavailable",
		}},
		{limiter.Event{Kind: limiter.EventBreaker, Name: "b", State: limiter.BreakerHalfOpen}, line{
			"level": "DEBUG", "msg": "spillway: a circuit breaker changed", "limiter": "b", "state": "half_open",
		}},
		{limiter.Event{Kind: limiter.EventBreaker, Name: "b", State: limiter.BreakerClosed}, line{
			"level": "INFO", "msg": "spillway: a limiter is back and decides again", "limiter": "b", "state": "closed",
		}},
		{limiter.Event{Kind: limiter.EventReload, Name: "file", Hash: "ab", Reason: "ok"}, line{
			"level": "INFO", "msg": "spillway: new policies are applied", "source": "file", "hash": "ab", "result": "ok",
		}},
		{limiter.Event{Kind: limiter.EventReload, Name: "other", Hash: "ab"}, line{
			"level": "INFO", "msg": "spillway: new policies are applied", "source": "other", "hash": "ab", "result": "ok",
		}},
		{limiter.Event{Kind: limiter.EventReload, Name: "other", Hash: "ac", Err: cause}, line{
			"level": "ERROR", "msg": "spillway: new policies are refused, the former go on", "source": "other", "hash": "ac",
			"result": "invalid", "error": "limiter: store unavailable",
		}},
		{limiter.Event{Kind: limiter.EventReload, Name: "file", Hash: "cd", Reason: "invalid", Err: cause}, line{
			"level": "ERROR", "msg": "spillway: new policies are refused, the former go on", "source": "file", "hash": "cd",
			"result": "invalid", "error": "limiter: store unavailable",
		}},
		{limiter.Event{Kind: limiter.EventLease, Policy: "p", Keys: 7}, line{
			"level": "DEBUG", "msg": "spillway: leases of a policy", "policy": "p", "leases": 7.0,
		}},
		{limiter.Event{Kind: limiter.EventAdapt, Policy: "p", Decision: limiter.Decision{Limit: limit}, Reason: "cpu"}, line{
			"level": "INFO", "msg": "spillway: a limit moves for another reason", "policy": "p", "limit": "10/m", "reason": "cpu",
		}},
		{limiter.Event{Kind: limiter.EventAdapt, Policy: "p", Decision: limiter.Decision{Limit: limit}, Reason: "cpu"}, line{
			"level": "DEBUG", "msg": "spillway: a limit moves", "policy": "p", "limit": "10/m", "reason": "cpu",
		}},
	}
	l, p := newLog(t, slog.LevelDebug, observe.LogConfig{})
	covered := map[limiter.EventKind]bool{}
	for i, c := range cases {
		c.event.Time = time.Now()
		l.Observe(c.event)
		var want []line
		if c.want != nil {
			want = []line{c.want}
			covered[c.event.Kind] = true
		}
		require.Equal(t, want, p.lines(t), "case %d, %v", i, c.event.Kind)
	}
	for kind := limiter.EventKind(1); kind.String() != "unknown"; kind++ {
		require.True(t, covered[kind], "no case has a line for %v", kind)
	}
	l.Observe(limiter.Event{})
	l.Observe(limiter.Event{Kind: 255})
	require.Empty(t, p.lines(t))
}

func TestOutagesAreLoggedAndNotTheProbes(t *testing.T) {
	l, p := newLog(t, slog.LevelInfo, observe.LogConfig{Decisions: -1})
	for _, name := range []string{"a", "b"} {
		for _, state := range []uint8{limiter.BreakerClosed, limiter.BreakerOpen, limiter.BreakerHalfOpen, limiter.BreakerOpen, limiter.BreakerHalfOpen, limiter.BreakerClosed, limiter.BreakerOpen} {
			l.Observe(limiter.Event{Kind: limiter.EventBreaker, Name: name, State: state})
		}
		require.Equal(t, []line{
			{"level": "WARN", "msg": "spillway: a limiter is away, its substitute decides", "limiter": name, "state": "open"},
			{"level": "INFO", "msg": "spillway: a limiter is back and decides again", "limiter": name, "state": "closed"},
			{"level": "WARN", "msg": "spillway: a limiter is away, its substitute decides", "limiter": name, "state": "open"},
		}, p.lines(t))
	}
}

func TestChangesAreNotedThoughNotLogged(t *testing.T) {
	l, p := newLog(t, slog.LevelWarn, observe.LogConfig{})
	for range 2 {
		l.Observe(limiter.Event{Kind: limiter.EventBreaker, State: limiter.BreakerOpen})
		require.Len(t, p.lines(t), 1)
		l.Observe(limiter.Event{Kind: limiter.EventBreaker, State: limiter.BreakerClosed})
		require.Empty(t, p.lines(t))
	}
}

func TestMemoryIsLoggedWhereItsOverflowBeginsAndEnds(t *testing.T) {
	l, p := newLog(t, slog.LevelDebug, observe.LogConfig{})
	see := func(name string, overflow int64) (msgs []string) {
		l.Observe(limiter.Event{Kind: limiter.EventMemory, Name: name, Overflow: overflow})
		for _, line := range p.lines(t) {
			msgs = append(msgs, line["level"].(string))
		}
		return msgs
	}
	for i, step := range []struct {
		name     string
		overflow int64
		want     []string
	}{
		{"a", 0, nil},
		{"a", 0, nil},
		{"a", 5, []string{"WARN"}},
		{"a", 9, nil},
		{"b", 0, nil},
		{"b", 1, []string{"WARN"}},
		{"a", 12, nil},
		{"a", 12, []string{"INFO"}},
		{"a", 12, nil},
		{"a", 13, []string{"WARN"}},
		{"a", 0, nil}, // a new one of that name
		{"a", 0, []string{"INFO"}},
		{"b", 1, []string{"INFO"}},
	} {
		require.Equal(t, step.want, see(step.name, step.overflow), "step %d", i)
	}

	// One that is closed is forgotten, and what is made later is another.
	require.Equal(t, []string{"WARN"}, see("a", 20))
	l.Observe(limiter.Event{Kind: limiter.EventMemory, Name: "a", Overflow: 20, State: 1})
	require.Empty(t, p.lines(t))
	require.Empty(t, see("a", 0))
	require.Equal(t, []string{"WARN"}, see("a", 1))
}

func TestARefusedReloadIsToldOnce(t *testing.T) {
	l, p := newLog(t, slog.LevelInfo, observe.LogConfig{})
	for i, step := range []struct {
		reason, hash string
		want         int
	}{
		{"ok", "a", 1},
		{"ok", "b", 1},
		{"invalid", "c", 1},
		{"invalid", "c", 0},
		{"invalid", "d", 1},
		{"unreachable", "", 1},
		{"unreachable", "", 0},
		{"ok", "b", 1},
		{"unreachable", "", 1},
	} {
		l.Observe(limiter.Event{Kind: limiter.EventReload, Name: "file", Reason: step.reason, Hash: step.hash})
		require.Len(t, p.lines(t), step.want, "step %d", i)
	}
}

func TestLogHashesKeys(t *testing.T) {
	l, _ := newLog(t, slog.LevelInfo, observe.LogConfig{})
	require.Equal(t, hashOf(secret, aKey.ID), l.Hash(aKey.ID))
	require.NotEqual(t, l.Hash(aKey.ID), l.Hash("ip=203.0.113.8"))
	top, err := observe.NewTop(observe.TopConfig{Secret: secret})
	require.NoError(t, err)
	require.Equal(t, top.Hash(aKey.ID), l.Hash(aKey.ID), "who is found by a Top is found in the log")

	a, err := observe.NewLog(observe.LogConfig{})
	require.NoError(t, err)
	b, err := observe.NewLog(observe.LogConfig{Secret: []byte{}})
	require.NoError(t, err)
	require.NotEqual(t, a.Hash(aKey.ID), b.Hash(aKey.ID), "a random secret each")
	first := a.Hash(aKey.ID)
	require.Equal(t, first, a.Hash(aKey.ID))

	own := []byte("0123456789abcdef")
	l, _ = newLog(t, slog.LevelInfo, observe.LogConfig{Secret: own})
	clear(own)
	require.Equal(t, hashOf(secret, aKey.ID), l.Hash(aKey.ID), "the secret is copied")
}

// traced adds what it finds in the context, as handlers for traces do.
type traced struct{ slog.Handler }

type traceKey struct{}

func (h traced) Handle(ctx context.Context, r slog.Record) error {
	if id, ok := ctx.Value(traceKey{}).(string); ok {
		r.AddAttrs(slog.String("trace", id))
	}
	return h.Handler.Handle(ctx, r)
}

func TestTheHandlerGetsTheContext(t *testing.T) {
	p := &page{}
	l, err := observe.NewLog(observe.LogConfig{Logger: slog.New(traced{slog.NewJSONHandler(p, nil)})})
	require.NoError(t, err)
	e := limiter.Event{Kind: limiter.EventRejected, Reason: limiter.ReasonQuota}
	l.Observe(e)
	e.Context = context.WithValue(t.Context(), traceKey{}, "abc")
	l.Observe(e)
	lines := p.lines(t)
	require.NotContains(t, lines[0], "trace")
	require.Equal(t, "abc", lines[1]["trace"])
}

// A limiter that is closed while it is away is not back.
func TestAClosedLimiterIsNotBack(t *testing.T) {
	l, p := newLog(t, slog.LevelInfo, observe.LogConfig{})
	l.Observe(limiter.Event{Kind: limiter.EventBreaker, Name: "main", State: limiter.BreakerOpen})
	l.Observe(limiter.Event{Kind: limiter.EventBreaker, Name: "main", State: limiter.BreakerClosed, Reason: limiter.ReasonEnd})
	lines := p.lines(t)
	require.Len(t, lines, 1)
	require.Contains(t, lines[0]["msg"], "is away")
}
