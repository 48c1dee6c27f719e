package main

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// provider is somebody else's service. It refuses what is too much, in any interval of the contract's length, and tells
// nothing but that: no Retry-After, no fields.
type provider struct {
	url    string
	server *http.Server

	mu         sync.Mutex
	log        []time.Time // of what was accepted in the last period
	accepted   int
	violations int
}

func newProvider() (*provider, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &provider{url: "http://" + l.Addr().String()}
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = p.server.Serve(l) }() // until close
	return p, nil
}

func (p *provider) close() { _ = p.server.Close() }

func (p *provider) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if !p.admit(time.Now()) {
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	w.WriteHeader(http.StatusAccepted)
}

func (p *provider) admit(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.log) > 0 && now.Sub(p.log[0]) >= contract.Period {
		p.log = p.log[1:]
	}
	if len(p.log) >= contract.Rate {
		p.violations++
		return false
	}
	p.log = append(p.log, now)
	p.accepted++
	return true
}

func (p *provider) count() result {
	p.mu.Lock()
	defer p.mu.Unlock()
	return result{accepted: p.accepted, violations: p.violations}
}
