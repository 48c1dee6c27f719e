package peer

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Node is a way to decide about one key in each process of a fleet.
type Node struct {
	Name string
	Note string
	// New makes one process's part. Calls go over rdb, and the function ends what was started.
	New func(rdb *redis.Client, p Profile, number int) (Decider, func(), error)
}

// Nodes returns them in the order of measurement.
func Nodes() []Node {
	return []Node{
		{
			Name: "spillway-leased", Note: "leases of what is asked for",
			New: func(rdb *redis.Client, p Profile, _ int) (Decider, func(), error) { return leasedDecider(rdb, p) },
		},
		{
			Name: "spillway", Note: "asks Redis, and remembers denials",
			New: func(rdb *redis.Client, p Profile, _ int) (Decider, func(), error) { return centralDecider(rdb, p) },
		},
		{
			Name: "hash", Note: "each adds what it used to one hash every 100 ms, and may use an equal part of the rest",
			New: newHashNode,
		},
	}
}

// hashNode is the design of limits for a cluster that is found most often: HINCRBY of what was used, HGETALL, and the rest of the
// second's limit divided by the nodes there are. The hash begins anew each second; it was written for one that never does, and
// would stop when a second's limit is used.
type hashNode struct {
	rdb   *redis.Client
	field string
	rate  float64

	mu    sync.Mutex
	quota float64
	used  int64

	cancel context.CancelFunc
	done   chan struct{}
}

const hashSync = 100 * time.Millisecond

func newHashNode(rdb *redis.Client, p Profile, number int) (Decider, func(), error) {
	if p.Period != time.Second {
		return nil, nil, errors.New("the hash is of a second")
	}
	ctx, cancel := context.WithCancel(context.Background())
	h := &hashNode{rdb: rdb, field: strconv.Itoa(number), rate: float64(p.Rate), cancel: cancel, done: make(chan struct{})}
	go h.run(ctx)
	return h, func() {
		cancel()
		<-h.done
	}, nil
}

// Allow implements [Decider] for one key.
func (h *hashNode) Allow(context.Context, string) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.quota < 1 {
		return false, nil
	}
	h.quota--
	h.used++
	return true, nil
}

func (h *hashNode) run(ctx context.Context) {
	defer close(h.done)
	tick := time.NewTicker(hashSync)
	defer tick.Stop()
	for {
		h.sync(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (h *hashNode) sync(ctx context.Context) {
	h.mu.Lock()
	used := h.used
	h.used = 0
	h.mu.Unlock()
	key := fmt.Sprintf("bench:hash:%d", time.Now().Unix())
	pipe := h.rdb.Pipeline()
	pipe.HIncrBy(ctx, key, h.field, used)
	all := pipe.HGetAll(ctx, key)
	pipe.Expire(ctx, key, 5*time.Second)
	if _, err := pipe.Exec(ctx); err != nil {
		return // the quota of before is what there is
	}
	rest := h.rate
	for _, v := range all.Val() {
		n, _ := strconv.ParseInt(v, 10, 64)
		rest -= float64(n)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.quota = max(0, rest/float64(max(1, len(all.Val()))))
}
