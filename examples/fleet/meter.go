package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/fallback"
	"github.com/spillway-go/spillway/limiter/leased"
)

// leases is a fleet of ten, of which one gets a third of all requests. Leases are worth it where a process has many for a key.
var leases = plan{
	limit: limiter.PerSecond(1000), calm: 200, busy: 2000,
	servers: []server{
		{"one", 28}, {"two", 8}, {"three", 8}, {"four", 8}, {"five", 8}, {"six", 8}, {"seven", 8}, {"eight", 8}, {"nine", 8}, {"ten", 8},
	},
}

// meter is told of every request that passes, by all processes, with the instant. It knows nothing of how they were decided.
type meter struct {
	listener net.Listener
	running  sync.WaitGroup
	mu       sync.Mutex
	passed   []int64 // Unix nanoseconds, as they came
}

func newMeter() (*meter, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &meter{listener: l}
	m.running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			m.running.Go(func() { m.listen(conn) })
		}
	})
	return m, nil
}

func (m *meter) address() string { return m.listener.Addr().String() }

// listen reads instants until the process ends, and says back that it has each.
func (m *meter) listen(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	for {
		var at [8]byte
		if _, err := io.ReadFull(conn, at[:]); err != nil {
			return
		}
		m.mu.Lock()
		m.passed = append(m.passed, int64(binary.BigEndian.Uint64(at[:])))
		m.mu.Unlock()
		if _, err := conn.Write(at[:1]); err != nil {
			return
		}
	}
}

// close waits for processes, which have ended before.
func (m *meter) close() {
	_ = m.listener.Close()
	m.running.Wait()
}

// since returns the instants from one on, in order.
func (m *meter) since(from time.Time) []int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	later := slices.DeleteFunc(slices.Clone(m.passed), func(at int64) bool { return at < from.UnixNano() })
	slices.Sort(later)
	return later
}

// excess is by how much the fullest interval is above what a bucket would let pass: 0 if none is.
func excess(passed []int64, rate, burst float64) (worst float64) {
	level, before := burst, int64(0)
	for _, at := range passed {
		level = min(burst, level+rate*float64(at-before)/1e9) - 1
		before = at
		worst = max(worst, -level)
	}
	return worst
}

// report prints what the meter has seen beside what was promised, and what the leases did.
func (m *meter) report(
	ctx context.Context, out *log.Logger, s stage, client *http.Client, fleet []*process, counts []count, began time.Time,
) (err error) {
	passed, all := m.since(began), sum(counts)
	rate, burst := float64(leases.limit.Rate), float64(leases.limit.Quota())
	if n := float64(len(fleet)); all.byShare > 0 {
		share := fallback.Share(leases.limit, len(fleet))
		rate, burst = rate+n*float64(share.Rate)/share.Period.Seconds(), burst+n*float64(share.Quota())
	}
	var did leased.Stats
	late, bound := 0.0, 0.0
	for _, p := range fleet {
		was, is := p.stats, leased.Stats{}
		_, body, err := get(ctx, client, p.url+"/leases")
		if err = errors.Join(err, json.Unmarshal([]byte(body), &is)); err != nil {
			return err
		}
		p.stats = is
		did.Local += is.Local - was.Local
		did.Calls += is.Calls - was.Calls
		did.Granted += is.Granted - was.Granted
		did.Stranded += is.Stranded - was.Stranded
		did.Slowest = max(did.Slowest, is.Slowest)
		late, bound = late+is.Late, max(bound, is.LateBound)
	}
	// Each process serves one request of ours at a time, so one more may be between its decision and its instant.
	may := min(late, bound) + float64(len(fleet))
	over := excess(passed, rate, burst)
	out.Printf("  The meter has seen %d pass. In the fullest interval it was %.1f more than %.0f + %.0f/s · t; %.1f was possible.",
		len(passed), over, burst, rate, may)
	out.Printf("  %d decisions took %d calls; %d needed none. %d units were leased or granted, %d were lost. The slowest call took %.1f ms.",
		all.sent, did.Calls, did.Local, did.Granted, did.Stranded, did.Slowest.Seconds()*1000)
	if over > may {
		err = fmt.Errorf("%s: %.1f more passed in some interval than the limit and replies on their way allow", s.title, over)
	}
	if len(passed) != all.admitted {
		err = errors.Join(err, fmt.Errorf("%s: %d requests were let through, and the meter has seen %d", s.title, all.admitted, len(passed)))
	}
	return err
}

// stamps tell the meter when requests pass. The zero pointer tells nobody.
type stamps struct {
	mu   sync.Mutex
	conn net.Conn
}

func newStamps(address string) (*stamps, error) {
	conn, err := net.Dial("tcp", address)
	return &stamps{conn: conn}, err
}

// note tells that a request passes now, and returns when the meter knows.
func (s *stamps) note() {
	if s == nil {
		return
	}
	var at [8]byte
	binary.BigEndian.PutUint64(at[:], uint64(time.Now().UnixNano()))
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.conn.Write(at[:]); err == nil {
		_, _ = io.ReadFull(s.conn, at[:1])
	}
}

func (s *stamps) close() { _ = s.conn.Close() }
