package live_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/middleware"
	"github.com/spillway-go/spillway/observe/live"
)

// decided is a decision about a key.
func decided(key string, at time.Time) limiter.Event {
	return limiter.Event{
		Kind: limiter.EventDecision, Policy: "p", Key: limiter.Key{Space: "p", ID: key}, N: 1, Time: at,
		Decision: limiter.Decision{Allowed: true, Limit: limiter.PerSecond(100), Remaining: 50, Mark: at.UnixNano(), Via: limiter.ViaStore},
	}
}

func TestObserveAllocatesNothing(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates")
	}
	p := newPage(t, live.Config{})
	o, release := p.Bind("p")
	defer release()
	var events []limiter.Event
	now := time.Now()
	for k := range 64 {
		events = append(events, decided("ip="+strconv.Itoa(k), now))
	}
	refused := limiter.Event{Kind: limiter.EventRejected, Policy: "p", Reason: limiter.ReasonQuota}
	called := limiter.Event{Kind: limiter.EventStore, Name: "redis", Duration: time.Millisecond}
	all := func() {
		for k := range events {
			o.Observe(events[k])
		}
		o.Observe(refused)
		p.Observe(called)
	}
	all() // makes the meters and the store
	require.Zero(t, testing.AllocsPerRun(100, all))
}

// With many policies and keys, and viewers, memory stays what the package comment says.
func TestMemoryIsBounded(t *testing.T) {
	if raceDetector {
		t.Skip("measures memory")
	}
	const policies, keys = 500, 100_000
	p := newPage(t, live.Config{})
	var many []middleware.Policy
	for k := range policies {
		many = append(many, policy(fmt.Sprint("policy-", k), "100/s"))
		many[k].Match = middleware.Match{Routes: []string{fmt.Sprint("/", k)}}
	}
	g := newGuard(t, p, nil, many...)
	p.Watch(g, nil)
	observers := make([]limiter.Observer, policies)
	for k := range observers {
		o, release := p.Bind(fmt.Sprint("policy-", k))
		defer release()
		observers[k] = o
	}
	texts := make([]string, keys)
	for k := range texts {
		texts[k] = "ip=" + strconv.Itoa(k)
	}
	before := heap()
	now := time.Now()
	for k, key := range texts {
		for j := range 3 {
			observers[(k*7+j*131)%policies].Observe(decided(key, now))
		}
	}
	grown := int64(heap()) - int64(before)
	runtime.KeepAlive(texts)
	t.Logf("%d KB for %d policies and %d keys", grown/1024, policies, keys)
	require.Less(t, grown, int64(policies*(8*2200+6000)))
	for k := range 2000 { // and no more than so many policies
		_, release := p.Bind(fmt.Sprint("more-", k))
		defer release()
	}
	require.Less(t, int64(heap())-int64(before), int64(1100*(8*2200+6000)))
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Everything at once, for the race detector.
func TestConcurrentUse(t *testing.T) {
	p := newPage(t, live.Config{MaxViewers: 4})
	g := newGuard(t, p, nil, policy("a", "50/s"), policy("b", "100/s fixed_window"))
	p.Watch(g, func() live.Status { return live.Status{Hash: "x"} })
	var asking, looking sync.WaitGroup
	var stop atomic.Bool
	for range 4 {
		asking.Go(func() {
			for k := range 300 {
				send(g, "/", 3)
				p.Observe(limiter.Event{Kind: limiter.EventStore, Name: strconv.Itoa(k % 3), Duration: time.Microsecond})
				p.Observe(limiter.Event{Kind: limiter.EventMemory, Name: strconv.Itoa(k % 3), Keys: 3})
				_, release := p.Bind("c")
				release()
			}
		})
		looking.Go(func() {
			for !stop.Load() {
				w := newWire()
				r := local(http.MethodGet, "/events")
				r.Header.Set("Last-Event-Id", "x")
				p.ServeHTTP(w, r) // until Close
			}
		})
	}
	asking.Wait()
	stop.Store(true)
	p.Close()
	looking.Wait()
}

func BenchmarkObserve(b *testing.B) {
	p, err := live.New(live.Config{})
	require.NoError(b, err)
	defer p.Close()
	for _, c := range []struct {
		name string
		keys int
	}{{"one key", 1}, {"many keys", 10_000}} {
		b.Run(c.name, func(b *testing.B) {
			o, release := p.Bind("p")
			defer release()
			now := time.Now()
			events := make([]limiter.Event, c.keys)
			for k := range events {
				events[k] = decided("ip="+strconv.Itoa(k), now)
				events[k].Decision.Via = limiter.ViaMemory
			}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for k := 0; pb.Next(); k++ {
					o.Observe(events[k%len(events)])
				}
			})
		})
	}
}
