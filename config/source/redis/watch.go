package redissource

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-go/spillway/internal/poll"
)

const (
	defaultBeat     = 5 * time.Second
	defaultPatience = 30 * time.Second

	firstPause   = 100 * time.Millisecond
	longestPause = 2 * time.Second
	steady       = 10 * time.Second // a subscription that lasts as long begins again without a pause to speak of
)

// Watch subscribes to the channel, and calls changed for each message, whenever it has subscribed, and as often as
// [Config.Poll] says. It subscribes again by itself when the connection is lost, as when Redis restarts or another server
// becomes the master, and gives up after half a minute in vain. A subscription that does not come about at first is an
// error at once.
//
// It ends with ctx at once, save while it asks a Cluster whose servers do not answer, which is over within the time-out.
func (s *Source) Watch(ctx context.Context, changed func()) error {
	again := poll.New(s.poll)
	defer again.Stop()
	var lost time.Time
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		began := time.Now()
		up, err := s.listen(ctx, again, changed)
		if !up && ctx.Err() == nil {
			s.suspect(ctx)
		}
		now := time.Now()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case up:
			lost = now
			if now.Sub(began) >= steady {
				pause = firstPause
			}
		case lost.IsZero() || now.Sub(lost) >= s.patience:
			return fmt.Errorf("redissource: channel %q: %w", s.channel, err)
		}
		if err := s.rest(ctx, pause/2+rand.N(pause), again, changed); err != nil {
			return err
		}
	}
}

// rest waits for d, in which the document may change as well.
func (s *Source) rest(ctx context.Context, d time.Duration, again *poll.Poll, changed func()) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			return nil
		case <-again.Due():
			again.Next()
			changed()
		}
	}
}

var (
	errSilent  = errors.New("the server is silent")
	errNoNode  = errors.New("no server is known to have the key")
	errTooLong = errors.New("no subscription within the time-out")
)

// listen is one connection from its beginning to its end. up: there was a subscription.
func (s *Source) listen(ctx context.Context, again *poll.Poll, changed func()) (up bool, err error) {
	node, err := s.server(ctx)
	if err != nil {
		return false, err
	}
	// A socket's deadline, which go-redis would take from ctx, can be over a moment before the context is.
	ctx, cancel := undated(ctx)
	rdb := redis.NewClient(s.options(ctx, node))
	sub := rdb.Subscribe(ctx) // without a channel it does nothing yet
	come := make(chan any)
	var receiver sync.WaitGroup
	receiver.Go(func() { receive(ctx, sub, s.channel, come) })
	defer func() {
		cancel()
		receiver.Wait()
		_ = sub.Close()
		_ = rdb.Close()
	}()

	late := time.NewTimer(s.timeout)
	defer late.Stop()
	beat := time.NewTicker(s.beat)
	defer beat.Stop()
	for asked := false; ; {
		select {
		case <-ctx.Done(): // the caller asks his own
			return up, ctx.Err()
		case what := <-come:
			asked = false
			switch what := what.(type) {
			case error:
				return up, what
			case *redis.Subscription:
				up = true
				late.Stop()
				changed()
			case *redis.Message:
				changed()
			}
		case <-late.C:
			return up, fmt.Errorf("%w of %v", errTooLong, s.timeout)
		case <-again.Due():
			again.Next()
			changed()
		case <-beat.C:
			if asked {
				return up, fmt.Errorf("%w for %v", errSilent, 2*s.beat)
			}
			if asked = up; asked {
				if err := sub.Ping(ctx); err != nil {
					return up, err
				}
			}
		}
	}
}

// undated is a context that ends with ctx, also at its deadline, and has none.
func undated(ctx context.Context) (context.Context, context.CancelFunc) {
	out, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	return out, func() {
		stop()
		cancel()
	}
}

// receive subscribes, and hands over what comes until an error, or until ctx ends.
func receive(ctx context.Context, sub *redis.PubSub, channel string, come chan<- any) {
	err := sub.Subscribe(ctx, channel)
	for {
		var what any
		if err == nil {
			what, err = sub.Receive(ctx)
		}
		if err != nil {
			what = err
		}
		select {
		case come <- what:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}
