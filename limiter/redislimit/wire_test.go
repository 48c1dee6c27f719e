package redislimit

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
)

func wireLimits() []limiter.Limit {
	return []limiter.Limit{
		limiter.PerSecond(5).WithBurst(7), limiter.PerSecond(5).WithBurst(7).With(limiter.LeakyBucket),
		limiter.PerMinute(5).With(limiter.FixedWindow), limiter.PerMinute(5).With(limiter.SlidingWindow),
		limiter.PerMinute(5).WithCells(10), limiter.PerMinute(5).With(limiter.SlidingLog),
		{Algorithm: limiter.FixedWindow, Rate: 5, Align: limiter.Align{Unit: limiter.Week, Zone: "Asia/Tokyo"}},
	}
}

// sample is a state with a shift under terms of l, as the script stores it.
func sample(t testing.TB, l limiter.Limit) (string, limiter.State) {
	t.Helper()
	r, err := newRule(l)
	require.NoError(t, err)
	b := appendInstant(appendInstant([]byte(r.terms), 1_772_600_767_300_001), 3_600_000_000)
	want := limiter.State{Rule: r.Rule, At: 1_772_600_767_300_001, Shift: 3_600_000_000}
	add := func(n ...byte) { b = append(b, n...) }
	switch l.Algorithm {
	case limiter.TokenBucket, limiter.LeakyBucket:
		add(3, 0, 0, 0)
		b = appendUint48(b, 999_999)
		want.Units, want.Frac = 3, 999_999
	case limiter.FixedWindow:
		add(4, 0, 0, 0)
		b = append(appendInstant(appendInstant(b, 1), 2), r.text...)
		want.Units = 4
	case limiter.SlidingWindow:
		for k := range max(l.Cells, 1) + 1 {
			add(byte(k), 0, 0, 0)
			want.Counts = append(want.Counts, int32(k))
		}
		if l.Cells <= 1 {
			want.Units, want.Frac, want.Counts = 0, 1, nil
		}
	case limiter.SlidingLog:
		add(0, 0, 0, 0, 0, 0, 0, 0)
		b = appendInstant(b, 1_772_600_767_300_000)
		add(2, 0, 0, 0)
		want.Log.Append(limiter.Entry{At: 1_772_600_767_300_000, Units: 2})
		b = appendInstant(b, 1_772_600_767_300_001)
		add(5, 0, 0, 0)
		want.Log.Append(limiter.Entry{At: 1_772_600_767_300_001, Units: 3})
	}
	return string(b), want
}

// A state is read as it was stored, under the same limit and under another; cut or lengthened it is none.
func TestStateRoundTrip(t *testing.T) {
	for _, l := range wireLimits() {
		stored, want := sample(t, l)
		other := l
		other.Rate++
		for _, under := range []limiter.Limit{l, other} {
			r, err := newRule(under)
			require.NoError(t, err)
			got, err := r.state(stored)
			require.NoError(t, err, "%+v", l)
			was := got.Rule.Limit()
			require.Equal(t, l.Algorithm, was.Algorithm)
			require.Equal(t, l.Rate, was.Rate)
			require.Equal(t, l.Period, was.Period)
			require.Equal(t, l.Align, was.Align)
			require.Equal(t, l.Quota(), got.Rule.Limit().Quota())
			require.Equal(t, want.At, got.At)
			require.Equal(t, want.Shift, got.Shift)
			require.Equal(t, []int64{want.Units, want.Frac}, []int64{got.Units, got.Frac})
			require.Equal(t, want.Counts, got.Counts)
			require.Equal(t, want.Log, got.Log)
			for n := 1; n < len(stored); n++ {
				// A log cut between entries is a shorter log, the rest of a calendar's name another calendar.
				if l.Align == (limiter.Align{}) && (l.Algorithm != limiter.SlidingLog || (n-35)%12 != 0) {
					_, err := r.state(stored[:n])
					require.ErrorIs(t, err, errReply, "%+v cut at %d", l, n)
				}
			}
			_, err = r.state(stored + "\x00")
			require.ErrorIs(t, err, errReply, "%+v", l)
		}
	}
}

// Whatever the bytes, a state is read or refused, and what is read can be decided upon.
func FuzzState(f *testing.F) {
	limits := wireLimits()
	for i, l := range limits {
		stored, _ := sample(f, l)
		f.Add(stored, i, int64(1_772_600_767_400_000))
		f.Add(strings.Repeat("\xff", 60), i, int64(0))
		if l.Algorithm == limiter.LeakyBucket { // above the last place
			f.Add(stored[:31]+"\x07"+stored[32:], i, int64(1_772_600_767_400_000))
		}
	}
	f.Fuzz(func(t *testing.T, stored string, i int, now int64) {
		l := limits[(i%len(limits)+len(limits))%len(limits)]
		r, err := newRule(l)
		require.NoError(t, err)
		s, err := r.state(stored)
		if err != nil {
			return
		}
		for _, n := range []int{0, 1, l.Quota(), l.Quota() + 1} {
			d := limiter.Decision{}
			s := s
			r.Decide(&d, &s, limiter.Reading{Now: min(max(now, -maxTicks), maxTicks)}, n, time.Hour, false)
			require.GreaterOrEqual(t, d.Remaining, 0)
			require.LessOrEqual(t, d.Remaining, l.Quota())
			require.GreaterOrEqual(t, d.RetryAfter, time.Duration(0))
		}
	})
}

// Whatever the bytes, a reply is an answer or an error, and takes no memory that the reply does not have.
func FuzzReply(f *testing.F) {
	limits := wireLimits()
	header := string(appendInstant(nil, 1_772_600_767_400_000))
	f.Add(header + "\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	f.Add(header + "\x00")
	f.Add(header + "\x03\x00\x00\x00\x00\x08\x00" + header)
	stored, _ := sample(f, limits[0])
	f.Add(header + "\x00\x00\x00\x00\x00" + string(byte(len(stored))) + "\x00" + stored)
	f.Fuzz(func(t *testing.T, reply string) {
		l := &Limiter{}
		for _, limit := range limits {
			g := new(group)
			require.NoError(t, l.gather(g, []limiter.Take{
				{Key: limiter.Key{ID: "a"}, Limit: limit, N: 1}, {Key: limiter.Key{ID: "b"}, Limit: limit, N: 1, Shadow: true},
			}))
			for _, takes := range [][]limiter.Take{nil, {{Key: limiter.Key{ID: "a"}, Limit: limit, N: 2}}} {
				if takes != nil {
					g = new(group)
					require.NoError(t, l.gather(g, takes))
				}
				tr := &trip{groups: []*group{g}}
				if tr.read(reply, false) != nil {
					continue
				}
				_ = l.decide(g)
				total := 0
				for i := range g.parts {
					total += len(g.parts[i].before)
				}
				require.LessOrEqual(t, total, len(reply))
			}
		}
	})
}
