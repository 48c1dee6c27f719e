package adaptive_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/limiter/adaptive"
)

func TestControlGroups(t *testing.T) {
	for tree, want := range map[string]struct {
		usage adaptive.Usage
		ok    bool
	}{
		"v2":             {adaptive.Usage{Busy: 2500 * ms, Cores: 1.5, Periods: 100, Throttled: 7}, true},
		"v2_nested":      {adaptive.Usage{Busy: 7 * time.Second, Cores: 0.5, Periods: 40, Throttled: 3}, true}, // the pod's is the tightest
		"v2_tight_child": {adaptive.Usage{Busy: 3 * time.Second, Cores: 0.5, Periods: 5, Throttled: 1}, true},
		"v2_outside":     {adaptive.Usage{Busy: time.Second, Cores: 0.5, Periods: 10}, true}, // the path is that of the host
		"v2_max":         {adaptive.Usage{Cores: 1}, false},
		"v2_garbage":     {adaptive.Usage{}, false},
		"v2_no_usage":    {adaptive.Usage{}, false},
		"v1":             {adaptive.Usage{Busy: 3 * time.Second, Cores: 0.5, Periods: 30, Throttled: 20}, true},
		"v1_joint":       {adaptive.Usage{Busy: 1500 * ms, Cores: 2, Periods: 3}, true}, // two processors, though a quota of three
		"v1_unbounded":   {adaptive.Usage{Cores: 1}, false},
		"none":           {adaptive.Usage{}, false},
	} {
		t.Run(tree, func(t *testing.T) {
			root := filepath.Join("testdata", "cgroups", tree)
			require.DirExists(t, root)
			u, ok := adaptive.Groups(root)
			require.Equal(t, want.ok, ok)
			require.Equal(t, want.usage, u)

			// What no group tells is told by the process, of at least one processor.
			u, ok = adaptive.Measure(root, 0)
			require.True(t, ok)
			require.Greater(t, u.Cores, 0.0)
			require.LessOrEqual(t, u.Cores, float64(runtime.GOMAXPROCS(0)))
			u, _ = adaptive.Measure(root, 0.25)
			require.Equal(t, 0.25, u.Cores, "the given quota goes first")
		})
	}
}

// play feeds a sampler measurements every quarter of a second.
type play struct {
	u  adaptive.Usage
	ok bool
	at time.Time
	s  *adaptive.Sampler
}

func newPlay() *play {
	p := &play{u: adaptive.Usage{Cores: 2}, ok: true, at: epoch}
	p.s = adaptive.SamplerOf(func() (adaptive.Usage, bool) { return p.u, p.ok })
	p.s.Sample(p.at)
	return p
}

// busy lets time pass at a load.
func (p *play) busy(load float64, d time.Duration) adaptive.Reading {
	for ; d > 0; d -= 250 * ms {
		p.at = p.at.Add(250 * ms)
		p.u.Busy += time.Duration(load * p.u.Cores * float64(250*ms))
		p.s.Sample(p.at)
	}
	return p.s.Read(p.at)
}

func TestSamplerAverages(t *testing.T) {
	p := newPlay()
	require.False(t, p.s.Read(p.at).OK, "one measurement is none")
	r := p.busy(0.3, 250*ms)
	require.True(t, r.OK)
	require.InDelta(t, 0.3, r.Value, 1e-9)
	require.Equal(t, p.at, r.At)
	r = p.busy(0.8, 10*time.Second)
	require.InDelta(t, 0.8, r.Value, 1e-4, "an average in whole numbers stays below")
	r = p.busy(1, 20*time.Second)
	require.InDelta(t, 1, r.Value, 1e-8)
	r = p.busy(0, time.Second)
	require.InDelta(t, 0.3679, r.Value, 1e-3, "1/e after the time constant")
	r = p.busy(0, 20*time.Second)
	require.InDelta(t, 0, r.Value, 1e-6, "nothing is left of a busy time")
}

