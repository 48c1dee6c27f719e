package etcdsource

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/spillway-go/spillway/internal/poll"
)

// Watch watches the key, and calls changed when the watch has begun and with its events. The client brings a watch back by
// itself on another connection or member; where what it has missed is compacted, Watch begins anew. It returns an error when
// etcd does not answer within the time-out, does not let the key be read or has no leader, and when the watch leaves out a
// change.
func (s *Source) Watch(ctx context.Context, changed func()) error {
	again := poll.New(s.poll)
	defer again.Stop()
	for {
		err := s.watch(ctx, again, changed)
		if ctx.Err() != nil || !errors.Is(err, rpctypes.ErrCompacted) {
			return s.fault(ctx, err)
		}
	}
}

var (
	errMissed = errors.New("the watch does not tell of changes")
	errEnded  = errors.New("the watch has ended")
	errLate   = errors.New("no watch within the time-out")
)

// watch is one watch from its beginning to its end.
func (s *Source) watch(ctx context.Context, again *poll.Poll, changed func()) error {
	// This first: it says whether the key may be read, and renews what the user is known by, which a stream would not.
	told, revision, err := s.look(ctx)
	if err != nil {
		return err
	}
	within, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	late := time.AfterFunc(s.timeout, cancel)
	events := s.client.Watch(within, s.key, clientv3.WithRev(revision+1), clientv3.WithCreatedNotify())
	defer s.drain(events, cancel)
	if !late.Stop() {
		return fmt.Errorf("%w of %v", errLate, s.timeout)
	}
	behind, before := false, told // at the last look
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case resp, ok := <-events:
			if !ok {
				return errEnded
			}
			if err := resp.Err(); err != nil {
				return err
			}
			for _, e := range resp.Events {
				told = version(e.Kv)
			}
			if resp.Created || len(resp.Events) > 0 {
				changed()
			}
		case <-again.Due():
			again.Next()
			now, _, err := s.look(ctx)
			if err != nil {
				return err
			}
			if now == told {
				behind, before = false, told
				continue
			}
			// The watch may be on its way with it, but not from one look to the next.
			if behind && told == before {
				return errMissed
			}
			behind, before = true, told
			changed()
		}
	}
}

// look returns the version of the key and the revision of the store.
func (s *Source) look(ctx context.Context) (key, store int64, err error) {
	resp, err := s.get(ctx, clientv3.WithKeysOnly())
	if err != nil {
		return 0, 0, err
	}
	if len(resp.Kvs) > 0 {
		key = version(resp.Kvs[0])
	}
	return key, resp.Header.Revision, nil
}

// drain ends a watch, and waits until the client has let go of it.
func (s *Source) drain(events clientv3.WatchChan, cancel context.CancelFunc) {
	cancel()
	late := time.NewTimer(s.timeout)
	defer late.Stop()
	for {
		select {
		case _, ok := <-events:
			if !ok {
				return
			}
		case <-late.C:
			return
		}
	}
}
