package response

import (
	"strconv"
	"sync/atomic"
	"time"
)

// Many responses say the same numbers: how many units of a small quota are left, a second not far off, a short wait. Their
// header values are made once and shared, as the constant ones are; what is rare is made for one response.

// value is a header value of one line, in one allocation. The line is full, so that an append to it copies.
type value struct {
	line [1]string
	text [16]byte
}

func newValue(n int64) *value {
	x := new(value)
	x.render(n)
	return x
}

func (x *value) render(n int64) { x.line[0] = frozen(strconv.AppendInt(x.text[:0], n, 10)) }

// number is a value that is shared.
type number struct {
	value
	n int64
}

// near is how many numbers a table remembers: the seconds of an hour fit.
const near = 4096

// numbers are the last numbers asked for, one for each remainder. Where what is asked for lies within near of each other
// nothing is displaced, and after its first use a number costs no allocation. At most 230 KB a table, for as long as the process.
type numbers [near]atomic.Pointer[number]

func (t *numbers) line(n int64) []string {
	slot := &t[uint64(n)%near]
	x := slot.Load()
	if x == nil || x.n != n {
		x = &number{n: n}
		x.render(n)
		slot.Store(x)
	}
	return x.line[:]
}

var counts, instants numbers

// countLine is a number of bytes or seconds as a header value.
func countLine(n int64) []string { return leftLine(n, 0) }

// leftLine is what is left of a quota as a header value. Most often that is little of a small one, or nearly all of a large
// one.
func leftLine(n, quota int64) []string {
	if uint64(n) < near || uint64(quota-n) < near {
		return counts.line(n)
	}
	return newValue(n).line[:]
}

// instantLine is a second since the epoch as a header value. Instants far off, of quotas that take long to come back, are as
// many as there are clients: they would only displace the others.
func instantLine(now time.Time, at int64) []string {
	if uint64(at-now.Unix()) < near {
		return instants.line(at)
	}
	return newValue(at).line[:]
}
