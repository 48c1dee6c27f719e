package limiter

import "slices"

// CloneState returns a copy of s that shares nothing with it, so that a test can ask what would happen.
func CloneState(s *State) *State {
	c := *s
	c.Counts = slices.Clone(s.Counts)
	c.Log.ring = slices.Clone(s.Log.ring)
	return &c
}
