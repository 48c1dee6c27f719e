package adaptive_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/adaptive"
)

const ms = time.Millisecond

// thresholds of the tables: a load of 0.8, so that 0.56 is 0.7 of it.
var thresholds = adaptive.Thresholds{CPU: 0.8, RTT: 400 * ms, Errors: 0.05, QueueDelay: 20 * ms}

func load(v float64) adaptive.Reading { return adaptive.Reading{Value: v, OK: true, Runnable: -1} }

// window is a second in which 100 requests took as long each and so many were in flight at most.
func window(peak int, rtt time.Duration) adaptive.Window {
	return adaptive.Window{
		Span: time.Second, Arrivals: 100, Admitted: 100, Completed: 100, Measured: 100, MaxInFlight: peak, Peak: float64(peak),
		Min: rtt, Mean: rtt, P50: rtt, P90: rtt,
	}
}

type change func(*adaptive.Window)

func failing(n int) change {
	return func(w *adaptive.Window) { w.Failed, w.Measured = n, w.Measured-n }
}

func rejecting(w *adaptive.Window) {
	w.Rejected++
	w.Arrivals++
}

func waiting(d time.Duration) change { return func(w *adaptive.Window) { w.QueueDelay = d } }

func overdue(n int, age time.Duration) change {
	return func(w *adaptive.Window) { w.Overdue, w.Oldest = n, age }
}

func late(n int) change { return func(w *adaptive.Window) { w.Late = n } }

func stalled(w *adaptive.Window) {
	*w = adaptive.Window{
		Span: time.Second, MaxInFlight: w.MaxInFlight, InFlight: w.MaxInFlight, Peak: w.Peak, Overdue: w.MaxInFlight, Oldest: 3 * time.Second,
	}
}

type lawCase struct {
	cur  float64
	w    adaptive.Window
	with []change
	cpu  adaptive.Reading
	next float64
	why  adaptive.Reason
}

func run(t *testing.T, law adaptive.MakeLaw, cases map[string]lawCase) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			for _, f := range c.with {
				f(&c.w)
			}
			next, why := law(thresholds).Update(c.cur, c.w, c.cpu)
			require.InDelta(t, c.next, next, 1e-6)
			require.Equal(t, c.why, why)
		})
	}
}

func TestAIMD(t *testing.T) {
	run(t, adaptive.AIMD, map[string]lawCase{
		"binding":                                     {100, window(100, ms), nil, load(0.1), 105, adaptive.ReasonGrow},
		"80 % in use":                                 {100, window(80, ms), nil, load(0.1), 105, adaptive.ReasonGrow},
		"79 % in use":                                 {100, window(79, ms), nil, load(0.1), 100, adaptive.ReasonHold},
		"little in use, but refusing":                 {100, window(3, ms), []change{rejecting}, load(0.1), 105, adaptive.ReasonGrow},
		"grows by one at least":                       {3.5, window(3, ms), nil, load(0.1), 4.5, adaptive.ReasonGrow},
		"0.7 of the CPU":                              {100, window(100, ms), nil, load(0.56), 105, adaptive.ReasonGrow},
		"between":                                     {100, window(100, ms), nil, load(0.68), 102.5, adaptive.ReasonGrow},
		"exactly the CPU":                             {100, window(100, ms), nil, load(0.8), 100, adaptive.ReasonHold},
		"a bit above the CPU":                         {100, window(100, ms), nil, load(0.801), 95, adaptive.ReasonCPU},
		"above the CPU":                               {100, window(100, ms), nil, load(0.9), 100 * 0.8 / 0.9, adaptive.ReasonCPU},
		"far above the CPU":                           {100, window(100, ms), nil, load(1), 80, adaptive.ReasonCPU},
		"cuts what is in use":                         {100, window(50, ms), nil, load(1), 40, adaptive.ReasonCPU},
		"no reading of the processors":                {100, window(100, ms), nil, adaptive.Reading{Value: 1}, 105, adaptive.ReasonGrow},
		"half the RTT":                                {100, window(100, 200*ms), nil, load(0.1), 105, adaptive.ReasonGrow},
		"exactly the RTT":                             {100, window(100, 400*ms), nil, load(0.1), 100, adaptive.ReasonHold},
		"above the RTT":                               {100, window(100, 401*ms), nil, load(0.1), 95, adaptive.ReasonRTT},
		"far above the RTT":                           {100, window(100, 4*time.Second), nil, load(0.1), 80, adaptive.ReasonRTT},
		"exactly the errors":                          {100, window(50, ms), []change{failing(5)}, load(0.1), 100, adaptive.ReasonHold},
		"above the errors":                            {100, window(100, ms), []change{failing(6)}, load(0.1), 100 / 1.2, adaptive.ReasonErrors},
		"exactly the queueing delay":                  {100, window(100, ms), []change{waiting(20 * ms)}, load(0.1), 100, adaptive.ReasonHold},
		"above the queueing delay":                    {100, window(100, ms), []change{waiting(22 * ms)}, load(0.1), 100 / 1.1, adaptive.ReasonQueue},
		"everything hangs":                            {100, window(100, ms), []change{stalled}, load(0.05), 80, adaptive.ReasonRTT},
		"a few clients hang":                          {100, window(100, ms), []change{overdue(49, 440*ms)}, load(0.1), 105, adaptive.ReasonGrow},
		"half of them get late":                       {100, window(100, ms), []change{overdue(49, 440*ms), late(100)}, load(0.1), 105, adaptive.ReasonGrow},
		"most of them get late":                       {100, window(100, ms), []change{overdue(49, 440*ms), late(101)}, load(0.1), 100 / 1.1, adaptive.ReasonRTT},
		"most got late and have left":                 {100, window(100, ms), []change{late(101)}, load(0.1), 100 * 0.95, adaptive.ReasonRTT},
		"most get late, in a limit that nobody needs": {100, window(79, ms), []change{late(101)}, load(0.1), 100, adaptive.ReasonHold},
		"a few hang, and nobody else is there": {
			100, adaptive.Window{Span: time.Second, MaxInFlight: 12, InFlight: 12, Peak: 12, Overdue: 12, Oldest: time.Minute}, nil, load(0.1), 100, adaptive.ReasonHold,
		},
		"one hangs": {100, window(100, ms), []change{overdue(1, time.Hour)}, load(0.1), 105, adaptive.ReasonGrow},
	})
}

