package nacossource_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/config"
	nacossource "github.com/spillway-go/spillway/config/source/nacos"
)

// bubble runs a test in a bubble with a network, a fake at nacos:9848, and a source of it.
func bubble(t *testing.T, test func(t *testing.T, n *network, f *fake, src *nacossource.Source)) {
	synctest.Test(t, func(t *testing.T) {
		n, f := &network{hosts: map[string]*listener{}}, newFake()
		n.serve(t, "nacos", f)
		test(t, n, f, n.source(t, "nacos"))
	})
}

func TestWatchIsNotified(t *testing.T) {
	bubble(t, func(t *testing.T, _ *network, f *fake, src *nacossource.Source) {
		w := watch(t, src)
		time.Sleep(time.Second)
		require.Equal(t, 1, w.calls(), "it listens")
		for range 3 {
			f.set(document)
			synctest.Wait()
			require.Equal(t, 1, w.calls())
			time.Sleep(time.Minute)
			require.Zero(t, w.calls(), "an answered notification is not sent again")
		}
		f.set(nil)
		synctest.Wait()
		require.Equal(t, 1, w.calls())
		require.Equal(t, []string{"ConfigChangeNotifyResponse", "ConfigChangeNotifyResponse", "ConfigChangeNotifyResponse", "ConfigChangeNotifyResponse"}, f.acks)
		require.InDelta(t, float64(3*time.Minute/nacossource.Beat), float64(f.count("HealthCheckRequest")), 2)
		require.Equal(t, 1, f.count("ConfigBatchListenRequest"))
		require.Zero(t, f.count("ConfigQueryRequest"))
	})
}

func TestWatchListensAnew(t *testing.T) {
	bubble(t, func(t *testing.T, _ *network, f *fake, src *nacossource.Source) {
		w := watch(t, src)
		time.Sleep(3*nacossource.Renewal + time.Second)
		require.Equal(t, 4, w.calls())
		require.Equal(t, 4, f.count("ConfigBatchListenRequest"))
	})
}

func TestServerAsksWhetherAClientIsThere(t *testing.T) {
	bubble(t, func(t *testing.T, _ *network, f *fake, src *nacossource.Source) {
		w := watch(t, src)
		time.Sleep(time.Second)
		f.each(func(c *fakeConn) {
			f.push(c, "ClientDetectionRequest", map[string]any{})
			f.push(c, "SetupAckRequest", map[string]any{})
		})
		synctest.Wait()
		require.ElementsMatch(t, []string{"ClientDetectionResponse", "SetupAckResponse"}, f.acks)
		require.Equal(t, 1, w.calls())
	})
}

func TestWatchIsLost(t *testing.T) {
	for name, row := range map[string]struct {
		make func(n *network, f *fake, stop func())
		want string
	}{
		"the server goes away": {func(_ *network, _ *fake, stop func()) { stop() }, "nacos:9848: the connection has ended"},
		"the server ends it":   {func(_ *network, f *fake, _ func()) { f.each((*fakeConn).close) }, "nacos:9848: the connection has ended"},
		"the server sends it elsewhere": {func(_ *network, f *fake, _ func()) {
			f.each(func(c *fakeConn) {
				f.push(c, "ConnectResetRequest", map[string]any{"serverIp": "192.0.2.9", "serverPort": "8848"})
			})
		}, "nacos:9848: the server takes no connection, or sends its clients elsewhere"},
		"the server does not know it": {func(_ *network, f *fake, _ func()) {
			f.answers(func(string) (string, map[string]any) {
				return failure("ErrorResponse", 301, "Connection is unregistered.")
			})
		}, "nacos:9848: code 301"},
		"the server is silent": {func(_ *network, f *fake, _ func()) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.silent = true
		}, "DeadlineExceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, f := &network{hosts: map[string]*listener{}}, newFake()
				stop := n.serve(t, "nacos", f)
				w := watch(t, n.source(t, "nacos"))
				time.Sleep(time.Second)
				began := time.Now()
				row.make(n, f, stop)
				err := <-w.result
				require.ErrorContains(t, err, "nacossource: public/DEFAULT_GROUP/limits.yaml: ")
				require.ErrorContains(t, err, row.want)
				require.NotErrorIs(t, err, context.Canceled)
				require.LessOrEqual(t, time.Since(began), nacossource.Beat+5*time.Second)
				time.Sleep(time.Minute)
			})
		})
	}
}

