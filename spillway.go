package spillway

import (
	"github.com/spillway-go/spillway/limiter/memory"
	"github.com/spillway-go/spillway/middleware"
)

// Config is what [New] needs; see [middleware.Config].
type Config = middleware.Config

// Policy is one named rule of a guard; see [middleware.Policy].
type Policy = middleware.Policy

// Match says which requests are meant; see [middleware.Match].
type Match = middleware.Match

// Guard holds policies and serves requests by them; see [middleware.Guard].
type Guard = middleware.Guard

// New returns the guard of cfg, on a memory store of its own unless cfg.Limiter is set. The error names everything that
// is wrong. It starts nothing that would have to be stopped.
func New(cfg Config) (*Guard, error) {
	if cfg.Limiter == nil {
		m, err := memory.New(memory.Config{Observer: cfg.Observer})
		if err != nil {
			return nil, err
		}
		cfg.Limiter = m
	}
	return middleware.New(cfg)
}

// Must returns v, or panics with err: for guards and stores that are made at start-up.
func Must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
