package redislimit

import (
	"testing"

	"github.com/spillway-go/spillway/internal/rediscall"
	"github.com/spillway-go/spillway/limiter"
)

// Source is the script.
var Source = source

// Surround runs the script between two pieces of Lua until the test ends.
func Surround(t testing.TB, before, after string) {
	plain := script
	script = rediscall.NewScript(before + source + after)
	t.Cleanup(func() { script = plain })
}

// StateOf reads a state as the script stored it under some limit of l's algorithm.
func StateOf(l limiter.Limit, stored string) (limiter.State, error) {
	r, err := newRule(l)
	if err != nil {
		return limiter.State{}, err
	}
	return r.state(stored)
}
