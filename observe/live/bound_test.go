package live_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/middleware"
	"github.com/spillway-go/spillway/observe/live"
)

// late is a shared store whose requests and replies take as long as they like.
type late struct {
	*memory.Limiter
	most time.Duration
}

func (s *late) Local() bool { return false }

func (s *late) AllowAll(ctx context.Context, _ time.Time, takes []limiter.Take) (bool, error) {
	if len(takes) == 0 {
		return s.Limiter.AllowAll(ctx, time.Time{}, takes)
	}
	time.Sleep(rand.N(s.most))
	ok, err := s.Limiter.AllowAll(ctx, time.Time{}, takes) // by the clock of the store
	time.Sleep(rand.N(s.most))
	for k := range takes {
		takes[k].Decision.Via = limiter.ViaStore
	}
	return ok, err
}

// The claim of the page: what is measured is never above the bound beside it. Under load, with every algorithm, in this process
// and with a store whose replies are late.
func TestMeasuredIsNeverAboveTheBound(t *testing.T) {
	limits := []string{
		"40/s burst 7", "80/s burst 80", "50/s leaky_bucket burst 9", "30/s fixed_window", "40/s sliding_window", "20/500ms sliding_window cells 5", "40/s sliding_log",
	}
	for name, shared := range map[string]bool{"memory": false, "store": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, err := memory.New(memory.Config{})
				require.NoError(t, err)
				defer m.Close()
				p := newPage(t, live.Config{})
				var store limiter.Limiter = m
				if shared {
					store = &late{Limiter: m, most: 80 * time.Millisecond}
				}
				var all []middleware.Policy
				for k, text := range limits {
					x := policy(fmt.Sprint("p", k), text)
					x.Match = middleware.Match{Routes: []string{fmt.Sprint("/", k)}}
					if k == 2 {
						x.MaxDelay = -1
					}
					all = append(all, x)
				}
				g := newGuard(t, p, store, all...)
				p.Watch(g, nil)
				w, leave, _ := view(p, nil)
				var asking sync.WaitGroup
				for k := range limits {
					for range 12 {
						asking.Go(func() {
							for range 200 {
								send(g, fmt.Sprint("/", k), 1)
								time.Sleep(rand.N(20 * time.Millisecond))
							}
						})
					}
				}
				asking.Wait()
				after(3 * time.Second)
				s := follow(t, w.events(t))
				most := 0.0
				for k, text := range limits {
					r := s.rows[fmt.Sprint("p", k)]
					require.Positive(t, r.S[1], "%s has to be the bottleneck", text)
					require.Equal(t, 1, r.K, text)
					require.LessOrEqual(t, r.O, r.B, text)
					most = max(most, r.O)
					t.Logf("%-32s %6.2f of %6.2f units, %d passed", text, r.O, r.B, r.S[0])
				}
				require.Equal(t, shared, most > 0, "late replies are seen, and nothing else is")
				leave()
				synctest.Wait()
			})
		})
	}
}