func TestAIMDHoldsForTwoWindows(t *testing.T) {
	l := adaptive.AIMD(thresholds)
	for k, want := range []float64{80, 80, 80, 64, 64, 64} {
		next, why := l.Update([]float64{100, 80, 80, 80, 64, 64}[k], window(100, ms), load(1))
		require.Equal(t, want, next)
		if k%3 > 0 {
			require.Equal(t, adaptive.ReasonHold, why)
		}
	}
	l.Reset()
	next, _ := l.Update(64, window(64, ms), load(1))
	require.InDelta(t, 51.2, next, 1e-9, "nothing is held after a reset")
}

func TestAIMDOptions(t *testing.T) {
	for name, o := range map[string]adaptive.AIMDOptions{
		"Decrease": {Decrease: 1}, "Decrease 2": {Decrease: -0.5}, "Gentle": {Decrease: 0.9, Gentle: 0.8}, "Increase": {Increase: 1},
		"Increase 2": {Increase: 3}, "Hold": {Hold: -2}, "NaN": {Decrease: math.NaN(), Increase: math.NaN(), Gentle: math.NaN()},
	} {
		_, err := adaptive.AIMDWith(o)
		require.ErrorIs(t, err, limiter.ErrInvalid, name)
	}
	law, err := adaptive.AIMDWith(adaptive.AIMDOptions{Decrease: 0.5, Gentle: 0.6, Increase: 1.5, Hold: -1})
	require.NoError(t, err)
	l := law(thresholds)
	next, _ := l.Update(100, window(100, ms), load(1))
	require.InDelta(t, 60, next, 1e-9)
	next, _ = l.Update(60, window(60, 4*time.Second), load(0.1))
	require.InDelta(t, 30, next, 1e-9, "without a hold")
	next, _ = l.Update(30, window(30, ms), load(0.1))
	require.InDelta(t, 45, next, 1e-9)
}

