package response

import (
	"encoding/base64"
	"net/http"
	"strconv"
	"time"
	"unsafe"

	"github.com/spillway-go/spillway/limiter"
)

// sheet is everything that one response tells.
type sheet struct {
	lines   []line
	refused bool          // an item is violated
	retry   bool          // Retry-After is told: a violated item is not Off
	wait    time.Duration // the longest of the violated
}

// span is a part of the text that all values of a response are cut from; to == 0: no value.
type span struct{ from, to int }

// write renders a sheet. All values of a response are cut from one string and their slices from one array: two
// allocations whatever is told, and values that never change are shared.
func (x *Renderer) write(h http.Header, r *http.Request, now time.Time, s *sheet) {
	told, doX, draft := s.families()
	old := merge{}
	if len(h) > 0 {
		old = x.existing(h, s, now)
		if old.keep {
			return
		}
		if told {
			doX = doX || old.hasX
			if draft == NoDraft {
				draft = old.draft
			}
		}
	}
	if !told && !s.retry {
		return
	}

	var stack [384]byte
	b := stack[:0]
	var state, policy, left, reset, left06, reset06, retry span
	values := 0

	// RateLimit, and which policy the single-policy families describe.
	named := draft.named()
	var bestX, best06 *line
	policies, partitions := 0, false
	var single *Policy
	if named && old.draft.named() {
		b = appendLines(b, h[keyState])
	}
	for i := range s.lines {
		ln := &s.lines[i]
		p := ln.item.Policy
		inX := doX && (ln.set.X || p.plain)
		inDraft := draft != NoDraft && (ln.set.Draft != NoDraft || p.plain)
		if inDraft && (named || p.legacy != nil) {
			policies++
			single = p
			partitions = partitions || len(ln.item.Partition) > 0
		}
		if !ln.known || s.refused && !ln.item.Violated {
			continue
		}
		if inX && ln.better(bestX, s.refused) {
			bestX = ln
		}
		if !inDraft {
			continue
		}
		if named {
			if len(b) > 0 {
				b = append(b, ", "...)
			}
			b = appendState(b, draft, ln)
			state.to = len(b)
		} else if ln.better(best06, s.refused) {
			best06 = ln
		}
	}
	if state.to == 0 {
		b = b[:0] // nothing joins what is there
	}
	if best06 != nil && old.has06 && !s.ours(&old, best06, old.left06) {
		best06 = nil
	}
	if best06 != nil && draft == Draft07 {
		b = appendState07(b, best06)
		state.to = len(b)
	}

	// RateLimit-Policy: constant for one policy, joined for several.
	joins := old.policy != "" && isNamed(old.policy) == named
	shared := policies == 1 && !(named && partitions) && !joins
	if policies > 0 && !shared {
		policy.from = len(b)
		if joins {
			b = appendLines(b, h[keyPolicy])
		}
		for i := range s.lines {
			ln := &s.lines[i]
			p := ln.item.Policy
			if ln.set.Draft == NoDraft && !p.plain || !named && p.legacy == nil {
				continue
			}
			if len(b) > policy.from {
				b = append(b, ", "...)
			}
			if named {
				b = append(b, p.policy[0]...)
				b = appendPartition(b, ln.item.Partition)
			} else {
				b = append(b, p.legacy[0]...)
			}
		}
		policy.to = len(b)
		values++
	}
	if state.to > 0 {
		values++
	}

	if bestX != nil && old.hasX && !s.ours(&old, bestX, old.leftX) {
		bestX = nil
	}
	if bestX != nil {
		left.from = len(b)
		b = strconv.AppendInt(b, bestX.r, 10)
		left.to = len(b)
		reset.from = len(b)
		if x.resetDelta {
			b = strconv.AppendInt(b, bestX.delta(s.refused), 10)
		} else {
			b = strconv.AppendInt(b, ceilEpoch(now, bestX.reset), 10)
		}
		reset.to = len(b)
		values += 2
	}
	if best06 != nil && draft == Draft06 {
		left06.from = len(b)
		b = strconv.AppendInt(b, best06.r, 10)
		left06.to = len(b)
		reset06.from = len(b)
		b = strconv.AppendInt(b, best06.seconds(), 10)
		reset06.to = len(b)
		values += 2
	}
	if s.refused && s.retry && s.wait != limiter.Never && !old.enough {
		retry.from = len(b)
		b, _ = x.appendRetry(b, x.spread(s.wait), now)
		retry.to = len(b)
		values++
	}

	if values > 0 {
		c := newCutter(b, values)
		if state.to > 0 {
			h[keyState] = c.cut(state)
		}
		if policy.to > 0 {
			h[keyPolicy] = c.cut(policy)
		}
		if bestX != nil {
			h[keyXLimit] = bestX.item.Policy.limit
			h[keyXRemaining] = c.cut(left)
			h[keyXReset] = c.cut(reset)
		}
		if left06.to > 0 {
			h[key06Limit] = best06.item.Policy.limit
			h[key06Left] = c.cut(left06)
			h[key06Reset] = c.cut(reset06)
		}
		if retry.to > 0 {
			h[keyRetry] = c.cut(retry)
		}
	}
	if shared {
		if named {
			h[keyPolicy] = single.policy
		} else {
			h[keyPolicy] = single.legacy
		}
	}
	if x.expose && r != nil {
		exposeFields(h, r, draft == Draft06)
	}
}

