package client

import (
	"net/http"
	"sync"
)

// endpoint is what net/http keeps connections for, and so what speaks one protocol. A key may be of several, as that of all one sends or
// of a host by http and https. A request for another protocol has connections of its own: its Upgrade is a matter of HTTP/1.
type endpoint struct {
	scheme, host string
	upgrade      bool
}

func endpointOf(req *http.Request) endpoint {
	return endpoint{scheme: req.URL.Scheme, host: hostOf(req.URL), upgrade: upgrades(req)}
}

// spoken remembers which endpoints have last spoken HTTP/1 with net/http. Where it is not known, nothing may be done to a request that
// is seen on the wire of HTTP/2. It forgets those that were not used since most others were.
type spoken struct {
	most       int
	mu         sync.Mutex
	young, old map[endpoint]bool
}

func (s *spoken) http1(e endpoint) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	is, known := s.young[e]
	if !known {
		if is, known = s.old[e]; known {
			s.keep(e, is)
		}
	}
	return is
}

func (s *spoken) note(e endpoint, http1 bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep(e, http1)
}

func (s *spoken) keep(e endpoint, http1 bool) {
	if _, known := s.young[e]; !known && len(s.young) >= s.most {
		s.young, s.old = nil, s.young
	}
	if s.young == nil {
		s.young = map[endpoint]bool{}
	}
	s.young[e] = http1
}