// A tick that comes late weighs more, so the average is that of the time and not of the ticks.
func TestSamplerMissesTicks(t *testing.T) {
	a, b := newPlay(), newPlay()
	a.busy(0.2, time.Second)
	b.busy(0.2, time.Second)
	often := a.busy(0.9, 2*time.Second).Value
	b.at = b.at.Add(2 * time.Second)
	b.u.Busy += time.Duration(0.9 * 2 * float64(2*time.Second))
	b.s.Sample(b.at)
	require.InDelta(t, often, b.s.Read(b.at).Value, 1e-9)
}

func TestSamplerTroubles(t *testing.T) {
	t.Run("no time has passed", func(t *testing.T) {
		p := newPlay()
		p.busy(0.5, time.Second)
		p.u.Busy += time.Hour
		p.s.Sample(p.at)
		p.s.Sample(p.at.Add(-time.Second))
		require.InDelta(t, 0.5, p.s.Read(p.at).Value, 1e-9)
	})
	t.Run("a counter goes backwards", func(t *testing.T) {
		p := newPlay()
		p.busy(0.5, time.Second)
		p.u.Busy = 0
		r := p.busy(0.5, 250*ms)
		require.InDelta(t, 0.5, r.Value, 1e-9)
		r = p.busy(0.5, time.Second)
		require.InDelta(t, 0.5, r.Value, 1e-9)
	})
	t.Run("a source that is gone is no idle one", func(t *testing.T) {
		p := newPlay()
		p.busy(0.9, 5*time.Second)
		p.ok = false
		require.True(t, p.busy(0, 3*time.Second).OK)
		r := p.busy(0, 250*ms)
		require.False(t, r.OK)
		require.Zero(t, r.Value)
		p.ok = true
		p.busy(0.4, 250*ms)
		require.True(t, p.busy(0.4, 250*ms).OK, "it is back")
	})
	t.Run("more than everything", func(t *testing.T) {
		p := newPlay()
		require.Equal(t, 1.0, p.busy(7, time.Second).Value)
	})
	t.Run("a quota that moves", func(t *testing.T) {
		p := newPlay()
		p.busy(0.5, 5*time.Second)
		p.u.Cores = 1
		require.InDelta(t, 1, p.busy(1, 20*time.Second).Value, 1e-6)
	})
}

// A container of 0.13 processors and one request of 30 ms a second: it looks idle, and is stopped in two of three periods.
func TestSamplerOfAThrottledProcess(t *testing.T) {
	second := func(p *play, periods, cut int64) {
		p.u.Periods += periods
		p.u.Throttled += cut
		p.busy(0.23, time.Second)
	}
	p := newPlay()
	p.u.Cores = 0.13
	for range 5 {
		second(p, 3, 2)
		require.Equal(t, 1.0, p.s.Read(p.at).Value)
	}
	for range 6 {
		second(p, 10, 0)
	}
	require.InDelta(t, 0.23, p.s.Read(p.at).Value, 0.01, "it is over")
	second(p, 20, 2)
	require.Less(t, p.s.Read(p.at).Value, 1.0, "a tenth is not above a tenth")
	p.u.Periods, p.u.Throttled = 0, 0
	second(p, 0, 0)
	require.Less(t, p.s.Read(p.at).Value, 1.0, "counters that begin anew")
}

// This process, on whatever it runs on.
func TestSamplerOfThisProcess(t *testing.T) {
	s := adaptive.NewSampler(0)
	s.Sample(epoch)
	x := 0
	for k := 1; k <= 1000; k++ { // the kernel may count in ticks
		for n := range 1_000_000 {
			x += n
		}
		at := epoch.Add(time.Duration(k) * 10 * ms)
		s.Sample(at)
		r := s.Read(at)
		require.True(t, r.OK)
		require.LessOrEqual(t, r.Value, 1.0)
		if r.Value > 0 {
			return
		}
	}
	t.Fatalf("it has worked, up to %d, and nothing shows", x)
}

func TestRuntimeMetrics(t *testing.T) {
	runnable, wait := adaptive.Runtime()
	require.GreaterOrEqual(t, runnable, 0.0)
	require.GreaterOrEqual(t, wait, time.Duration(0))
	require.Less(t, wait, time.Minute)
	runnable, wait = adaptive.AbsentMetrics()
	require.Equal(t, -1.0, runnable)
	require.Zero(t, wait)
}

