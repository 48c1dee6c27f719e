package degrade_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// shedUser is one caller of a simulation, who asks some times a second with a jitter.
type shedUser struct {
	class   degrade.Class
	subject *degrade.Subject
}

// shedTally is what one class has got.
type shedTally struct {
	asked, passed int
	followed      int // users whose calls of a second have all passed, summed over the seconds but the last
	again         int // those of them of whom that is true in the next second too
}

const (
	shedUsers   = 1000
	shedCalls   = 4    // per user and second
	shedQuota   = 2000 // per second: half of what is asked
	shedSeconds = 40
	shedWarm    = 10 // seconds, until the bucket is empty that was full at first
)

// simulateShed asks a bucket at twice its rate. gate nil: what comes first is served first. The guard's rule: what a take
// leaves must be no less than the reserve, or it is given back.
func simulateShed(t *testing.T, gate degrade.Gate, seed uint64) (tallies [4]shedTally) {
	random := rand.New(rand.NewPCG(seed, 1))
	users := make([]shedUser, shedUsers)
	for k := range users {
		class := degrade.Sheddable // 30 %
		switch part := k % 20; {
		case part < 3: // 15 %
			class = degrade.CriticalPlus
		case part < 8: // 25 %
			class = degrade.Critical
		case part < 14: // 30 %
			class = degrade.SheddablePlus
		}
		r := guarded(t, "GET", "/", "", "X-User", fmt.Sprintf("%d-%d", seed, k), "X-Class", fmt.Sprint(uint8(class)))
		users[k] = shedUser{class, &degrade.Subject{Request: r, Key: limiter.Key{ID: "all=-"}, Cost: 1}}
	}
	type call struct {
		at   time.Duration
		user int
	}
	rule, err := limiter.NewRule(limiter.PerSecond(shedQuota))
	require.NoError(t, err)
	var state limiter.State
	var whole []bool // of the second before
	for second := range shedSeconds {
		var calls []call
		for user := range users {
			for k := range shedCalls {
				at := (time.Duration(k)*time.Second + time.Duration(random.Int64N(int64(time.Second)))) / shedCalls
				calls = append(calls, call{time.Duration(second)*time.Second + at, user})
			}
		}
		slices.SortFunc(calls, func(a, b call) int { return int(a.at - b.at) })
		failed := make([]bool, len(users))
		for _, c := range calls {
			u := &users[c.user]
			u.subject.Now = latchBegin.Add(c.at)
			now := limiter.Reading{Now: u.subject.Now.UnixNano()}
			reserved := 0
			if gate != nil {
				u.subject.Request.Reset(u.subject.Request.Request, nil, nil)
				reserved = reserveUnits(gate.Before(u.subject).Reserve, shedQuota)
			}
			d := rule.Take(&state, now, 1, 0)
			passed := d.Allowed && d.Remaining >= reserved
			if d.Allowed && !passed {
				state.Refund(now, 1, d.Mark)
			}
			failed[c.user] = failed[c.user] || !passed
			if second >= shedWarm {
				tallies[u.class].asked++
				if passed {
					tallies[u.class].passed++
				}
			}
		}
		for user, u := range users {
			x := &tallies[u.class]
			if second > shedWarm && whole[user] {
				x.followed++
				if !failed[user] {
					x.again++
				}
			}
		}
		whole = make([]bool, len(users))
		for user := range users {
			whole[user] = !failed[user]
		}
	}
	return tallies
}

func ratio(a, b int) float64 { return float64(a) / float64(max(b, 1)) }

// shedRandomly has the classes of Shed, but places that are drawn anew for each request.
type shedRandomly struct{ random *rand.Rand }

func (g shedRandomly) Before(s *degrade.Subject) degrade.Hint {
	level := int(classOf(s.Request))*degrade.PlacesPerClass + g.random.IntN(degrade.PlacesPerClass)
	return degrade.Hint{Reserve: degrade.ShedReserve(level, 0.2)}
}

func (shedRandomly) After(*degrade.Subject, degrade.Verdict) {}

func classOf(r *keyfunc.Request) degrade.Class {
	return degrade.Class(r.Header.Get("X-Class")[0] - '0')
}

// At twice the load the important are served wholly, and of the class at the border some callers wholly and the others not
// at all. Without, every class loses half, and hardly anybody has a second without a refusal twice.
func TestShedSimulation(t *testing.T) {
	gate := degrade.Shed(degrade.ShedConfig{Class: classOf, By: keyfunc.Header("X-User")}).(degrade.Gate)
	for seed := range uint64(3) {
		with, without := simulateShed(t, gate, seed), simulateShed(t, nil, seed)
		for k, x := range with {
			y := without[k]
			t.Logf("seed %d %-14v goodput %.4f, kept %.4f of %5d; without: goodput %.4f, kept %.4f of %5d", seed, degrade.Class(k),
				ratio(x.passed, x.asked), ratio(x.again, x.followed), x.followed, ratio(y.passed, y.asked), ratio(y.again, y.followed), y.followed)
			require.InDelta(t, 0.5, ratio(y.passed, y.asked), 0.05)
			require.Less(t, ratio(y.again, y.followed), 0.2)
		}
		goodput := func(c degrade.Class) float64 { return ratio(with[c].passed, with[c].asked) }
		require.GreaterOrEqual(t, goodput(degrade.CriticalPlus), 0.99)
		require.GreaterOrEqual(t, goodput(degrade.Critical), 0.99)
		require.InDelta(t, 1.0/3, goodput(degrade.SheddablePlus), 0.02, "what the others leave: 400 of 1200 calls a second")
		require.LessOrEqual(t, goodput(degrade.Sheddable), 0.01)
		for _, c := range []degrade.Class{degrade.CriticalPlus, degrade.Critical, degrade.SheddablePlus} {
			require.NotZero(t, with[c].followed)
			require.GreaterOrEqual(t, ratio(with[c].again, with[c].followed), 0.95, c)
		}
	}
	// Classes alone save the important, and serve the class at the border a third of the time each.
	randomly := simulateShed(t, shedRandomly{rand.New(rand.NewPCG(0, 2))}, 0)
	border := randomly[degrade.SheddablePlus]
	t.Logf("places drawn: %+v", randomly)
	require.InDelta(t, 1.0/3, ratio(border.passed, border.asked), 0.02)
	require.Less(t, ratio(border.again, border.followed), 0.2)
}
