package sourcetest_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/config/source/sourcetest"
)

// memory is a source that keeps its document in memory.
type memory struct {
	mu       sync.Mutex
	doc      []byte
	watchers map[chan struct{}]bool
}

func (m *memory) set(doc []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.doc = slices.Clone(doc)
	for w := range m.watchers {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

func (m *memory) Load(ctx context.Context) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case len(m.doc) == 0:
		return nil, config.ErrIncomplete
	case len(m.doc) > config.MaxDocument:
		return nil, errors.New("too large")
	}
	return slices.Clone(m.doc), nil
}

func (m *memory) Watch(ctx context.Context, changed func()) error {
	signal := make(chan struct{}, 1)
	signal <- struct{}{}
	m.mu.Lock()
	m.watchers[signal] = true
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.watchers, signal)
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-signal:
			if ctx.Err() == nil {
				changed()
			}
		}
	}
}

// The table can be passed.
func TestMemory(t *testing.T) {
	sourcetest.Run(t, func(*testing.T) (config.Source, func([]byte)) {
		m := &memory{watchers: map[chan struct{}]bool{}}
		return m, m.set
	})
}
