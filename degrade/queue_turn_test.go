package degrade_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// One whose turn has come and of whom nothing is heard does not block those behind: not beyond its own end, and not beyond
// a bound.
func TestQueueLostTurn(t *testing.T) {
	mine := new(keyfunc.Request)
	limit := oneIn100ms
	after := func(v degrade.Verdict) func(*testing.T, degrade.Handler, context.CancelFunc) {
		return func(_ *testing.T, h degrade.Handler, _ context.CancelFunc) {
			h.(degrade.Gate).After(&degrade.Subject{Request: mine, Key: keyOf("a"), Cost: 1, Now: time.Now()}, v)
		}
	}
	for name, c := range map[string]struct {
		become func(t *testing.T, h degrade.Handler, cancel context.CancelFunc)
		want   time.Duration // until the next one's turn
	}{
		"nothing is heard":                        {func(*testing.T, degrade.Handler, context.CancelFunc) {}, degrade.HandTime},
		"its request ends":                        {func(_ *testing.T, _ degrade.Handler, cancel context.CancelFunc) { cancel() }, 100 * ms},
		"it passes":                               {after(degrade.Verdict{Passed: true, Decision: limiter.Decision{Allowed: true, Limit: limit, NextAfter: 70 * ms}}), 70 * ms},
		"more is there":                           {after(degrade.Verdict{Passed: true, Decision: limiter.Decision{Allowed: true, Limit: limit, Remaining: 1}}), 0},
		"it is refused":                           {after(degrade.Verdict{Refused: true, Decision: limiter.Decision{Limit: limit, RetryAfter: 30 * ms, NextAfter: 20 * ms}}), 30 * ms},
		"it is shed":                              {after(degrade.Verdict{Decision: limiter.Decision{Limit: limit, RetryAfter: 30 * ms, NextAfter: 20 * ms}}), 20 * ms},
		"another policy refuses it, asked first":  {after(degrade.Verdict{}), 0},
		"another policy refuses it":               {after(degrade.Verdict{Decision: limiter.Decision{Allowed: true, Limit: limit, Remaining: 1}}), 0},
		"too many are in flight":                  {after(degrade.Verdict{Refused: true}), 100 * ms},
		"it passes, as the store cannot be asked": {after(degrade.Verdict{Passed: true}), 100 * ms},
		"its chain is asked again": {func(t *testing.T, h degrade.Handler, _ context.CancelFunc) {
			d := degrade.Denial{Asked: 2, Request: mine, Decision: limiter.Decision{Limit: limit}}
			out, told := deny(t.Context(), h, d, 40*ms)
			require.Equal(t, degrade.Skip, out)
			require.Equal(t, 140*ms, told.Wait, "behind the one that waits")
		}, 40 * ms},
		"of another request it is heard": {func(t *testing.T, h degrade.Handler, _ context.CancelFunc) {
			out, _ := deny(t.Context(), h, degrade.Denial{Asked: 2, Request: new(keyfunc.Request), Decision: limiter.Decision{Limit: limit}}, ms)
			require.Equal(t, degrade.Skip, out)
			s := &degrade.Subject{Request: new(keyfunc.Request), Key: keyOf("a"), Cost: 1, Now: time.Now()}
			h.(degrade.Gate).After(s, degrade.Verdict{})
			h.(degrade.Gate).After(s, degrade.Verdict{Passed: true, Decision: limiter.Decision{Allowed: true, Limit: limit, Remaining: 5}})
		}, degrade.HandTime},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := degrade.Queue(degrade.QueueConfig{})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				first, second := make(chan degrade.Outcome), make(chan time.Time)
				go func() {
					out, _ := deny(ctx, h, degrade.Denial{Request: mine, Decision: limiter.Decision{Limit: limit}}, 50*ms)
					first <- out
				}()
				synctest.Wait()
				go func() {
					out, _ := deny(t.Context(), h, degrade.Denial{Request: new(keyfunc.Request), Decision: limiter.Decision{Limit: limit}}, 50*ms)
					if out == degrade.Again {
						second <- time.Now()
					}
				}()
				require.Equal(t, degrade.Again, <-first)
				begin := time.Now()
				c.become(t, h, cancel)
				require.Equal(t, c.want, (<-second).Sub(begin))
				time.Sleep(time.Second)
				lines, waiting := degrade.QueueSize(h)
				require.Zero(t, lines)
				require.Zero(t, waiting)
			})
		})
	}
}

