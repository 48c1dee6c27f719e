package middleware

import "sync/atomic"

// Mount is one stage as adapters put it into chains. All Guards of one stage share it, so its address stands for the
// stage wherever a request is marked as decided.
type Mount struct{ places atomic.Int32 }

// Mount tells the stage that it is put into a chain at one more place. It is for adapters.
func (g *Guard) Mount() *Mount {
	type mounted struct{ stage string }
	m, _ := g.core.mounted.LoadOrStore(mounted{g.name}, new(Mount))
	mount := m.(*Mount)
	mount.places.Add(1)
	return mount
}

// Several reports whether the stage stands at more than one place. Only then can a request come by it twice, of which
// only the first may count, and only then is it worth marking the requests.
func (m *Mount) Several() bool { return m.places.Load() > 1 }
