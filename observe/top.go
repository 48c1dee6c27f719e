package observe

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/spillway-go/spillway/limiter"
)

// TopConfig is what [NewTop] takes. Its zero value is usable.
type TopConfig struct {
	// Keys is how many counters each of the two lists has, 16…65536; zero: 256. More counters find smaller keys: one is
	// sure to be listed if more than one in Keys of all that was counted is its own. A counter takes about 250 bytes with a
	// key of common length, and 450 at most.
	Keys int
	// HalfLife is the time in which a count is halved, 1 s…7 days; zero: 5 minutes.
	HalfLife time.Duration
	// NearRatio is the share of its quota that an allowed decision leaves a key at most for the key to be near its limit,
	// above 0 and up to 1; zero: 0.1. −1: no key is, and [Top.Near] lists none.
	NearRatio float64
	// Secret is what keys are hashed with, 16 bytes or more. With the same secret in all processes, and in [LogConfig], a
	// hash means the same client there and in the lines of a [Log]. Empty: a random one for this Top alone.
	Secret []byte
	// Clear lists keys as they are. They often are personal data, such as addresses and names of users: whoever sees the
	// lists sees them, and so does whatever the lists are copied to. Off, lists hold hashes, which [Top.Hash] makes of a
	// key that is already suspected. The keys themselves are in the memory of the process either way.
	Clear bool
}

const (
	minTopKeys     = 16
	maxTopKeys     = 1 << 16
	minTopHalfLife = time.Second
	maxTopHalfLife = 7 * 24 * time.Hour
	// maxTopText is the longest key that is kept as it is, in bytes. A longer one is kept as its hash.
	maxTopText = 256
)

// Top finds the keys that are refused most and those that are near their limits. It is a [limiter.Observer] with a fixed
// number of counters, whatever keys requests come with, and counts fade, halving in HalfLife.
//
// A key is refused when a policy refuses a request on account of it: its quota is spent or smaller than the cost, too many
// of its requests are in flight or waiting, or an adaptive limit is in force. Outages of a store and requests without a key
// do not count. Policies that are tried out (shadow) count as if they were enforced, and are marked.
// A key is near its limit when a decision takes units and leaves at most NearRatio of the quota. Of a bound on requests in
// flight that is the share of places that are still free, so with a bound below 1/NearRatio only a key that has them all,
// and with a bound of one every key. Limits that allow everything and limits that allow nothing have no such share.
//
// With Keys counters, and total the decayed count of all keys of a list together:
//
//   - A key whose true decayed count is above total/Keys has a counter.
//   - Count − Error ≤ true decayed count ≤ Count, but for the rounding of floating-point numbers.
//   - Error is at most total/Keys, and 0 as long as there were no more than Keys keys.
//
// The time of an event counts, and that of the call if it has none. One that is older than the newest event counts as of
// that, so a clock that is set back loses nothing, and one that is set forward ages the counts.
//
// A decision far from the limit costs no more than a look at it. Everything else takes a lock for a moment and allocates
// nothing, but for the texts of keys that are longer than those before. All methods are safe for concurrent use. Make one
// with [NewTop].
type Top struct {
	ratio   float64
	clear   bool
	refused *sketch
	near    *sketch   // nil: off
	hashers sync.Pool // of *topHasher
}

var _ limiter.Observer = (*Top)(nil)

// NewTop returns a Top that has seen nothing, or an error wrapping [limiter.ErrInvalid] that names everything wrong with c.
func NewTop(c TopConfig) (*Top, error) {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("observe: %w: "+format, append([]any{limiter.ErrInvalid}, args...)...))
	}
	if c.Keys != 0 && (c.Keys < minTopKeys || c.Keys > maxTopKeys) {
		bad("Keys %d are outside %d…%d", c.Keys, minTopKeys, maxTopKeys)
	}
	if c.HalfLife != 0 && (c.HalfLife < minTopHalfLife || c.HalfLife > maxTopHalfLife) {
		bad("HalfLife %v is outside 1s…7 days", c.HalfLife)
	}
	if c.NearRatio != -1 && !(c.NearRatio >= 0 && c.NearRatio <= 1) { // NaN is wrong, too
		bad("NearRatio %v is outside 0…1; −1 is off", c.NearRatio)
	}
	if n := len(c.Secret); n > 0 && n < minSecret {
		bad("Secret of %d bytes, want %d or more", n, minSecret)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if c.Keys == 0 {
		c.Keys = 256
	}
	if c.HalfLife == 0 {
		c.HalfLife = 5 * time.Minute
	}
	if c.NearRatio == 0 {
		c.NearRatio = 0.1
	}
	secret := slices.Clone(c.Secret)
	if len(secret) == 0 {
		secret = make([]byte, sha256.Size)
		_, _ = rand.Read(secret) // it never fails
	}
	t := &Top{ratio: c.NearRatio, clear: c.Clear, refused: newSketch(c.Keys, c.HalfLife)}
	if c.NearRatio > 0 {
		t.near = newSketch(c.Keys, c.HalfLife)
	}
	t.hashers.New = func() any { return &topHasher{mac: hmac.New(sha256.New, secret)} }
	return t, nil
}

// KeepsNoKey returns t: it copies what it keeps of a key.
func (t *Top) KeepsNoKey() limiter.Observer { return t }

