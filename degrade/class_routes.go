package degrade

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// ClassOfRoutes returns the Class of [ShedConfig] for requests that are told apart by their routes: [http.ServeMux]
// patterns, matched as those of [ReadOnlyConfig]. Of several classes that match the highest counts; other requests are of
// class other. A path that routers read in different ways, and whose route is not known, is of the lowest class of all, so
// that nobody gains by how a path is spelled. The error, wrapping [limiter.ErrInvalid], joins everything that is wrong.
func ClassOfRoutes(routes map[Class][]string, other Class) (func(*keyfunc.Request) Class, error) {
	var errs []error
	var matchers [len(classNames)]readRoutes
	for class := range classNames {
		for _, pattern := range routes[Class(class)] {
			x, err := newReadRoute(pattern)
			if err != nil {
				errs = append(errs, fmt.Errorf("degrade: Shed: %w: %w", err, limiter.ErrInvalid))
				continue
			}
			matchers[class] = append(matchers[class], x)
		}
	}
	for class := range routes {
		if int(class) >= len(classNames) {
			errs = append(errs, fmt.Errorf("degrade: Shed: there is no %v: %w", class, limiter.ErrInvalid))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	lowest := other
	for class := range routes {
		lowest = min(lowest, class)
	}
	return func(r *keyfunc.Request) Class {
		for class := len(matchers) - 1; class >= 0; class-- {
			if matchers[class].match(r) {
				return Class(class)
			}
		}
		if r.Route() == "" && (r.URL.RawPath != "" || path.Clean(r.URL.Path) != strings.TrimSuffix(r.URL.Path, "/") && r.URL.Path != "/") {
			return lowest
		}
		return other
	}, nil
}