// Two that are refused before either waits: what the second is told moves the turn of the first, if it is later.
func TestQueuePostpones(t *testing.T) {
	for second, want := range map[time.Duration]time.Duration{50 * ms: 100 * ms, 150 * ms: 150 * ms} {
		synctest.Test(t, func(t *testing.T) {
			h := degrade.Queue(degrade.QueueConfig{})
			begin := time.Now()
			first := make(chan time.Duration)
			go func() {
				_, _ = deny(t.Context(), h, degrade.Denial{}, 100*ms)
				first <- time.Since(begin)
			}()
			synctest.Wait()
			go deny(t.Context(), h, degrade.Denial{}, second)
			require.Equal(t, want, <-first)
			time.Sleep(5 * time.Second)
		})
	}
}

// A request whose bound comes before its turn, as the turn before it is lost, is let go at its bound.
func TestQueueBoundBehindLostTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := degrade.Queue(degrade.QueueConfig{ServiceTime: -1})
		begin := time.Now()
		third, told := make(chan time.Duration, 1), make(chan time.Duration, 1)
		for k := range 3 {
			go func() {
				of := t.Context()
				if k == 2 {
					of = deadlined{of, begin.Add(300 * ms)}
				}
				out, d := deny(of, h, degrade.Denial{Request: new(keyfunc.Request), Decision: limiter.Decision{Limit: oneIn100ms}}, 100*ms)
				if k == 2 && out == degrade.Skip {
					third <- time.Since(begin)
					told <- d.Wait
				}
			}()
			synctest.Wait()
		}
		require.Equal(t, 300*ms, <-third)
		require.Equal(t, 100*ms, <-told, "behind the second, whose turn is overdue")
		time.Sleep(time.Second)
		lines, _ := degrade.QueueSize(h)
		require.Zero(t, lines)
	})
}

// deadlined is a context that has a deadline and does not end by it.
type deadlined struct {
	context.Context
	at time.Time
}

func (d deadlined) Deadline() (time.Time, bool) { return d.at, true }

// silent is a context that has ended and whose Done says nothing yet.
type silent struct{ context.Context }

func (silent) Err() error { return context.Canceled }

// A turn that comes to a request that has just ended is the next one's.
func TestQueueEndedAtItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newDesk(t, degrade.QueueConfig{}, oneIn100ms)
		g.spend(t, "a", 1)
		first := make(chan degrade.Outcome, 1)
		go func() {
			out, _ := deny(silent{t.Context()}, g.queue, degrade.Denial{Decision: limiter.Decision{Limit: oneIn100ms}}, 100*ms)
			first <- out
		}()
		synctest.Wait()
		g.start(t.Context(), visit{id: 2, key: keyOf("a"), cost: 1})
		time.Sleep(time.Second)
		require.Equal(t, degrade.Skip, <-first)
		require.Equal(t, 100*ms, g.of(t, 2).waited())
	})
}

// Its request ends at the very instant of its turn: the next one has it.
func TestQueueEndsAtItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 50 {
			g := newDesk(t, degrade.QueueConfig{ServiceTime: -1}, oneIn100ms)
			g.spend(t, "a", 1)
			ctx, cancel := context.WithTimeout(t.Context(), 100*ms)
			g.start(ctx, visit{id: 1, key: keyOf("a"), cost: 1})
			g.start(t.Context(), visit{id: 2, key: keyOf("a"), cost: 1})
			time.Sleep(time.Second)
			cancel()
			if g.of(t, 1).outs[0] == degrade.Again {
				require.Equal(t, 200*ms, g.of(t, 2).waited(), "the unit may have been taken")
			} else {
				require.Equal(t, 100*ms, g.of(t, 2).waited())
			}
			g.waiting(t, 0, 0)
		}
	})
}

// A request that was on its way to the policy before anybody waited takes the unit: the turn moves, and nobody asks in vain.
func TestQueueOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newDesk(t, degrade.QueueConfig{}, limiter.PerSecond(10))
		g.spend(t, "a", 9)
		g.start(t.Context(), visit{id: 1, key: keyOf("a"), cost: 2}) // in 100 ms
		time.Sleep(50 * ms)
		d, err := g.store.Allow(t.Context(), keyOf("a"), g.limit, 1)
		require.NoError(t, err)
		require.True(t, d.Allowed)
		g.queue.(degrade.Gate).After(&degrade.Subject{Key: keyOf("a"), Cost: 1}, degrade.Verdict{Passed: true, Decision: d})
		// One that is late to tell of better times changes nothing.
		d.Remaining = 7
		g.queue.(degrade.Gate).After(&degrade.Subject{Key: keyOf("a"), Cost: 1}, degrade.Verdict{Passed: true, Decision: d})
		time.Sleep(time.Second)
		require.Equal(t, []degrade.Outcome{degrade.Again}, g.of(t, 1).outs)
		require.Equal(t, 200*ms, g.of(t, 1).waited())
	})
}