// Whatever a source says, and whenever, a reading is a share.
func TestReadingsAreShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var u adaptive.Usage
		ok := true
		s := adaptive.SamplerOf(func() (adaptive.Usage, bool) { return u, ok })
		at := epoch
		for range rapid.IntRange(1, 30).Draw(t, "samples") {
			u = adaptive.Usage{
				Busy:    time.Duration(rapid.Int64().Draw(t, "busy")),
				Cores:   rapid.Float64().Draw(t, "cores"),
				Periods: rapid.Int64().Draw(t, "periods"), Throttled: rapid.Int64().Draw(t, "throttled"),
			}
			ok = rapid.Bool().Draw(t, "ok")
			at = at.Add(time.Duration(rapid.Int64Range(-1e9, 1e12).Draw(t, "pass")))
			s.Sample(at)
			r := s.Read(at)
			if !(r.Value >= 0 && r.Value <= 1) {
				t.Fatalf("reading %v", r.Value)
			}
		}
	})
}

// Files that anything can be in lead to shares, too.
func FuzzControlGroups(f *testing.F) {
	f.Add("0::/app\n", "100000 100000\n", "usage_usec 5\nnr_periods 3\nnr_throttled 1\n", "0-3\n", true)
	f.Add("1:cpu,cpuacct:/a\n", "-1\n", "12345678901234567890", "0-1048575,0-1048575", false)
	f.Add("0::/\n", "1 9223372036854775807", "usage_usec 9223372036854775807", "", true)
	f.Add("0::"+strings.Repeat("/..", 200), "max", "usage_usec -1", "4294967295-0", true)
	f.Fuzz(func(t *testing.T, own, quota, stat, cpus string, isV2 bool) {
		root := t.TempDir()
		files := map[string]string{
			"proc/self/cgroup":                       own,
			"sys/fs/cgroup/cpu/cpu.cfs_quota_us":     quota,
			"sys/fs/cgroup/cpu/cpu.cfs_period_us":    "100000",
			"sys/fs/cgroup/cpu/cpu.stat":             stat,
			"sys/fs/cgroup/cpuacct/cpuacct.usage":    stat,
			"sys/fs/cgroup/cpuset/cpuset.cpus":       cpus,
			"sys/fs/cgroup/cpu.max":                  quota,
			"sys/fs/cgroup/cpu.stat":                 stat,
			"sys/fs/cgroup/cpuset.cpus.effective":    cpus,
			"sys/fs/cgroup/app/cpu.max":              quota + " 100000",
			"sys/fs/cgroup/app/cpu.stat":             "usage_usec 1",
			"sys/fs/cgroup/app/cpuset.cpus":          cpus,
			"sys/fs/cgroup/cpu/app/cpu.cfs_quota_us": quota,
		}
		if isV2 {
			files["sys/fs/cgroup/cgroup.controllers"] = "cpu"
		}
		for name, text := range files {
			name = filepath.Join(root, filepath.FromSlash(name))
			require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
			require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
		}
		s := adaptive.SamplerAt(root, 0)
		for k := range 3 {
			at := epoch.Add(time.Duration(k) * time.Second)
			s.Sample(at)
			r := s.Read(at)
			require.GreaterOrEqual(t, r.Value, 0.0)
			require.LessOrEqual(t, r.Value, 1.0)
		}
		require.GreaterOrEqual(t, adaptive.ParseCPUs(cpus), 0)
		q, ok := adaptive.ParseQuota(strings.Fields(quota))
		require.Equal(t, ok, q > 0)
		for name, p := range adaptive.ParseOwnGroups(own) {
			if strings.HasPrefix(name, "+") {
				continue // names of controllers
			}
			require.NotContains(t, "/"+p+"/", "/../", "a path leads out of the tree")
		}
	})
}

func BenchmarkSample(b *testing.B) {
	b.ReportAllocs()
	s := adaptive.NewSampler(0)
	for at := epoch; b.Loop(); at = at.Add(250 * ms) {
		s.Sample(at)
	}
}
