package response

import (
	"net/http"
	"strings"
	"time"
)

// Join fits the fields of an inner response, as a proxy gets it, to those that a limiter has set on outer, so that adding
// every line of inner to outer tells the truth: both lists of policies; the X fields, and those of drafts 6 and 7, of
// whichever has fewer units left; and where the inner response refuses (429, or 503 with a Retry-After), what it says of
// the refusal and not what passed before. Ours and theirs in different drafts are not mixed: a pass tells ours, a refusal
// theirs.
func Join(outer, inner http.Header, status int) {
	refused := status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable && len(inner[keyRetry]) > 0
	if refused {
		for _, key := range stale {
			delete(outer, key)
		}
	}
	one := func(left string, family ...string) {
		ours, theirs := outer[left], inner[left]
		switch {
		case len(theirs) == 0:
		case len(ours) > 0 && parseLeft(ours[0]) <= parseLeft(theirs[0]):
			drop(inner, family)
		default:
			drop(outer, family)
			for _, key := range family {
				if len(inner[key]) > 1 {
					inner[key] = inner[key][:1]
				}
			}
		}
	}
	one(keyXRemaining, keyXLimit, keyXRemaining, keyXReset)
	one(key06Left, key06Limit, key06Left, key06Reset)
	state, theirs := outer[keyState], inner[keyState]
	switch {
	case len(state) == 0 || len(theirs) == 0:
	case isNamed(state[0]) && isNamed(theirs[0]): // two lists
	case !isNamed(state[0]) && !isNamed(theirs[0]) && left07(theirs[0]) < left07(state[0]):
		drop(outer, []string{keyState, keyPolicy})
	default:
		drop(inner, []string{keyState, keyPolicy})
	}
	if policy, theirs := outer[keyPolicy], inner[keyPolicy]; len(policy) > 0 && len(theirs) > 0 && isNamed(policy[0]) != isNamed(theirs[0]) {
		if refused {
			delete(outer, keyPolicy)
		} else {
			delete(inner, keyPolicy)
		}
	}
	if lines := append(append([]string(nil), outer[keyRetry]...), inner[keyRetry]...); len(lines) > 1 {
		delete(outer, keyRetry)
		if _, line, ok := parseRetry(lines, time.Now); ok {
			inner[keyRetry] = []string{line}
		}
	}
}

func left07(v string) int64 {
	_, text, _ := strings.Cut(v, "remaining=")
	return parseLeft(text)
}

func drop(h http.Header, keys []string) {
	for _, key := range keys {
		delete(h, key)
	}
}