// families says whether anything can be told at all, and in which families: the union of what the policies ask for.
func (s *sheet) families() (told, doX bool, draft Draft) {
	for i := range s.lines {
		ln := &s.lines[i]
		doX = doX || ln.set.X
		if draft == NoDraft {
			draft = ln.set.Draft
		}
		told = told || !s.refused || ln.item.Violated
	}
	if !told {
		// Only silent policies refuse: telling of the ones that pass would blame them.
		s.lines, doX, draft = nil, false, NoDraft
	}
	return told, doX, draft
}

// cutter hands out parts of one text as header values. Each slice is full, so that an append to it copies.
type cutter struct {
	text   string
	values []string
	n      int
}

// Text and slices of a response are usually small enough to be allocated as one.
type (
	block2 struct {
		values [2]string
		text   [32]byte
	}
	block3 struct {
		values [3]string
		text   [48]byte
	}
	block6 struct {
		values [6]string
		text   [160]byte
	}
)

func newCutter(b []byte, values int) cutter {
	switch {
	case values <= 2 && len(b) <= 32:
		k := new(block2)
		return cutter{text: frozen(k.text[:copy(k.text[:], b)]), values: k.values[:values]}
	case values <= 3 && len(b) <= 48:
		k := new(block3)
		return cutter{text: frozen(k.text[:copy(k.text[:], b)]), values: k.values[:values]}
	case values <= 6 && len(b) <= 160:
		k := new(block6)
		return cutter{text: frozen(k.text[:copy(k.text[:], b)]), values: k.values[:values]}
	}
	return cutter{text: string(b), values: make([]string, values)}
}

// frozen is b as a string without a copy. Nobody may write to b any more: it is called on new memory, once.
func frozen(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func (c *cutter) cut(s span) []string {
	i := c.n
	c.n++
	c.values[i] = c.text[s.from:s.to]
	return c.values[i : i+1 : i+1]
}

// appendState appends a member of RateLimit: "name";r=50;t=30;pk=:…:
func appendState(b []byte, draft Draft, ln *line) []byte {
	p := ln.item.Policy
	if draft == DraftNext {
		b = append(b, p.stateNext...)
	} else {
		b = append(b, p.state...)
	}
	b = strconv.AppendInt(b, ln.r, 10)
	if ln.t >= 0 {
		if draft == DraftNext {
			b = append(b, ";w="...)
		} else {
			b = append(b, ";t="...)
		}
		b = strconv.AppendInt(b, ln.t, 10)
	}
	return appendPartition(b, ln.item.Partition)
}

// appendState07 appends the dictionary of draft 7.
func appendState07(b []byte, ln *line) []byte {
	b = append(b, "limit="...)
	b = strconv.AppendInt(b, ln.item.Policy.quota, 10)
	b = append(b, ", remaining="...)
	b = strconv.AppendInt(b, ln.r, 10)
	b = append(b, ", reset="...)
	return strconv.AppendInt(b, ln.seconds(), 10)
}

func appendPartition(b, pk []byte) []byte {
	if len(pk) == 0 {
		return b
	}
	b = append(b, ";pk=:"...)
	b = base64.StdEncoding.AppendEncode(b, pk[:min(len(pk), maxPartition)])
	return append(b, ':')
}

// seconds is the reset of drafts 6 and 7, which require one: clients spread the units left over it, as over t.
func (ln *line) seconds() int64 {
	if ln.t >= 0 {
		return ln.t
	}
	return ln.delta(ln.item.Violated)
}

// delta is X-RateLimit-Reset as seconds from now. A refusal never says 0, which reads as "at once".
func (ln *line) delta(refused bool) int64 {
	secs := ceilSeconds(ln.reset)
	if refused {
		secs = max(secs, 1)
	}
	return secs
}
