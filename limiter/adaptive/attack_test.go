package adaptive_test

import (
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/adaptive"
)

// A clock that jumps, in any order of calls: the bound is within its bounds, what comes is what goes, and nobody is old who has left.
func TestClocksThatJump(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		law := laws[rapid.SampledFrom([]string{"hybrid", "downstream", "aimd", "bbr"}).Draw(t, "law")]
		c, err := adaptive.NewManual(adaptive.Config{
			Min: 3, Max: 40, Fixed: 20, RTT: 100 * ms, Law: law, Logger: slog.New(slog.DiscardHandler), CPUSource: func() (float64, bool) { return 0.9, true },
		}, nil)
		require.NoError(t, err)
		now, latest := epoch, epoch
		jump := rapid.OneOf(
			rapid.Int64Range(0, int64(50*ms)), rapid.Int64Range(0, int64(5*time.Second)),
			rapid.Int64Range(-int64(time.Hour), int64(time.Hour)), rapid.Int64Range(-int64(100*24*time.Hour), int64(100*24*time.Hour)),
		)
		var there []time.Time
		for range rapid.IntRange(1, 80).Draw(t, "calls") {
			if now = now.Add(time.Duration(jump.Draw(t, "jump"))); now.After(latest) {
				latest = now
			}
			switch rapid.IntRange(0, 4).Draw(t, "call") {
			case 0:
				if n, bound, ok := c.Acquire(now, 0); ok {
					require.LessOrEqual(t, n, bound)
					there = append(there, now)
				}
			case 1:
				c.Admit(now)
				there = append(there, now)
			case 2:
				if len(there) > 0 {
					k := rapid.IntRange(0, len(there)-1).Draw(t, "who")
					c.Release(now, there[k], rapid.SampledFrom([]adaptive.Result{adaptive.Succeeded, adaptive.Failed, adaptive.Unmeasured, adaptive.Withdrawn}).Draw(t, "result"))
					there = append(there[:k], there[k+1:]...)
				}
			case 3:
				c.Advance(now)
			case 4:
				_, why := c.Explain(now, limiter.PerSecond(1))
				require.NotEmpty(t, why)
			}
			require.Equal(t, len(there), c.InFlight())
			st := c.State()
			require.True(t, st.Bound >= 3 && st.Bound <= 40, st.Bound)
			w := st.Window
			for _, n := range []int{w.Arrivals, w.Admitted, w.Rejected, w.Completed, w.Failed, w.Measured, w.Overdue, w.Late, int(w.Span), int(w.Oldest)} {
				require.GreaterOrEqual(t, n, 0, "%+v", w)
			}
		}
		for _, began := range there {
			c.Release(now, began, adaptive.Unmeasured)
		}
		for k := range 3 {
			c.Advance(latest.Add(time.Duration(k+1) * time.Hour))
		}
		w := c.State().Window
		require.Equal(t, []int{0, 0, 0}, []int{w.InFlight, w.Overdue, int(w.Oldest)})
	})
}

// A rate moves while many ask for it, are told, and come and go.
func TestRateUnderLoad(t *testing.T) {
	law := &script{update: func(float64, adaptive.Window, adaptive.Reading) float64 { return 10 + 90*rand.Float64() }}
	c, err := adaptive.NewManual(adaptive.Config{
		Target: adaptive.Rate, Min: 0.1, Max: 1, Law: lawOf(law), CPUSource: func() (float64, bool) { return 0.5, true },
		Logger: slog.New(slog.DiscardHandler), Observer: limiter.ObserverFunc(func(limiter.Event) {}),
	}, nil)
	require.NoError(t, err)
	nominal := limiter.PerSecond(1000).WithBurst(100)
	var n, wrong atomic.Int64
	clock := func() time.Time { return epoch.Add(time.Duration(n.Add(1)) * 100 * time.Microsecond) }
	var all sync.WaitGroup
	for k := range 100 {
		all.Go(func() {
			for i := range 200 {
				at := clock()
				if l := c.Adjust(at, nominal); l.Validate() != nil || l.Rate < 100 || l.Rate > 1000 || l.Burst < 10 || l.Burst > 100 {
					wrong.Add(1)
				}
				if l, why := c.Explain(at, nominal); l.Validate() != nil || why == "" {
					wrong.Add(1)
				}
				if i%5 == 0 {
					c.Reject(at)
					continue
				}
				if _, bound, ok := c.Admit(at); !ok || bound != math.MaxInt {
					wrong.Add(1)
				}
				c.Release(clock(), at, adaptive.Result(i%3))
				if k%10 == 0 {
					c.Advance(clock())
				}
			}
		})
	}
	all.Wait()
	require.Zero(t, wrong.Load())
	require.Zero(t, c.InFlight())
}

// A control group whose quota can be read only now and then, or that moves up and down the tree: accounts of different groups have
// no difference, though one is larger than the other.
func TestControlGroupsThatFlicker(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		name = filepath.Join(root, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	}
	busy := func(group string, d time.Duration) {
		write("sys/fs/cgroup/"+group+"cpu.stat", "usage_usec "+strconv.FormatInt(d.Microseconds(), 10)+"\n")
	}
	write("sys/fs/cgroup/cgroup.controllers", "cpu\n")
	write("proc/self/cgroup", "0::/pod/app\n")
	for kind, flicker := range map[string]func(k int){
		"the tightest is the pod, then the app": func(k int) {
			write("sys/fs/cgroup/pod/cpu.max", []string{"100000 100000", "max 100000"}[k%2])
			write("sys/fs/cgroup/pod/app/cpu.max", []string{"200000 100000", "200000 100000"}[k%2])
		},
		"none, now and then": func(k int) {
			write("sys/fs/cgroup/pod/cpu.max", []string{"100000 100000", "garbage"}[k%3/2])
			write("sys/fs/cgroup/pod/app/cpu.max", "max 100000")
		},
	} {
		s := adaptive.SamplerAt(root, 0)
		for k := range 40 {
			flicker(k)
			at := time.Duration(k) * 250 * ms
			busy("pod/", 1000*time.Hour+at/10) // a tenth of a processor, and a long past
			busy("pod/app/", time.Hour+at/10)
			s.Sample(epoch.Add(at))
			require.LessOrEqual(t, s.Read(epoch.Add(at)).Value, 0.3, kind)
		}
	}
}
