package middleware

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/response"
)

// settings are what a Config says beside its policies, checked. They are immutable, and change with the policies.
type settings struct {
	Config
	renderer   *response.Renderer
	trust      *keyfunc.ClientIP
	maxWaiting int64
	// degradedField names the mode of degraded answers, where it is not the usual one.
	degradedField string
}

// newSettings returns settings even with an error, so that what is wrong with the policies can be told as well.
func newSettings(cfg Config) (*settings, error) {
	s := &settings{Config: cfg}
	var errs []error
	var err error
	if s.renderer, err = response.New(cfg.Response); err != nil {
		errs = append(errs, fmt.Errorf("middleware: Response: %w", err))
		s.renderer, _ = response.New(response.Options{})
	}
	if name := cfg.Response.DegradedField; name != "off" {
		s.degradedField = http.CanonicalHeaderKey(name)
	}
	if s.trust, err = keyfunc.NewClientIP(cfg.ClientIP); err != nil {
		errs = append(errs, fmt.Errorf("middleware: ClientIP: %w", err))
	}
	switch s.maxWaiting = int64(cfg.MaxWaiting); {
	case cfg.MaxWaiting == 0:
		s.maxWaiting = defaultMaxWaiting
	case cfg.MaxWaiting == -1:
		s.maxWaiting = 0
	case cfg.MaxWaiting < 0:
		errs = append(errs, fmt.Errorf("middleware: MaxWaiting %d is negative; −1 means none", cfg.MaxWaiting))
	}
	var m matcher
	if _, err := m.add(&cfg.Exempt, true); err != nil {
		errs = append(errs, fmt.Errorf("middleware: Exempt: %w", err))
		s.Exempt = Match{}
	}
	return s, errors.Join(errs...)
}
