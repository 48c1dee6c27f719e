// Package redisserver exists because benchmarks and commands need Redis servers of their own: on private ports, without
// persistence, alone or as a cluster.
package redisserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// startTimeout is how long servers may take until they answer, as a cluster too.
const startTimeout = 20 * time.Second

// Servers are running redis-server processes.
type Servers struct {
	Addrs []string // one for each master, as host:port
	nodes []*node
}

type node struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the process has ended
	rdb  *redis.Client
	dir  string
	bus  string // port of the cluster bus
}

// Missing reports whether there is no redis-server to start and tests may do without: where the environment says CI=true
// they may not, and [Start] fails.
func Missing() bool {
	_, err := exec.LookPath("redis-server")
	return err != nil && os.Getenv("CI") != "true"
}

// Start runs the given number of masters; more than one form a cluster that shares the slots evenly.
func Start(ctx context.Context, masters int) (*Servers, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	s := &Servers{}
	err := s.start(ctx, masters)
	if err != nil {
		s.Stop()
		return nil, fmt.Errorf("redisserver: %w", err)
	}
	return s, nil
}

func (s *Servers) start(ctx context.Context, masters int) error {
	ports, err := freePorts(2 * masters)
	if err != nil {
		return err
	}
	for i := range masters {
		if err := s.run(ports[2*i], ports[2*i+1], masters > 1); err != nil {
			return err
		}
	}
	for _, n := range s.nodes {
		if err := until(ctx, n, func() error { return n.rdb.Ping(ctx).Err() }); err != nil {
			return err
		}
	}
	if masters > 1 {
		return s.join(ctx)
	}
	return nil
}

// freePorts asks the system for ports that nobody listens on.
func freePorts(n int) (ports []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() //nolint:errcheck // held until all are known, so that none is given out twice
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	return ports, nil
}

func (s *Servers) run(port, bus string, cluster bool) error {
	dir, err := os.MkdirTemp("", "redisserver")
	if err != nil {
		return err
	}
	args := []string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", dir}
	if cluster {
		args = append(args, "--cluster-enabled", "yes", "--cluster-port", bus)
	}
	addr := net.JoinHostPort("127.0.0.1", port)
	n := &node{
		cmd: exec.Command("redis-server", args...), done: make(chan struct{}), dir: dir, bus: bus,
		rdb: redis.NewClient(&redis.Options{Addr: addr, PoolSize: 1, Protocol: 2}),
	}
	if err := n.cmd.Start(); err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	go func() {
		defer close(n.done)
		_ = n.cmd.Wait()
	}()
	s.nodes, s.Addrs = append(s.nodes, n), append(s.Addrs, addr)
	return nil
}

// join makes the nodes one cluster and returns when each of them says so.
func (s *Servers) join(ctx context.Context) error {
	const slots = 16384
	for i, n := range s.nodes {
		first, last := i*slots/len(s.nodes), (i+1)*slots/len(s.nodes)-1
		// Epochs that differ from the start spare the nodes to settle it among themselves.
		err := errors.Join(n.rdb.Do(ctx, "cluster", "set-config-epoch", i+1).Err(),
			n.rdb.ClusterAddSlotsRange(ctx, first, last).Err())
		if host, port, splitErr := net.SplitHostPort(s.Addrs[i]); i > 0 {
			err = errors.Join(err, splitErr, s.nodes[0].rdb.Do(ctx, "cluster", "meet", host, port, n.bus).Err())
		}
		if err != nil {
			return err
		}
	}
	for _, n := range s.nodes {
		err := until(ctx, n, func() error {
			info, err := n.rdb.ClusterInfo(ctx).Result()
			if err == nil && !(strings.Contains(info, "cluster_state:ok") &&
				strings.Contains(info, "cluster_size:"+strconv.Itoa(len(s.nodes)))) {
				err = errors.New("the cluster does not form")
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// until asks f every few milliseconds, until it is content, the time is over or the server has ended.
func until(ctx context.Context, n *node, f func() error) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-n.done:
			return fmt.Errorf("redis-server ended: %v", n.cmd.ProcessState)
		case <-ctx.Done():
			return err
		}
	}
}

// Flush forgets all keys.
func (s *Servers) Flush(ctx context.Context) error {
	for _, n := range s.nodes {
		if err := n.rdb.FlushAll(ctx).Err(); err != nil {
			return err
		}
	}
	return nil
}

// CPU is the CPU time that all servers have used.
func (s *Servers) CPU(ctx context.Context) (time.Duration, error) {
	seconds, err := s.info(ctx, "cpu", "used_cpu_sys", "used_cpu_user")
	return time.Duration(seconds * float64(time.Second)), err
}

// Reads is how often all servers have read from a connection: a trip is one, however many commands it has.
func (s *Servers) Reads(ctx context.Context) (int64, error) {
	n, err := s.info(ctx, "stats", "total_reads_processed")
	return int64(n), err
}

// info is the sum of some fields of INFO over all servers.
func (s *Servers) info(ctx context.Context, section string, fields ...string) (sum float64, err error) {
	found := 0
	for _, n := range s.nodes {
		info, err := n.rdb.Info(ctx, section).Result()
		if err != nil {
			return 0, err
		}
		for line := range strings.SplitSeq(info, "\r\n") {
			k, v, _ := strings.Cut(line, ":")
			if !slices.Contains(fields, k) {
				continue
			}
			x, err := strconv.ParseFloat(v, 64)
			if err != nil {
				return 0, err
			}
			sum += x
			found++
		}
	}
	if found != len(fields)*len(s.nodes) {
		return 0, fmt.Errorf("redisserver: INFO has no %v", fields)
	}
	return sum, nil
}

// Stop ends the servers and returns when they have ended.
func (s *Servers) Stop() {
	for _, n := range s.nodes {
		_ = n.rdb.Close()
		_ = n.cmd.Process.Kill()
		<-n.done
		_ = os.RemoveAll(n.dir)
	}
}
