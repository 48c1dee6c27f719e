package main

import (
	"fmt"
	"log/slog"

	"github.com/spillway-go/spillway"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter/adaptive"
	"github.com/spillway-go/spillway/middleware"
)

// What a service may have in front of it.
const (
	guardNone     = "none"
	guardFixed    = "fixed"
	guardAdaptive = "adaptive"
)

var guards = []string{guardNone, guardFixed, guardAdaptive}

// The bounds on requests in flight. fixed is what the processor bears: about twice what keeps it busy.
const (
	fixed = 10
	least = 2
	most  = 200
)

// guardFor makes the guard of a service, nil for none. The controller of an adaptive one is the service's to close.
func guardFor(s *service, name, law string, source func() (float64, bool)) (*middleware.Guard, error) {
	policy := spillway.Policy{Name: "service", Key: keyfunc.Global()}
	switch name {
	case guardNone:
		return nil, nil
	case guardFixed:
		policy.InFlight = fixed
	case guardAdaptive:
		makeLaw, err := adaptive.LawNamed(law)
		if err != nil {
			return nil, err
		}
		s.held, err = adaptive.New(adaptive.Config{
			Name: policy.Name, Law: makeLaw, Min: least, Max: most, Fixed: fixed,
			CPUSource: source, Observer: s, Logger: slog.New(slog.DiscardHandler), // the report has it
		})
		if err != nil {
			return nil, err
		}
		policy.Adaptive = s.held
	default:
		return nil, fmt.Errorf("guard %q is none of %v", name, guards)
	}
	return spillway.New(spillway.Config{Policies: []spillway.Policy{policy}})
}