// The end of a context is its own, however close it is to what gRPC makes of it.
func TestDeadlinesAreTold(t *testing.T) {
	f := newFake()
	src := newSource(t, serve(t, f))
	for range 50 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond)
		require.Equal(t, context.DeadlineExceeded, src.Watch(ctx, func() {}))
		cancel()
		f.mu.Lock()
		f.silent = true
		f.mu.Unlock()
		ctx, cancel = context.WithTimeout(t.Context(), 2*time.Millisecond)
		_, err := src.Load(ctx)
		require.Equal(t, context.DeadlineExceeded, err)
		cancel()
		f.mu.Lock()
		f.silent = false
		f.mu.Unlock()
	}
}

// Where a server is over its limit, or sends its clients elsewhere, while it is asked for a document.
func TestLoadIsSentElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T, _ *network, f *fake, src *nacossource.Source) {
		f.setupDelay = time.Hour
		result := make(chan error, 1)
		go func() { _, err := src.Load(t.Context()); result <- err }()
		time.Sleep(time.Second)
		f.mu.Lock()
		for _, c := range f.conns {
			go f.push(c, "ConnectResetRequest", map[string]any{})
		}
		f.mu.Unlock()
		require.ErrorContains(t, <-result, "sends its clients elsewhere")
		time.Sleep(2 * time.Hour)
	})
}

func TestLoadIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f := &network{hosts: map[string]*listener{}}, newFake()
		n.silence(t, "mute")
		n.silence(t, "dumb")
		src := n.source(t, "mute", "dumb")
		began := time.Now()
		_, err := src.Load(t.Context())
		require.ErrorContains(t, err, "mute:9848: ")
		require.ErrorContains(t, err, "dumb:9848: ")
		require.NotErrorIs(t, err, config.ErrIncomplete)
		require.Equal(t, 10*time.Second, time.Since(began))

		began = time.Now()
		require.ErrorContains(t, src.Watch(t.Context(), func() { t.Error("called") }), "no answer within 5s")
		require.Equal(t, 10*time.Second, time.Since(began))

		// One that never takes note of the connection.
		n.serve(t, "slow", f)
		f.setupDelay = time.Hour
		began = time.Now()
		_, err = n.source(t, "slow").Load(t.Context())
		require.ErrorContains(t, err, "301")
		require.LessOrEqual(t, time.Since(began), 5*time.Second)
		time.Sleep(2 * time.Hour)
	})
}

func TestWatchGoesOnWithTheNextServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, f, g := &network{hosts: map[string]*listener{}}, newFake(), newFake()
		stop := n.serve(t, "one", f)
		src := n.source(t, "one", "two")
		w := watch(t, src)
		time.Sleep(time.Second)
		require.Equal(t, 1, w.calls())
		n.serve(t, "two", g)
		stop()
		require.Error(t, <-w.result)
		w = watch(t, src) // as whoever follows does
		time.Sleep(time.Second)
		require.Equal(t, 1, w.calls())
		g.set(document)
		synctest.Wait()
		require.Equal(t, 1, w.calls())
	})
}

func TestEndsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, n *network, f *fake, src *nacossource.Source) {
		w := watch(t, src)
		time.Sleep(time.Second)
		began := time.Now()
		w.cancel()
		require.Equal(t, context.Canceled, <-w.result)
		require.Zero(t, time.Since(began))
		synctest.Wait()
		require.Zero(t, f.open(), "no connection is left")

		// While a connection is being made.
		n.silence(t, "mute")
		for _, call := range []func(ctx context.Context) error{
			func(ctx context.Context) error { _, err := n.source(t, "mute").Load(ctx); return err },
			func(ctx context.Context) error { return n.source(t, "mute").Watch(ctx, func() { t.Error("called") }) },
		} {
			began = time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			require.Equal(t, context.DeadlineExceeded, call(ctx))
			cancel()
			require.Equal(t, time.Second, time.Since(began))
		}
	})
}