// Observe counts decisions and refusals, and passes over everything else.
func (t *Top) Observe(e limiter.Event) {
	switch {
	case e.Kind == limiter.EventDecision && e.Outcome == limiter.OutcomeAllowed:
		if t.near != nil && e.N > 0 && isNear(&e.Decision, t.ratio) {
			t.count(t.near, &e, "")
		}
	case e.Kind == limiter.EventDecision && e.Outcome == limiter.OutcomeShadowBlocked:
		t.count(t.refused, &e, "")
	case e.Kind == limiter.EventRejected:
		if reason := blame(e.Reason); reason != "" {
			t.count(t.refused, &e, reason)
		}
	}
}

// isNear is false without a quota, and with one that cannot be spent.
func isNear(d *limiter.Decision, ratio float64) bool {
	quota := d.Limit.Quota()
	return quota > 0 && quota < math.MaxInt && float64(d.Remaining) <= ratio*float64(quota)
}

// blame returns the constant that equals reason if that is the doing of the key, and otherwise "".
func blame(reason string) string {
	switch reason {
	case limiter.ReasonQuota:
		return limiter.ReasonQuota
	case limiter.ReasonNever:
		return limiter.ReasonNever
	case limiter.ReasonInFlight:
		return limiter.ReasonInFlight
	case limiter.ReasonAdaptive:
		return limiter.ReasonAdaptive
	case limiter.ReasonWaiting:
		return limiter.ReasonWaiting
	case limiter.ReasonShed:
		return limiter.ReasonShed
	case limiter.ReasonQueue:
		return limiter.ReasonQueue
	}
	return ""
}

func (t *Top) count(s *sketch, e *limiter.Event, reason string) {
	if e.Key.ID == "" {
		return
	}
	x := seen{
		policy: e.Policy, at: e.Time, reason: reason, shadow: e.Kind == limiter.EventDecision && s == t.refused,
		remaining: e.Decision.Remaining, quota: e.Decision.Limit.Quota(),
	}
	if x.at.IsZero() {
		x.at = time.Now()
	}
	if len(e.Key.ID) <= maxTopText {
		s.add(e.Key.ID, &x)
		return
	}
	x.hashed = true
	h := t.hashers.Get().(*topHasher)
	s.add(string(h.hash(e.Key.ID)), &x) // so short a text needs no heap
	t.hashers.Put(h)
}

// TopKey is one key of a list.
type TopKey struct {
	Policy string `json:"policy"`
	// Key is the identity as it stands in a store's key, or its hash. See [TopConfig].Clear.
	Key string `json:"key"`
	// Count is the decayed number of refusals, or of decisions near the limit, and Error how much of it may be another's.
	Count float64 `json:"count"`
	Error float64 `json:"error"`
	// Shadow means that the policy is tried out: the latest of the refusals was none.
	Shadow bool `json:"shadow,omitempty"`
	// Reason is why the latest refusal was one, such as [limiter.ReasonQuota]; empty near the limit, and with Shadow.
	Reason string `json:"reason,omitempty"`
	// Last is the time of the latest.
	Last time.Time `json:"last"`
	// Remaining and Quota are the units that were left then, and that there are at most, or the requests in flight that
	// there was room for and the bound; 0 where the event did not say.
	Remaining int `json:"remaining"`
	Quota     int `json:"quota"`
}

// Refused returns up to n keys that are refused most, the highest Count first. Counts below 1/128 are left out: a single
// refusal fades after seven half-lives. It takes a moment that grows with Keys, and holds up no request for that long.
func (t *Top) Refused(n int) []TopKey { return t.list(t.refused, n) }

// Near is [Top.Refused] of the keys that are near their limits.
func (t *Top) Near(n int) []TopKey { return t.list(t.near, n) }

func (t *Top) list(s *sketch, n int) []TopKey {
	if s == nil {
		return []TopKey{}
	}
	top := s.top(n)
	out := make([]TopKey, len(top))
	for i, c := range top {
		if !t.clear && !c.hashed {
			c.key = t.Hash(c.key)
		}
		if c.quota == math.MaxInt {
			c.remaining, c.quota = 0, 0
		}
		out[i] = TopKey{
			Policy: c.policy, Key: c.key, Count: c.count, Error: c.err, Shadow: c.shadow, Reason: c.reason,
			Last:      c.at.Round(0), // what is printed and compared is the wall clock
			Remaining: c.remaining, Quota: c.quota,
		}
	}
	return out
}

// Hash returns what lists hold for a key, given as its identity alone, such as "ip=203.0.113.7" (the ID of a
// [limiter.Key]): $ and 22 characters, the first 16 bytes of an HMAC-SHA-256 under the Secret in base64url. A [Log] with
// the same Secret has the same hashes. The policy is not part of it, so a caller is known again in the lines of other
// policies. With Clear, only keys of more than 256 bytes are listed so.
func (t *Top) Hash(key string) string {
	h := t.hashers.Get().(*topHasher)
	defer t.hashers.Put(h)
	return string(h.hash(key))
}

// topHasher hashes keys without allocating.
type topHasher struct {
	mac   hash.Hash
	piece [512]byte
	sum   [sha256.Size]byte
	text  [1 + (hashBytes*8+5)/6]byte
}

// hash returns the hash of key, which is overwritten by the next one.
func (h *topHasher) hash(key string) []byte {
	h.mac.Reset()
	for len(key) > 0 {
		n := copy(h.piece[:], key)
		h.mac.Write(h.piece[:n])
		key = key[n:]
	}
	h.text[0] = '$'
	base64.RawURLEncoding.Encode(h.text[1:], h.mac.Sum(h.sum[:0])[:hashBytes])
	return h.text[:]
}
