package leased

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/limiter"
)

// machine drives a few nodes on one bucket by hand: takes, groups that are spent or given back, refunds, leaving, calls that arrive
// late, twice or never, replies that are lost.
type machine struct {
	t      *rapid.T
	now    int64 // ns
	bucket *bucket
	limit  limiter.Limit
	nodes  []*node
	level  float64 // of an independent bucket, to which refunds are given back
	at     int64
	calls  []traveling
	aside  []setAside
	spent  []spent
	names  int
}

type traveling struct {
	n *node
	q request
}

type setAside struct {
	n     *node
	cost  int64
	epoch uint64
}

type spent struct {
	n        *node
	cost, at int64
}

func (m *machine) name() string {
	m.names++
	return fmt.Sprint("n", m.names)
}

func (m *machine) refill() {
	rate := float64(m.limit.Rate) / float64(m.limit.Period)
	m.level = min(float64(m.limit.Quota()), m.level+rate*float64(m.now-m.at))
	m.at = m.now
}

func (m *machine) admit(n *node, cost int64) {
	m.refill()
	m.level -= float64(cost)
	if m.level < -rounding {
		m.t.Fatalf("%v too many", -m.level)
	}
	m.spent = append(m.spent, spent{n, cost, m.now})
}

func (m *machine) send(n *node, q request, due bool) {
	if due {
		m.calls = append(m.calls, traveling{n, q})
	}
}

func (m *machine) settle(n *node, done []*waiter) {
	for _, w := range done {
		switch {
		case w.verdict != taken:
		case w.reserve:
			m.aside = append(m.aside, setAside{n, w.cost, w.epoch})
		default:
			m.admit(n, w.cost)
		}
	}
}

func (m *machine) check() {
	b := m.bucket
	if b.whole < 0 || b.out < 0 || b.seen && b.whole+b.out > b.burst {
		m.t.Fatalf("%d tokens and %d out of %d", b.whole, b.out, b.burst)
	}
	for _, n := range m.nodes {
		may := n.held + n.reserved + n.back
		if n.held < 0 || n.reserved < 0 || n.back < 0 || m.now < n.deadline && may > b.records[n.id].held {
			m.t.Fatalf("%d held, %d set aside and %d on the way back of a record of %d", n.held, n.reserved, n.back, b.records[n.id].held)
		}
	}
}

// pick removes one of a slice.
func pick[T any](m *machine, from *[]T) (x T, ok bool) {
	if len(*from) == 0 {
		return x, false
	}
	i := rapid.IntRange(0, len(*from)-1).Draw(m.t, "which")
	x = (*from)[i]
	*from = append((*from)[:i], (*from)[i+1:]...)
	return x, true
}

// Whatever is done in whatever order, an independent bucket that is told of everything admitted and given back never runs dry, and
// no node may spend more than is recorded.
func TestAnyOrderOfEverything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{t: t, bucket: &bucket{}}
		m.limit = limiter.Per(rapid.SampledFrom([]int{1, 7, 100, 2000}).Draw(t, "rate"), time.Second)
		m.limit.Burst = rapid.SampledFrom([]int{1, 5, 40, 500}).Draw(t, "burst")
		m.level = float64(m.limit.Burst)
		for range 3 {
			random := func() uint64 { return rapid.Uint64().Draw(t, "random") }
			m.nodes = append(m.nodes, newNode(m.limit, sync100, time.Duration(timeout), 0, m.name, random))
		}
		some := func() *node { return rapid.SampledFrom(m.nodes).Draw(t, "node") }
		cost := func() int64 { return rapid.Int64Range(1, min(6, int64(m.limit.Burst))).Draw(t, "cost") }
		// Replies arrive in the instant in which the script runs: then the bound has no slack.
		answer := func(c traveling) {
			r := m.bucket.acquire(begin+m.now/1000, c.q)
			m.settle(c.n, c.n.reply(m.now, c.q.seq, r))
			q, due := c.n.next(m.now)
			m.send(c.n, q, due)
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { m.check() },
			"take": func(*rapid.T) {
				n, c := some(), cost()
				for range rapid.IntRange(1, 12).Draw(t, "times") {
					switch n.arrive(m.now, c) {
					case taken:
						m.admit(n, c)
					case waits:
						n.join(&waiter{cost: c})
					}
				}
				q, due := n.next(m.now)
				m.send(n, q, due)
			},
			"set aside": func(*rapid.T) {
				n, c := some(), cost()
				v, epoch := n.reserve(m.now, c)
				switch v {
				case taken:
					m.aside = append(m.aside, setAside{n, c, epoch})
				case waits:
					n.join(&waiter{cost: c, reserve: true})
				}
				q, due := n.next(m.now)
				m.send(n, q, due)
			},
			"spend": func(*rapid.T) {
				if a, ok := pick(m, &m.aside); ok && a.n.alive(m.now, a.epoch) {
					a.n.spend(a.cost)
					m.admit(a.n, a.cost)
					q, due := a.n.report(m.now)
					m.send(a.n, q, due)
				}
			},
			"give back": func(*rapid.T) {
				if a, ok := pick(m, &m.aside); ok {
					a.n.release(m.now, a.cost, a.epoch)
				}
			},
			"refund": func(*rapid.T) {
				if s, ok := pick(m, &m.spent); ok {
					m.refill()
					m.level = min(float64(m.limit.Burst), m.level+float64(s.n.refund(m.now, s.at, s.cost)))
				}
			},
			"leave": func(*rapid.T) {
				n := some()
				q, due := n.leave(m.now)
				m.send(n, q, due)
			},
			"arrive": func(*rapid.T) {
				if c, ok := pick(m, &m.calls); ok {
					answer(c)
				}
			},
			"arrive twice": func(*rapid.T) {
				if c, ok := pick(m, &m.calls); ok {
					answer(c)
					m.calls = append(m.calls, c)
				}
			},
			"lose the reply": func(*rapid.T) {
				if c, ok := pick(m, &m.calls); ok {
					m.bucket.acquire(begin+m.now/1000, c.q)
					m.settle(c.n, c.n.fail(m.now, c.q.seq))
				}
			},
			"give up": func(*rapid.T) { // and it arrives later, or never
				n := some()
				m.settle(n, n.fail(m.now, n.seq))
			},
			"a client leaves": func(*rapid.T) {
				if n := some(); n.waiting > 0 {
					n.forsake(n.front())
				}
			},
			"time": func(*rapid.T) {
				m.now += 1000 * rapid.SampledFrom([]int64{1, 1000, 20_000, 150_000, 600_000, 1_100_000}).Draw(t, "wait")
			},
		})
	})
}
