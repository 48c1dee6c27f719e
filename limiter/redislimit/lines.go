package redislimit

import (
	"context"
	"sync"
	"time"
)

// lines are one line for each node of a Cluster or a Ring, so that a node that is silent holds up nobody but those who ask
// it; otherwise one.
type lines struct {
	send    func(context.Context, []*group)
	giveUp  func([]*group)
	timeout time.Duration
	several bool // see line

	mu sync.RWMutex
	of map[any]*line
}

// maxLines bounds the lines that are kept: nodes that have left leave theirs behind.
const maxLines = 1024

func newLines(timeout time.Duration, send func(context.Context, []*group), giveUp func([]*group)) *lines {
	return &lines{send: send, giveUp: giveUp, timeout: timeout}
}

// at returns the line of a node.
func (l *lines) at(node any) *line {
	l.mu.RLock()
	at := l.of[node]
	l.mu.RUnlock()
	if at != nil {
		return at
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := l.of[node]; at != nil {
		return at
	}
	if len(l.of) >= maxLines || l.of == nil {
		l.of = make(map[any]*line)
	}
	at = newLine(l.timeout, l.send, l.giveUp)
	at.several = l.several
	l.of[node] = at
	return at
}