func TestHybrid(t *testing.T) {
	run(t, adaptive.Hybrid, map[string]lawCase{
		"binding and idle":            {100, window(100, ms), nil, load(0.1), 110, adaptive.ReasonGrow},
		"refusing and idle":           {100, window(1, ms), []change{rejecting}, load(0.1), 110, adaptive.ReasonGrow},
		"nobody needs more":           {100, window(79, ms), nil, load(0.1), 100, adaptive.ReasonHold},
		"grows by one at least":       {0.5, window(1, ms), nil, load(0.1), 1.5, adaptive.ReasonGrow},
		"just below 0.7 of the CPU":   {100, window(100, ms), nil, load(0.5599), 110, adaptive.ReasonGrow},
		"0.7 of the CPU":              {100, window(100, ms), nil, load(0.56), 105, adaptive.ReasonGrow},
		"exactly the CPU":             {100, window(100, ms), nil, load(0.8), 105, adaptive.ReasonGrow},
		"above the CPU":               {100, window(100, ms), nil, load(1), 90, adaptive.ReasonCPU},
		"above the CPU, half in use":  {100, window(50, ms), nil, load(1), 70, adaptive.ReasonCPU},
		"exactly the errors":          {100, window(100, ms), []change{failing(5)}, load(0.1), 110, adaptive.ReasonGrow},
		"above the errors":            {100, window(100, ms), []change{failing(6)}, load(0.1), 70, adaptive.ReasonErrors},
		"errors without a reading":    {100, window(100, ms), []change{failing(6)}, adaptive.Reading{}, 70, adaptive.ReasonErrors},
		"no reading":                  {100, window(100, ms), nil, adaptive.Reading{}, 100, adaptive.ReasonHold},
		"exactly the RTT, idle":       {100, window(100, 400*ms), nil, load(0.1), 110, adaptive.ReasonGrow},
		"above the RTT, idle":         {100, window(100, 401*ms), nil, load(0.1), 100, adaptive.ReasonRTT},
		"exactly the queueing delay":  {100, window(100, ms), []change{waiting(20 * ms)}, load(0.1), 110, adaptive.ReasonGrow},
		"above the queueing delay":    {100, window(100, ms), []change{waiting(40 * ms)}, load(0.1), 75, adaptive.ReasonQueue},
		"everything hangs, idle":      {100, window(100, ms), []change{stalled}, load(0.05), 100, adaptive.ReasonRTT},
		"one of a hundred hangs":      {100, window(100, ms), []change{overdue(1, time.Hour)}, load(0.1), 110, adaptive.ReasonGrow},
		"nobody needs more, and busy": {100, window(10, ms), nil, load(0.7), 100, adaptive.ReasonHold},
	})
}

// A baseline of 20 ms, then slower windows: 25 ms is noise, 60 ms is twice as slow as is tolerated.
func TestHybridGradient(t *testing.T) {
	after := func(make adaptive.MakeLaw, rtt time.Duration, cpu float64) (float64, adaptive.Reason) {
		l := make(thresholds)
		for range 5 {
			l.Update(100, window(50, 20*ms), load(0.7))
		}
		return l.Update(100, window(100, rtt), load(cpu))
	}
	for name, c := range map[string]struct {
		law  adaptive.MakeLaw
		rtt  time.Duration
		cpu  float64
		next float64
		why  adaptive.Reason
	}{
		"noise":                                {adaptive.Hybrid, 25 * ms, 0.7, 105, adaptive.ReasonGrow},
		"exactly tolerated":                    {adaptive.Hybrid, 30 * ms, 0.7, 105, adaptive.ReasonGrow},
		"twice that":                           {adaptive.Hybrid, 60 * ms, 0.7, 90, adaptive.ReasonGradient},
		"far beyond":                           {adaptive.Hybrid, 300 * ms, 0.7, 90, adaptive.ReasonGradient},
		"slow and idle is somebody else":       {adaptive.Hybrid, 300 * ms, 0.5, 110, adaptive.ReasonGrow},
		"certainly unhealthy, whoever it is":   {adaptive.Hybrid, 500 * ms, 0.5, 90, adaptive.ReasonRTT},
		"slow above the CPU":                   {adaptive.Hybrid, 60 * ms, 1, 75, adaptive.ReasonCPU},
		"a bit slow above the CPU":             {adaptive.Hybrid, 31 * ms, 1, 90, adaptive.ReasonCPU},
		"slow and idle, what we call is saved": {adaptive.HybridDownstream, 300 * ms, 0.5, 90, adaptive.ReasonGradient},
	} {
		t.Run(name, func(t *testing.T) {
			next, why := after(c.law, c.rtt, c.cpu)
			require.InDelta(t, c.next, next, 1e-6)
			require.Equal(t, c.why, why)
		})
	}
	t.Run("the baseline is that of sixty windows", func(t *testing.T) {
		l := adaptive.Hybrid(thresholds)
		l.Update(100, window(50, 20*ms), load(0.7))
		for k := range 62 {
			_, why := l.Update(100, window(100, 60*ms), load(0.7))
			require.Equal(t, k < 59, why == adaptive.ReasonGradient, "window %d", k)
		}
		l.Update(100, window(50, 20*ms), load(0.7))
		l.Reset()
		_, why := l.Update(100, window(100, 60*ms), load(0.7))
		require.Equal(t, adaptive.ReasonGrow, why, "nothing is remembered after a reset")
	})
}

