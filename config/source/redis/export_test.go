package redissource

import "time"

// SetBeat makes a lost connection noticed sooner.
func (s *Source) SetBeat(d time.Duration) { s.beat = d }

// SetPatience sets how long a lost subscription is tried for again.
func (s *Source) SetPatience(d time.Duration) { s.patience = d }
