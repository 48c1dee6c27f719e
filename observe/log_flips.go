package observe

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// mostFlips is how many lines a second there are about one policy that cannot decide and does again. Where a store answers
// for some keys only, every request could change the state of a policy.
const mostFlips = 4

// flips are the lines about one policy that cannot decide and does again.
type flips struct {
	mu      sync.Mutex
	began   time.Time // the second that is
	lines   int       // in it
	held    *held     // the last one, where that second has no room for it
	leftOut int64     // how many were not written, with it
}

// held is a line that is written when its second is over, if nothing newer is by then.
type held struct {
	verdict verdict
	list    []slog.Attr
}

// flip writes the line of e, or holds it: of a policy that goes to and fro the last state is what must be known.
func (l *Log) flip(ctx context.Context, v verdict, e *limiter.Event) {
	list := l.attributes(*e)
	f := l.state.flipsOf(e.Policy)
	now := time.Now()
	f.mu.Lock()
	if now.Sub(f.began) >= time.Second {
		f.began, f.lines = now, 0
	}
	if f.lines < mostFlips {
		_, leftOut := f.take()
		f.mu.Unlock()
		l.write(ctx, v, list, leftOut)
		return
	}
	if f.held == nil {
		time.AfterFunc(f.began.Add(time.Second).Sub(now), func() { l.late(f) })
	}
	f.held = &held{verdict: v, list: list}
	f.leftOut++
	f.mu.Unlock()
}

// take counts a line and returns what is not held any more.
func (f *flips) take() (h *held, leftOut int64) {
	h, leftOut = f.held, f.leftOut
	f.held, f.leftOut = nil, 0
	f.lines++
	return h, leftOut
}

// late writes what is held. Nobody is there for a panic of the handler.
func (l *Log) late(f *flips) {
	defer func() { _ = recover() }()
	f.mu.Lock()
	if f.held == nil {
		f.mu.Unlock()
		return
	}
	f.began, f.lines = time.Now(), 0
	h, leftOut := f.take()
	f.mu.Unlock()
	l.write(context.Background(), h.verdict, h.list, leftOut-1)
}

func (s *logState) flipsOf(policy string) *flips {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flips[policy]
	if f == nil {
		f = &flips{}
		put(&s.flips, policy, f)
	}
	return f
}
