// Package redistest exists because limiters on Redis are tested against real Redis: it starts servers, fail-over groups and
// clusters on private ports, breaks them on request, and leaves no process behind.
package redistest

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const todo = "not yet written"

type Server struct{}

func Start(t testing.TB, args ...string) *Server { panic(todo) }
func Shared(t testing.TB) *Server                { panic(todo) }
func Prefix(t testing.TB) string                 { panic(todo) } // unique in this test process: "TestName:1:"
func (s *Server) Addr() string                   { panic(todo) }
func (s *Server) Port() int                      { panic(todo) }
func (s *Server) PID() int                       { panic(todo) }
func (s *Server) Kill()                          { panic(todo) }
func (s *Server) Pause()                         { panic(todo) }
func (s *Server) Resume()                        { panic(todo) }
func (s *Server) Restart()                       { panic(todo) }
func (s *Server) Client() *redis.Client          { panic(todo) }

type Sentinel struct{}

func StartSentinel(t testing.TB, args ...string) *Sentinel { panic(todo) } // args for the data servers
func (s *Sentinel) MasterName() string                     { panic(todo) }
func (s *Sentinel) Addrs() []string                        { panic(todo) }
func (s *Sentinel) Master() *Server                        { panic(todo) }
func (s *Sentinel) Servers() []*Server                     { panic(todo) }
func (s *Sentinel) Sentinels() []*Server                   { panic(todo) }
func (s *Sentinel) Client() *redis.Client                  { panic(todo) }

type Cluster struct{}

func StartCluster(t testing.TB, args ...string) *Cluster { panic(todo) }
func (c *Cluster) Addrs() []string                       { panic(todo) }
func (c *Cluster) Servers() []*Server                    { panic(todo) }
func (c *Cluster) Client() *redis.ClusterClient          { panic(todo) }
func (c *Cluster) Slot(key string) int                   { panic(todo) }
func (c *Cluster) MasterOf(key string) *Server           { panic(todo) }
func (c *Cluster) OtherMaster(key string) *Server        { panic(todo) } // a master that has not the slot of key
func (c *Cluster) KillMaster(key string) *Server         { panic(todo) } // returns at once; Wait waits for the fail-over
func (c *Cluster) Wait()                                 { panic(todo) } // every slot has a living master, cluster_state:ok
func (c *Cluster) MoveSlot(slot int, to *Server)         { panic(todo) } // BeginMove and Finish
func (c *Cluster) BeginMove(slot int, to *Server) *Move  { panic(todo) }

type Move struct{}

func (m *Move) Keys()   { panic(todo) } // moves the keys there are: every request for the slot is answered with ASK
func (m *Move) Finish() { panic(todo) } // moves the rest, gives the slot, waits until all nodes know

type Proxy struct{}

func StartProxy(t testing.TB, target string) *Proxy { panic(todo) }
func (p *Proxy) Addr() string                       { panic(todo) }
func (p *Proxy) Pass()                              { panic(todo) } // undoes every mode below
func (p *Proxy) Silent()                            { panic(todo) }
func (p *Proxy) DropReply()                         { panic(todo) } // all from now on
func (p *Proxy) DropReplies(n int)                  { panic(todo) } // of the next n requests
func (p *Proxy) Delay(d time.Duration)              { panic(todo) }
func (p *Proxy) Refuse()                            { panic(todo) }
func (p *Proxy) CutAll()                            { panic(todo) }
func (p *Proxy) Requests() int                      { panic(todo) } // forwarded so far, without HELLO, AUTH, CLIENT, SELECT …