// What another policy makes one wait does not hold up the others, nor does it come before its time.
func TestQueueOtherPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := degrade.Queue(degrade.QueueConfig{})
		turns := make(chan time.Duration, 3)
		begin := time.Now()
		for k, other := range []time.Duration{time.Second, 0, 0} {
			go func() {
				req := new(keyfunc.Request)
				d := degrade.Denial{Request: req, RetryAfter: other, Decision: limiter.Decision{Limit: oneIn100ms}}
				out, _ := deny(t.Context(), h, d, 100*ms)
				if out == degrade.Again {
					turns <- time.Since(begin)*10 + time.Duration(k)
				}
				h.(degrade.Gate).After(&degrade.Subject{Request: req, Key: keyOf("a"), Cost: 1},
					degrade.Verdict{Passed: true, Decision: limiter.Decision{Allowed: true, Limit: oneIn100ms, NextAfter: 100 * ms}})
			}()
			synctest.Wait()
		}
		require.Equal(t, time.Second+1, <-turns)
		require.Equal(t, 2*time.Second+2, <-turns)
		require.Equal(t, 10*time.Second, <-turns)
	})
}

// Processes that share a store do not ask it all at once, nor before the instant it has named.
func TestQueueJitter(t *testing.T) {
	for via, spread := range map[limiter.Via]bool{
		limiter.ViaMemory: false, limiter.ViaStore: true, limiter.ViaLease: true, limiter.ViaDenyCache: true, limiter.ViaFallback: true,
	} {
		t.Run(via.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				different := make(map[time.Duration]bool)
				for range 20 {
					for wait, most := range map[time.Duration]time.Duration{100 * ms: 10 * ms, 2 * time.Second: 50 * ms, 3: 0} {
						begin := time.Now()
						d := degrade.Denial{Decision: limiter.Decision{Via: via}, Request: new(keyfunc.Request)}
						out, _ := deny(t.Context(), degrade.Queue(degrade.QueueConfig{}), d, wait)
						require.Equal(t, degrade.Again, out)
						got := time.Since(begin) - wait
						require.GreaterOrEqual(t, got, time.Duration(0))
						require.LessOrEqual(t, got, most)
						different[got] = true
					}
				}
				require.Equal(t, spread, len(different) > 10)
			})
		})
	}
}

// The queue goes on when its policy is replaced, unless its settings differ.
func TestQueueInherit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newDesk(t, degrade.QueueConfig{}, oneIn100ms)
		g.spend(t, "a", 1)
		g.start(t.Context(), visit{id: 1, key: keyOf("a"), cost: 1})
		g.start(t.Context(), visit{id: 2, key: keyOf("a"), cost: 1})
		old := g.queue
		other := degrade.Queue(degrade.QueueConfig{PerKey: 3})
		degrade.Inherit(other, old)
		lines, _ := degrade.QueueSize(other)
		require.Zero(t, lines)
		g.queue = degrade.Queue(degrade.QueueConfig{MaxWait: 5 * time.Second}) // the default
		degrade.Inherit(degrade.First(returns(degrade.Skip), g.queue), degrade.First(other, old))
		degrade.Inherit(old, g.queue) // and back again, while both serve
		g.start(t.Context(), visit{id: 3, key: keyOf("a"), cost: 1})
		require.False(t, g.queue.(degrade.Heir).Inherit(returns(degrade.Skip)))
		time.Sleep(time.Second)
		require.Equal(t, []int{1, 2, 3}, g.ids())
		require.True(t, g.of(t, 3).shut)
		require.Equal(t, 300*ms, g.of(t, 3).waited())
		g.waiting(t, 0, 0)
	})
}

// A key is not kept as the request's own text, which is another request's soon.
func TestQueueCopiesKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := degrade.Queue(degrade.QueueConfig{})
		buf := []byte("abc")
		borrowed := borrow(buf)
		go h.Degrade(nil, request(t.Context()), &degrade.Denial{
			Key: limiter.Key{Space: "p", ID: borrowed}, Cost: 1, Decision: limiter.Decision{Limit: oneIn100ms, RetryAfter: ms}, RetryAfter: ms,
		})
		synctest.Wait()
		copy(buf, "xyz")
		require.True(t, h.(degrade.Gate).Before(&degrade.Subject{Key: keyOf("abc"), Cost: 1}).Shut)
		require.False(t, h.(degrade.Gate).Before(&degrade.Subject{Key: keyOf("xyz"), Cost: 1}).Shut)
		time.Sleep(time.Second)
		lines, _ := degrade.QueueSize(h)
		require.Zero(t, lines)
	})
}
