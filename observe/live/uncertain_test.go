package live_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/middleware"
	"github.com/spillway-go/spillway/observe/live"
)

// What is not certain is not measured, and the page says why.
func TestNotMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPage(t, live.Config{})
		refunds := policy("refunds", "60/m burst 5")
		refunds.Refund = func(status int) bool { return status == http.StatusOK }
		g := newGuard(t, p, nil, refunds, policy("twice", "60/m burst 5"))
		newGuard(t, p, nil, policy("alone", "60/m burst 5"))
		other := newGuard(t, p, nil, policy("twice", "60/m burst 5"))
		p.Watch(g, nil)
		w, leave, _ := view(p, nil)
		for range 2 {
			send(g, "/", 30)
			send(other, "/", 30)
			after(2 * time.Second)
		}
		s := follow(t, w.events(t))
		require.Greater(t, s.rows["twice"].S[0], uint64(5), "each guard has a table of its own")
		for name, why := range map[string]string{"refunds": "Not measured: refunds", "twice": "Not measured: several guards"} {
			require.Contains(t, s.about[name].Promise, why)
			require.Zero(t, s.rows[name].K, name)
			require.Zero(t, s.rows[name].O, name)
		}
		require.Equal(t, -1.0, s.rows["alone"].B)
		require.Contains(t, s.about["alone"].Promise, "does not watch the guard")
		m, err := memory.New(memory.Config{})
		require.NoError(t, err)
		defer m.Close()
		g = newGuard(t, p, &store{Limiter: m, via: limiter.ViaStore}, policy("far", "5/s"))
		p.Watch(g, nil)
		after(2 * time.Second)
		require.Contains(t, follow(t, w.events(t)).about["far"].Promise, "Nothing has been decided")
		send(g, "/", 1)
		after(time.Second)
		require.Contains(t, follow(t, w.events(t)).about["far"].Promise, "Counted in the shared store")
		leave()
		synctest.Wait()
	})
}

// A guard that tells the page nothing, as it has another observer, is told of after a minute; so are policies beyond the most.
func TestHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPage(t, live.Config{})
		g := newGuard(t, nil, nil, policy("a", "5/s"))
		p.Watch(g, nil)
		w, leave, _ := view(p, nil)
		send(g, "/", 3)
		after(58 * time.Second)
		require.Equal(t, "ok", follow(t, w.events(t)).state)
		after(5 * time.Second)
		require.Equal(t, "mute", follow(t, w.events(t)).state)
		require.Contains(t, w.text(), "Is the page in its Observer?")
		var many []middleware.Policy
		for k := range 1030 {
			many = append(many, policy(fmt.Sprint("p", k), "5/s"))
			many[k].Match = middleware.Match{Routes: []string{fmt.Sprint("/", k)}}
		}
		p.Watch(newGuard(t, p, nil, many...), nil)
		after(2 * time.Second)
		require.Equal(t, "ok", follow(t, w.events(t)).state)
		require.Contains(t, w.text(), "more policies are not shown: 1024 are the most.")
		leave()
		synctest.Wait()
	})
}
