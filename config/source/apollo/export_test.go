package apollosource

import (
	"net/http"
	"time"
)

// Sign lets tests sign at a moment of their choice.
func (s *Source) Sign(req *http.Request, now time.Time) { s.sign(req, now) }

const (
	Pace    = pace
	Renewal = renewal
)
