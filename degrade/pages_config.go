package degrade

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

var (
	storable  = []int{http.StatusOK, http.StatusNonAuthoritativeInfo, http.StatusMovedPermanently, http.StatusNotFound, http.StatusGone}
	cacheName = regexp.MustCompile(`^[A-Za-z*][A-Za-z0-9!#$%&'*+.^_|~:/` + "`" + `-]{0,63}$`)
)

const (
	smallestMaxBytes = 64 << 10
	largestMaxBytes  = 1 << 40
	largestMaxPage   = 64 << 20
)

// Validate returns nil, or an error wrapping [limiter.ErrInvalid] for everything wrong with the settings.
func (p *Pages) Validate() error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("degrade: Pages: "+format+": %w", append(args, limiter.ErrInvalid)...))
	}
	c := &p.cfg
	maxBytes := c.MaxBytes
	switch {
	case c.Store != nil && c.MaxBytes != 0:
		wrong("MaxBytes bounds the own memory, and there is a Store")
	case c.MaxBytes == 0:
		maxBytes = defaultMaxBytes
	case c.MaxBytes < smallestMaxBytes || c.MaxBytes > largestMaxBytes:
		wrong("MaxBytes %d: want %d to %d", c.MaxBytes, smallestMaxBytes, largestMaxBytes)
	}
	if c.MaxPage < 0 || c.MaxPage > largestMaxPage {
		wrong("MaxPage %d: want 1 to %d, or 0", c.MaxPage, largestMaxPage)
	} else if c.Store == nil && c.MaxBytes >= 0 && int64(p.maxPage) > maxBytes/2 {
		wrong("MaxPage %d: more than half of MaxBytes %d", p.maxPage, maxBytes)
	}
	for name, d := range map[string]time.Duration{"MaxStale": c.MaxStale, "MaxStaleIfError": c.MaxStaleIfError} {
		if d < -1 || d > longestStale {
			wrong("%s %v: want up to %v, or -1 for none", name, d, longestStale)
		}
	}
	for _, status := range c.Statuses {
		if !slices.Contains(storable, status) {
			wrong("Statuses: %d: want some of %v", status, storable)
		}
	}
	for name, list := range map[string][]string{"Credentials": c.Credentials, "IgnoreCookies": c.IgnoreCookies} {
		for _, s := range list {
			if !isToken(s) {
				wrong("%s: %q is not a name", name, s)
			}
		}
	}
	if slices.Contains(c.Query, "") {
		wrong("Query: a name is empty")
	}
	if c.PartitionName != "" && c.Partition == nil {
		wrong("PartitionName %q without a Partition", c.PartitionName)
	}
	if c.Name != "" && !cacheName.MatchString(c.Name) {
		wrong("Name %q: want a token of up to 64 characters that begins with a letter", c.Name)
	}
	return errors.Join(errs...)
}
