package redistest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

const (
	slots   = 16384
	masters = 3
)

// Cluster is a Redis Cluster of three masters with a replica each. A replica takes the place of its master about two
// seconds after that stopped answering, as long as the other two masters live.
type Cluster struct {
	t       testing.TB
	servers []*Server
	ids     map[string]*Server
}

// StartCluster returns when every node says that the cluster is ok and the replicas are in step. args are options of all
// nodes. cluster-require-full-coverage is Redis' default, as most users have it: while one slot has no master, requests
// for all slots fail with CLUSTERDOWN once that is noticed. Everything is killed when the test ends.
func StartCluster(t testing.TB, args ...string) *Cluster {
	t.Helper()
	args = append([]string{
		"--cluster-enabled", "yes", "--cluster-node-timeout", "1000",
		"--cluster-replica-validity-factor", "0", // a replica takes over however long its master was away
		"--cluster-allow-replica-migration", "no", // who is whose replica changes by fail-over alone
	}, args...)
	commands := make([][]string, 2*masters)
	for i := range commands {
		commands[i] = data(t, t.TempDir(), args...)
	}
	c := &Cluster{t: t, servers: runAll(t, commands...), ids: map[string]*Server{}}
	if err := c.join(context.Background()); err != nil {
		t.Fatalf("redistest: %v", err)
	}
	c.Wait()
	return c
}

