package redislimit

import (
	"context"
	"strings"
	"time"
)

// tag is what decides a key's place on a Cluster or a Ring: what stands between the first brace and the next, or all of it.
func tag(key string) string {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if in, _, ok := strings.Cut(rest, "}"); ok && in != "" {
			return in
		}
	}
	return key
}

// key is the group's first key.
func (g *group) key() string {
	for i := range g.parts {
		if p := &g.parts[i]; !p.stateless() {
			return p.key
		}
	}
	return ""
}

// scattered reports whether the keys of g have several places.
func (g *group) scattered() bool {
	first := tag(g.key())
	for i := range g.parts {
		if p := &g.parts[i]; !p.stateless() && tag(p.key) != first {
			return true
		}
	}
	return false
}

// split makes a group for each place. from says which part of g each of their parts is.
func (g *group) split() (split []*group, from [][]int) {
	at := make(map[string]int)
	for i := range g.parts {
		p := &g.parts[i]
		place := ""
		if !p.stateless() {
			place = tag(p.key)
		}
		k, ok := at[place]
		if !ok {
			k = len(split)
			at[place] = k
			split = append(split, &group{veto: g.veto, asks: g.asks, now: g.now, sent: g.sent})
			from = append(from, nil)
		}
		split[k].parts = append(split[k].parts, *p)
		from[k] = append(from[k], i)
	}
	return split, from
}

func (g *group) queues() bool {
	for i := range g.parts {
		if g.parts[i].queues() {
			return true
		}
	}
	return false
}

// scatter decides a group whose keys have several places: one run of the script for each, all at once, but for the place
// of a queue, which comes last because it cannot be given back. Where one refuses, the others get back what was booked.
// Until then others may see units missing that are about to come back.
func (l *Limiter) scatter(ctx context.Context, g *group) {
	split, from := g.split()
	var first, last []*group
	for _, s := range split {
		switch {
		case s.stateless():
			s.verdict = booked
		case s.queues():
			last = append(last, s)
		default:
			first = append(first, s)
		}
	}
	l.send(ctx, first)
	l.sendMoving(ctx, first)
	verdict, err := together(first)
	if err == nil && len(last) > 0 {
		last[0].veto = last[0].veto || verdict != booked // then it only tells what is left
		l.send(ctx, last)                                // by itself it waits for keys on their way
		verdict, err = together(append(first, last...))
	}
	if g.veto && verdict == booked {
		verdict = refused
	}
	g.verdict, g.err = verdict, err
	if err != nil || verdict != booked {
		l.giveBack(ctx, split)
	}
	if err != nil || verdict > booked {
		return
	}
	for k, s := range split {
		s.verdict = verdict
		if g.err = l.decide(s); g.err != nil {
			return
		}
		for i := range s.parts {
			p := &g.parts[from[k][i]]
			p.decision, p.booked = s.parts[i].decision, s.parts[i].booked
		}
	}
	g.decided = true
}

// together is the verdict on groups of which all have to pass.
func together(groups []*group) (verdict byte, err error) {
	verdict = booked
	for _, g := range groups {
		switch {
		case g.err != nil:
			err = g.err
		case g.verdict == foreign, g.verdict == refused && verdict == booked:
			verdict = g.verdict
		}
	}
	return verdict, err
}

// giveBack gives back what groups booked, as one of them was refused. It goes on without the caller when his time is over.
func (l *Limiter) giveBack(ctx context.Context, groups []*group) {
	var back []refunded
	for _, g := range groups {
		if g.err != nil || g.verdict != booked || l.decide(g) != nil {
			continue
		}
		back = g.appendRefunds(back)
		g.decided, g.asks = false, true // what is remembered of it now is out of date
		for i := range g.parts {
			g.parts[i].booked = 0
		}
	}
	if len(back) == 0 {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.refundEach(back)
	}()
	over := time.NewTimer(l.client.Left(ctx))
	defer over.Stop()
	select {
	case <-done:
	case <-over.C:
	case <-ctx.Done():
	}
}
