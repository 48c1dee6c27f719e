package degrade_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/degrade"
)

func copiesOf(n int) *degrade.Copies {
	return &degrade.Copies{Pages: []degrade.Page{{Status: 200, Header: fieldsOf("Content-Type: text/plain"), Body: make([]byte, n)}}}
}

// One shard against a list of what was used last, of plain slices.
func TestMemoryStoreProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const limit = 100_000
		s := degrade.NewMemoryStore(limit)
		type held struct {
			key  string
			c    *degrade.Copies
			size int64
		}
		var model []held // used last first
		take := func(key string) *held {
			for i, h := range model {
				if h.key == key {
					model = append(model[:i:i], model[i+1:]...)
					return &h
				}
			}
			return nil
		}
		sum := func() (n int64) {
			for _, h := range model {
				n += h.size
			}
			return n
		}
		set := func(key string, c *degrade.Copies) {
			take(key)
			probe := degrade.NewMemoryStore(1 << 20) // tells the size of an entry
			probe.Set(key, c)
			h := held{key, c, probe.Bytes()}
			if h.size > limit {
				return
			}
			for sum()+h.size > limit {
				model = model[:len(model)-1]
			}
			model = append([]held{h}, model...)
		}
		keys := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"})
		t.Repeat(map[string]func(*rapid.T){
			"get": func(t *rapid.T) {
				key := keys.Draw(t, "key")
				c, ok := s.Get(key)
				h := take(key)
				require.Equal(t, h != nil, ok)
				if ok {
					require.Same(t, h.c, c)
					model = append([]held{*h}, model...)
				}
			},
			"set": func(t *rapid.T) {
				key, c := keys.Draw(t, "key"), copiesOf(rapid.IntRange(0, 60_000).Draw(t, "size"))
				s.Set(key, c)
				set(key, c)
			},
			"too large": func(t *rapid.T) {
				key, c := keys.Draw(t, "key"), copiesOf(limit)
				s.Set(key, c)
				set(key, c)
			},
			"delete": func(t *rapid.T) {
				key := keys.Draw(t, "key")
				s.Delete(key)
				take(key)
			},
			"update": func(t *rapid.T) {
				key, c := keys.Draw(t, "key"), copiesOf(rapid.IntRange(0, 60_000).Draw(t, "size"))
				s.Update(key, func(old *degrade.Copies) *degrade.Copies {
					h := take(key)
					require.Equal(t, h == nil, old == nil)
					if h != nil {
						require.Same(t, h.c, old)
					}
					return c
				})
				set(key, c)
			},
			"update to nothing": func(t *rapid.T) {
				key := keys.Draw(t, "key")
				s.Update(key, func(*degrade.Copies) *degrade.Copies { return nil })
				take(key)
			},
			"": func(t *rapid.T) {
				require.Len(t, model, s.Len())
				require.Equal(t, sum(), s.Bytes())
				require.LessOrEqual(t, s.Bytes(), int64(limit))
			},
		})
	})
}

// The bound holds at any moment, and it is one of memory: what the heap really holds is not far above.
func TestMemoryStoreBytesHeld(t *testing.T) {
	inserts := 1_000_000
	if cachedUnderRace {
		inserts = 50_000
	}
	const limit = 32 << 20
	for name, longest := range map[string]int{"small": 300, "large": 40_000} {
		n := inserts
		if longest > 1000 {
			n /= 20
		}
		before := heapInUse()
		s := degrade.NewMemoryStore(limit)
		random := rand.New(rand.NewPCG(1, 2))
		for i := range n {
			s.Set(fmt.Sprintf("%043d", random.IntN(4*n)), copiesOf(random.IntN(longest)))
			if i%1000 == 0 {
				require.LessOrEqual(t, s.Bytes(), int64(limit))
			}
		}
		held := s.Bytes()
		require.LessOrEqual(t, held, int64(limit))
		require.Greater(t, held, int64(limit/4*3), "bodies of up to %d bytes", longest)
		if real := heapInUse() - before; !cachedUnderRace {
			t.Logf("%s: accounted %d, on the heap %d, %d keys", name, held, real, s.Len())
			require.Less(t, real, held*23/20, name)
		}
		runtime.KeepAlive(s)
	}
}

// The map of a header takes more than the texts in it.
func TestCopiesSizeOfManyFields(t *testing.T) {
	if cachedUnderRace {
		t.Skip("the detector takes memory, too")
	}
	for _, fields := range []int{1, 5, 6, 13, 14, 30, 120, 500} {
		const n = 300
		s := newSite(t, degrade.PagesConfig{MaxBytes: 1 << 30}, func(w http.ResponseWriter, _ *http.Request) {
			for i := range fields {
				w.Header()[fmt.Sprintf("X-%d", i)] = []string{""}
			}
			_, _ = w.Write([]byte("page"))
		})
		before := heapInUse()
		for i := range n {
			s.allow(fetch(fmt.Sprintf("/%d", i)))
		}
		store := s.h.(interface{ Pages() *degrade.Pages }).Pages().Store().(*degrade.MemoryStore)
		real, held := heapInUse()-before, store.Bytes()
		require.Equal(t, n, store.Len())
		require.Less(t, real, held*21/20+100_000, "%d fields", fields)
		require.Greater(t, real, held/2-100_000, "%d fields", fields)
		runtime.KeepAlive(s)
	}
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestMemoryStoreConcurrently(t *testing.T) {
	s := degrade.NewMemoryStore(8 << 20)
	var wg sync.WaitGroup
	for k := range 4 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(7, uint64(k)))
			for range 3000 {
				key := strings.Repeat("k", 1+random.IntN(40))
				switch random.IntN(4) {
				case 0:
					s.Set(key, copiesOf(random.IntN(300_000)))
				case 1:
					s.Get(key)
				case 2:
					s.Update(key, func(old *degrade.Copies) *degrade.Copies { return copiesOf(random.IntN(300_000)) })
				default:
					s.Delete(key)
				}
				if n := s.Bytes(); n > 8<<20 {
					t.Errorf("%d bytes", n)
				}
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, s.Bytes(), int64(8<<20))
}

func TestNewMemoryStoreDefault(t *testing.T) {
	s := degrade.NewMemoryStore(0)
	s.Set("a", copiesOf(3<<20))
	require.Equal(t, 1, s.Len(), "a shard of the default takes 3 MiB")
	s.Set("a", copiesOf(5<<20))
	require.Zero(t, s.Len(), "what does not fit leaves nothing older behind")
	s.Set("b", nil)
	require.Zero(t, s.Len())
}