func TestBBR(t *testing.T) {
	// 100 a second at 200 ms are 20 requests.
	run(t, adaptive.BBR, map[string]lawCase{
		"not armed, binding":          {100, window(100, 200*ms), nil, load(0.1), 110, adaptive.ReasonGrow},
		"not armed, not binding":      {100, window(30, 200*ms), nil, load(0.1), 100, adaptive.ReasonHold},
		"exactly the CPU":             {30, window(30, 200*ms), nil, load(0.8), 30 + math.Sqrt(30), adaptive.ReasonGrow},
		"armed by the CPU":            {100, window(30, 200*ms), nil, load(0.81), 20 + 3*math.Sqrt(20), adaptive.ReasonCPU},
		"armed by the queue":          {100, window(30, 200*ms), []change{waiting(21 * ms)}, load(0.1), 20 + 3*math.Sqrt(20), adaptive.ReasonQueue},
		"twice as many in flight":     {100, window(40, 200*ms), nil, load(0.7), 100, adaptive.ReasonHold},
		"armed by those in flight":    {100, window(41, 200*ms), nil, load(0.7), 20 + 3*math.Sqrt(20), adaptive.ReasonInFlight},
		"armed by them, load unknown": {100, window(41, 200*ms), nil, adaptive.Reading{}, 20 + 3*math.Sqrt(20), adaptive.ReasonInFlight},
		"not armed by them when idle": {100, window(41, 200*ms), nil, load(0.55), 100, adaptive.ReasonHold},
		"half a request":              {100, window(2, 5*ms), nil, load(0.9), 4, adaptive.ReasonCPU}, // 0.5 counts as 1, and 3 varies
		"everything hangs":            {100, window(100, ms), []change{stalled}, load(0.05), 100, adaptive.ReasonRTT},
		"one of a hundred hangs":      {100, window(100, ms), []change{overdue(1, time.Hour)}, load(0.1), 110, adaptive.ReasonGrow},
		"too many fail":               {100, window(100, ms), []change{failing(6)}, load(0.1), 100, adaptive.ReasonErrors},
	})
	t.Run("armed for one window more", func(t *testing.T) {
		l := adaptive.BBR(thresholds)
		for k, cpu := range []float64{0.9, 0.1, 0.1} {
			next, why := l.Update(100, window(24, 200*ms), load(cpu))
			require.Equal(t, k < 2, why == adaptive.ReasonCPU)
			require.Equal(t, k < 2, next < 100)
		}
	})
	t.Run("half of the estimate once in sixty windows", func(t *testing.T) {
		l := adaptive.BBR(thresholds)
		for k := range 200 {
			next, _ := l.Update(100, window(30, 200*ms), load(0.9))
			want := 20 + 3*math.Sqrt(20)
			if k%60 == 59 {
				want = 10
			}
			require.InDelta(t, want, next, 1e-9, "window %d", k)
		}
		l.Reset()
		for k := range 61 { // as long as a request takes
			next, _ := l.Update(100, window(30, 1500*ms), load(0.9))
			require.Equal(t, k >= 59, next < 100, "window %d", k)
		}
		for k := range 100 { // and not where it is in force only now and then
			next, _ := l.Update(100, window(30, 1500*ms), load(map[bool]float64{true: 0.9, false: 0.1}[k%3 == 0]))
			require.GreaterOrEqual(t, next, 100.0)
		}
	})
	t.Run("the highest throughput of ten windows, the least time of sixty", func(t *testing.T) {
		l := adaptive.BBR(thresholds)
		l.Update(100, window(30, 100*ms), load(0.9))
		fast := window(30, 400*ms)
		fast.Measured = 1000
		l.Update(100, fast, load(0.9))
		for k := range 10 {
			next, _ := l.Update(100, window(30, 400*ms), load(0.9))
			want := 100.0 // 1000 a second at 100 ms
			if k == 9 {
				want = 10
			}
			require.InDelta(t, want+3*math.Sqrt(want), next, 1e-9, "window %d", k)
		}
	})
}