// join makes a cluster of servers that know nothing of each other.
func (c *Cluster) join(ctx context.Context) error {
	ids := make([]string, len(c.servers))
	for i, s := range c.servers {
		id, err := s.admin.Do(ctx, "CLUSTER", "MYID").Text()
		if err != nil {
			return err
		}
		ids[i], c.ids[id] = id, s
		errs := []error{s.admin.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err()}
		if i < masters {
			errs = append(errs, s.admin.ClusterAddSlotsRange(ctx, i*slots/masters, (i+1)*slots/masters-1).Err())
		}
		for _, other := range c.servers[:i] { // each meets each: gossip would take longer
			errs = append(errs, s.admin.ClusterMeet(ctx, "127.0.0.1", strconv.Itoa(other.Port())).Err())
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	for i, s := range c.servers[masters:] {
		// Refused until the replica has met the master.
		if err := poll(func() error { return s.admin.ClusterReplicate(ctx, ids[i]).Err() }); err != nil {
			return err
		}
	}
	return nil
}

// Servers returns all nodes: at first three masters, and then the replica of each in the same order.
func (c *Cluster) Servers() []*Server { return c.servers }

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string { return addrs(c.servers) }

// Client returns a client with the default options. It is closed when the test ends. Such a client asks the nodes who has
// which slot once a minute, and when a node says MOVED. A dead master says nothing, so after a fail-over it may try the
// dead one for a minute: call its ReloadState, or take a client of your own with a short ClusterStateReloadInterval.
func (c *Cluster) Client() *redis.ClusterClient {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	c.t.Cleanup(func() { _ = client.Close() })
	return client
}

// Slot returns the slot of a key.
func (c *Cluster) Slot(key string) int {
	c.t.Helper()
	var slot int64
	until(c.t, "a node", func() (err error) {
		slot, err = c.up()[0].admin.ClusterKeySlot(context.Background(), key).Result()
		return err
	})
	return int(slot)
}

// MasterOf returns the living master that has the slot of key. It waits for one: after a master's death that is its
// replica.
func (c *Cluster) MasterOf(key string) *Server {
	c.t.Helper()
	return c.owner(c.Slot(key))
}

// OtherMaster returns a living master that does not have the slot of key.
func (c *Cluster) OtherMaster(key string) *Server {
	c.t.Helper()
	owner := c.MasterOf(key)
	var other *Server
	until(c.t, "another master", func() error {
		owners := c.owners()
		for _, s := range owners {
			if s != nil && s != owner {
				other = s
				return nil
			}
		}
		return errors.New("there is none")
	})
	return other
}

// KillMaster kills the master that has the slot of key, and returns it at once: nobody has noticed yet. Wait returns when
// its replica has its place. Restart makes it a replica, or, before that, a master that has lost its data.
func (c *Cluster) KillMaster(key string) *Server {
	c.t.Helper()
	s := c.MasterOf(key)
	s.Kill()
	return s
}

// Wait returns when every slot has a master that is up, all nodes that are up agree which and say cluster_state:ok, and
// their replicas are in step.
func (c *Cluster) Wait() {
	c.t.Helper()
	until(c.t, "the cluster", func() error {
		for _, s := range c.up() {
			if err := c.isReady(s); err != nil {
				return err
			}
		}
		owners := c.owners()
		for slot, s := range owners {
			if s == nil {
				return fmt.Errorf("slot %d has no master", slot)
			}
		}
		for _, s := range c.up() {
			if err := c.agrees(s, owners); err != nil {
				return err
			}
		}
		return nil
	})
}

// isReady returns why s is not in step with the cluster.
func (c *Cluster) isReady(s *Server) error {
	ctx := context.Background()
	state, err := s.admin.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	if !strings.Contains(state, "cluster_state:ok") || !strings.Contains(state, fmt.Sprintf("cluster_known_nodes:%d\r", len(c.servers))) {
		return fmt.Errorf("%s says %s", s.Addr(), state)
	}
	role, err := s.admin.Info(ctx, "replication").Result()
	if err == nil && strings.Contains(role, "role:slave") && !strings.Contains(role, "master_link_status:up") {
		err = fmt.Errorf("replica %s: %s", s.Addr(), role)
	}
	return err
}

// agrees returns which slot s sees elsewhere than it is.
func (c *Cluster) agrees(s *Server, owners [slots]*Server) error {
	views, err := c.views(s)
	if err != nil {
		return err
	}
	for _, v := range views {
		for _, slot := range v.slots {
			if !v.failed && owners[slot] != v.server {
				return fmt.Errorf("%s believes that %s has slot %d", s.Addr(), v.server.Addr(), slot)
			}
		}
	}
	return nil
}

// up returns the nodes that are neither killed nor paused.
func (c *Cluster) up() []*Server {
	c.t.Helper()
	var up []*Server
	for _, s := range c.servers {
		if s.p.isUp() {
			up = append(up, s)
		}
	}
	if len(up) == 0 {
		c.t.Fatalf("redistest: no node is up")
	}
	return up
}

// owner waits until a slot has a master that is up.
func (c *Cluster) owner(slot int) *Server {
	c.t.Helper()
	var owner *Server
	until(c.t, "a master", func() error {
		owner = c.owners()[slot]
		if owner == nil {
			return fmt.Errorf("slot %d has none", slot)
		}
		return nil
	})
	return owner
}

// owners returns which master that is up has each slot. If two claim one, it is the one whose epoch is higher.
func (c *Cluster) owners() (owners [slots]*Server) {
	var epochs [slots]int
	for _, s := range c.up() {
		views, err := c.views(s)
		if err != nil {
			continue // ended meanwhile
		}
		for _, v := range views {
			for _, slot := range v.slots {
				if v.server == s && (owners[slot] == nil || v.epoch > epochs[slot]) {
					owners[slot], epochs[slot] = s, v.epoch
				}
			}
		}
	}
	return owners
}

// view is what one node believes of another, or of itself.
type view struct {
	server *Server
	failed bool
	epoch  int
	slots  []int
}

func (c *Cluster) views(s *Server) ([]view, error) {
	text, err := s.admin.ClusterNodes(context.Background()).Result()
	if err != nil {
		return nil, err
	}
	var views []view
	for line := range strings.Lines(text) {
		// id address flags master ping pong epoch link slots…
		fields := strings.Fields(line)
		if len(fields) < 8 || c.ids[fields[0]] == nil {
			continue // not yet known by its name
		}
		v := view{server: c.ids[fields[0]], failed: strings.Contains(fields[2], "fail")}
		if v.epoch, err = strconv.Atoi(fields[6]); err != nil {
			return nil, err
		}
		if !strings.Contains(fields[2], "master") {
			fields = fields[:8]
		}
		for _, list := range fields[8:] {
			if strings.HasPrefix(list, "[") {
				continue // is moving
			}
			first, last, isRange := strings.Cut(list, "-")
			if !isRange {
				last = first
			}
			from, err1 := strconv.Atoi(first)
			to, err2 := strconv.Atoi(last)
			if err := errors.Join(err1, err2); err != nil {
				return nil, err
			}
			for slot := from; slot <= to; slot++ {
				v.slots = append(v.slots, slot)
			}
		}
		views = append(views, v)
	}
	return views, nil
}
