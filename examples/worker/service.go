package main

import (
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// call is a request as the service sees it.
type call struct {
	at          time.Time
	worker, job string
	refused     bool
}

// service is somebody else's. It refuses what is too much in any interval of the allowed length.
type service struct {
	url    string
	server *http.Server

	mu    sync.Mutex
	calls []call
}

func newService() (*service, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &service{url: "http://" + l.Addr().String()}
	s.server = &http.Server{Handler: s, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = s.server.Serve(l) }() // until close
	return s, nil
}

func (s *service) close() { _ = s.server.Close() }

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	job, err := io.ReadAll(io.LimitReader(r.Body, 1<<10))
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if s.take(call{at: time.Now(), worker: r.Header.Get("X-Worker"), job: string(job)}) {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Retry-After", "1")
	w.WriteHeader(http.StatusTooManyRequests)
}

func (s *service) take(c call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	recent := 0
	for _, old := range slices.Backward(s.calls) {
		if c.at.Sub(old.at) >= allowed.Period {
			break
		}
		if !old.refused {
			recent++
		}
	}
	c.refused = recent >= allowed.Rate
	s.calls = append(s.calls, c)
	return !c.refused
}

func (s *service) seen() []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}