// int(1.05·n) is n below 20: a limit kept as an integer never leaves that.
func TestGrowthFromSmallLimits(t *testing.T) {
	for name, law := range laws {
		for n := 1; n <= 25; n++ {
			l, cur, windows := law(thresholds), float64(n), 0
			for ; cur < 26 && windows < 27; windows++ {
				cur, _ = l.Update(cur, window(int(cur), ms), load(0.1))
			}
			require.LessOrEqual(t, windows, 26, "%s from %d", name, n)
			require.GreaterOrEqual(t, cur, 26.0, "%s from %d", name, n)
		}
	}
}

var laws = map[string]adaptive.MakeLaw{
	"hybrid": adaptive.Hybrid, "downstream": adaptive.HybridDownstream, "aimd": adaptive.AIMD, "bbr": adaptive.BBR,
}

func TestLawNamed(t *testing.T) {
	for _, name := range []string{"", "hybrid", "aimd", "bbr"} {
		law, err := adaptive.LawNamed(name)
		require.NoError(t, err)
		require.NotNil(t, law(thresholds))
	}
	_, err := adaptive.LawNamed("vegas")
	require.ErrorIs(t, err, limiter.ErrInvalid)
	require.ErrorContains(t, err, `"vegas"`)
}

func anyWindow(t *rapid.T) adaptive.Window {
	n := func(name string) int { return rapid.IntRange(0, 5000).Draw(t, name) }
	d := func(name string) time.Duration { return time.Duration(rapid.Int64Range(0, 1e11).Draw(t, name)) }
	w := adaptive.Window{
		Span: d("span"), Admitted: n("admitted"), Rejected: n("rejected"), Failed: n("failed"), Measured: n("measured"),
		MaxInFlight: n("most"), Overdue: n("overdue"), Oldest: d("oldest"), QueueDelay: d("queue"),
		Min: d("min"), Mean: d("mean"), P50: d("p50"), P90: d("p90"),
	}
	w.Peak = float64(w.MaxInFlight)
	return w
}

// Whatever a window says, a law returns a limit, and errors, hanging or overload never make it a higher one.
func TestLawsReturnLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"hybrid", "downstream", "aimd", "bbr"}).Draw(t, "law")
		l := laws[name](thresholds)
		for range rapid.IntRange(1, 20).Draw(t, "windows") {
			cur := rapid.Float64Range(1, 1e6).Draw(t, "limit")
			w := anyWindow(t)
			cpu := adaptive.Reading{Value: rapid.Float64Range(0, 1).Draw(t, "load"), OK: rapid.Bool().Draw(t, "known")}
			next, why := l.Update(cur, w, cpu)
			switch {
			case math.IsNaN(next) || math.IsInf(next, 0) || next < 0:
				t.Fatalf("%s returned %v", name, next)
			case why == "":
				t.Fatalf("%s gave no reason", name)
			case name != "bbr" && next > cur && cpu.OK && cpu.Value > 0.8+1e-6:
				t.Fatalf("%s grew under overload", name)
			case next > cur && why == adaptive.ReasonGrow && w.ErrorRatio() > 0.05+1e-6:
				t.Fatalf("%s grew under errors", name)
			case next > cur && why == adaptive.ReasonGrow && w.P90 > 400*ms:
				t.Fatalf("%s grew with times that are not healthy", name)
			case next > cur && why != adaptive.ReasonGrow && name != "bbr":
				t.Fatalf("%s grew for %s", name, why)
			}
		}
	})
}

var errBoom = errors.New("boom")

func ExampleAIMDWith() {
	law, err := adaptive.AIMDWith(adaptive.AIMDOptions{Decrease: 0.5, Increase: 1.01})
	if err != nil {
		panic(err)
	}
	c, err := adaptive.New(adaptive.Config{Name: "search", Law: law, Min: 5, Max: 500})
	if err != nil {
		panic(err)
	}
	defer func() { _ = c.Close() }()
	fmt.Println(c.Bound())
	// Output: 50
}
