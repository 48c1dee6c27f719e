package redistest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

const (
	masterName = "spillway"
	quorum     = 2
)

// Sentinel is a master with two replicas and three sentinels that watch it: they give its place to a replica half a
// second after it stopped answering, with a quorum of two.
type Sentinel struct {
	t         testing.TB
	servers   []*Server
	sentinels []*Server
}

// StartSentinel returns when the replicas have the master's data and the sentinels know everybody. args are options of
// the three servers that hold data. Everything is killed when the test ends.
func StartSentinel(t testing.TB, args ...string) *Sentinel {
	t.Helper()
	commands := make([][]string, 3)
	for i := range commands {
		commands[i] = data(t, t.TempDir(), args...)
	}
	s := &Sentinel{t: t, servers: runAll(t, commands...)}
	ctx, master := context.Background(), s.servers[0]
	for _, replica := range s.servers[1:] {
		if err := replica.admin.ReplicaOf(ctx, "127.0.0.1", fmt.Sprint(master.Port())).Err(); err != nil {
			t.Fatalf("redistest: %v", err)
		}
	}
	until(t, "the replicas", func() error {
		// The sentinels ask it once for its replicas, and then not for seconds.
		info, err := master.admin.InfoMap(ctx, "replication").Result()
		if err == nil && strings.Count(fmt.Sprint(info), "state=online") != len(s.servers)-1 {
			err = fmt.Errorf("%v", info)
		}
		return err
	})
	for i := range commands {
		commands[i] = sentinel(t, master.Port())
	}
	s.sentinels = runAll(t, commands...)
	for _, one := range s.sentinels {
		// Milliseconds between greetings: as a rule it takes the sentinels seconds to find each other.
		if err := one.admin.Do(ctx, "SENTINEL", "DEBUG", "PUBLISH-PERIOD", 100).Err(); err != nil {
			t.Fatalf("redistest: %v", err)
		}
	}
	until(t, "the sentinels", func() error {
		for _, one := range s.sentinels {
			info := redis.NewMapStringStringCmd(ctx, "SENTINEL", "MASTER", masterName)
			if err := one.admin.Process(ctx, info); err != nil {
				return err
			}
			m := info.Val()
			if m["num-slaves"] != "2" || m["num-other-sentinels"] != "2" || m["flags"] != "master" {
				return fmt.Errorf("%v", m)
			}
		}
		return nil
	})
	return s
}

// sentinel returns the command of a sentinel that watches the master at port.
func sentinel(t testing.TB, port int) []string {
	t.Helper()
	folder := t.TempDir()
	config := filepath.Join(folder, "sentinel.conf") // it keeps there what it learns
	err := os.WriteFile(config, fmt.Appendf(nil, `bind 127.0.0.1
dir %[1]s
sentinel monitor %[2]s 127.0.0.1 %[3]d %[4]d
sentinel down-after-milliseconds %[2]s 500
sentinel failover-timeout %[2]s 3000
`, folder, masterName, port, quorum), 0o600)
	if err != nil {
		t.Fatalf("redistest: %v", err)
	}
	return []string{binary(t), config, "--sentinel"}
}

// MasterName returns the name by which sentinels know the master.
func (s *Sentinel) MasterName() string { return masterName }

// Addrs returns the addresses of the sentinels.
func (s *Sentinel) Addrs() []string { return addrs(s.sentinels) }

// Servers returns the servers that hold data, the first master first.
func (s *Sentinel) Servers() []*Server { return s.servers }

// Sentinels returns the sentinels as servers, to be killed.
func (s *Sentinel) Sentinels() []*Server { return s.sentinels }

// Master returns the server that the living sentinels call the master: the old one, until a replica has its place. They
// learn of it one after the other; who has the newest configuration is right.
func (s *Sentinel) Master() *Server {
	s.t.Helper()
	var master *Server
	until(s.t, "a sentinel", func() error {
		newest := int64(-1)
		for _, one := range s.sentinels {
			if !one.p.isUp() {
				continue
			}
			ctx, info := context.Background(), redis.NewMapStringStringCmd(context.Background(), "SENTINEL", "MASTER", masterName)
			addr := redis.NewStringSliceCmd(ctx, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", masterName) // the new one earlier than in info
			if err := errors.Join(one.admin.Process(ctx, info), one.admin.Process(ctx, addr)); err != nil {
				return err
			}
			epoch, err := strconv.ParseInt(info.Val()["config-epoch"], 10, 64)
			if err != nil {
				return err
			}
			if epoch <= newest {
				continue
			}
			i := slices.IndexFunc(s.servers, func(server *Server) bool { return server.Addr() == strings.Join(addr.Val(), ":") })
			if i < 0 {
				return fmt.Errorf("unknown master %v", addr.Val())
			}
			newest, master = epoch, s.servers[i]
		}
		if newest < 0 {
			return stop{errors.New("none is up")}
		}
		return nil
	})
	return master
}

// Client returns a client with the default options that follows the master. It is closed when the test ends.
func (s *Sentinel) Client() *redis.Client {
	c := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: masterName, SentinelAddrs: s.Addrs()})
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

func addrs(servers []*Server) []string {
	var out []string
	for _, s := range servers {
		out = append(out, s.Addr())
	}
	return out
}
