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
	x.line[0] = digits(&x.text, n)
	return x
}

// digits writes n to the end of new memory, and returns it as a string without a copy.
func digits(text *[16]byte, n int64) string {
	if n < 0 || n > maxInteger { // which is no number of ours, but for instants before 1970
		return strconv.FormatInt(n, 10)
	}
	const pairs = "00010203040506070809101112131415161718192021222324252627282930313233343536373839404142434445464748495051525354555657585960616263646566676869707172737475767778798081828384858687888990919293949596979899"
	u, i := uint64(n), len(text)
	for u >= 100 {
		k := u % 100 * 2
		u /= 100
		i -= 2
		text[i], text[i+1] = pairs[k], pairs[k+1]
	}
	i -= 2
	text[i], text[i+1] = pairs[2*u], pairs[2*u+1]
	if u < 10 {
		i++
	}
	return frozen(text[i:])
}

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
		x.line[0] = digits(&x.text, n)
		slot.Store(x)
	}
	return x.line[:]
}

var counts, instants numbers

// countLine is a number of bytes or seconds as a header value.
func countLine(n int64) []string { return leftLine(n, 0) }

// leftLine is what is left of a quota as a header value.
func leftLine(n, quota int64) []string {
	if often(n, quota) {
		return counts.line(n)
	}
	return newValue(n).line[:]
}

// often reports whether a number is said by many. Most often little is left of a small quota, or nearly all of a large one.
func often(n, quota int64) bool { return uint64(n) < near || uint64(quota-n) < near }

// instantLine is a second since the epoch as a header value.
func instantLine(now time.Time, at int64) []string {
	if soon(now, at) {
		return instants.line(at)
	}
	return newValue(at).line[:]
}

// soon reports whether an instant is said by many. Those far off, of quotas that take long to come back, are as many as there
// are clients: they would only displace the others.
func soon(now time.Time, at int64) bool { return uint64(at-now.Unix()) < near }

// lines are both at once: of a large quota that takes long to come back they are in one allocation.
func lines(now time.Time, n, quota, at int64) (left, reset []string) {
	if often(n, quota) || soon(now, at) {
		return leftLine(n, quota), instantLine(now, at)
	}
	x := new(struct {
		line [2]string
		text [2][16]byte
	})
	x.line[0], x.line[1] = digits(&x.text[0], n), digits(&x.text[1], at)
	return x.line[0:1:1], x.line[1:2:2]
}
