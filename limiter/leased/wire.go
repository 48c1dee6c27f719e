package leased

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"math"

	"github.com/spillway-go/spillway/internal/rediscall"
)

//go:embed lease.lua
var source string

var script = rediscall.NewScript(source)

// suffix tells the bucket from those of other limiters. Another layout of the state must get another tag in lease.lua.
const suffix = "lease"

// appendNumbers appends whole numbers as the doubles that Lua counts in.
func appendNumbers(b []byte, numbers ...int64) []byte {
	for _, v := range numbers {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(v)))
	}
	return b
}

// append writes a request as lease.lua reads it.
func (q *request) append(b []byte) []byte {
	b = appendNumbers(b, q.seq, q.ack, q.kept, q.back, q.want, q.due, q.spend, q.step, q.demand, q.dither,
		q.rate, q.period, q.burst, q.tick, q.life)
	return appendNumbers(b, q.costs...)
}

var (
	errReply   = errors.New("the reply of the script is malformed")
	errForeign = errors.New("the key holds something else")
)

const replyNumbers = 8

// parseReply reads what lease.lua returns to a request.
func parseReply(s string, q *request) (r reply, err error) {
	if len(s) != 8*replyNumbers {
		return r, errReply
	}
	var v [replyNumbers]int64
	for i := range v {
		f := math.Float64frombits(binary.LittleEndian.Uint64([]byte(s[8*i : 8*i+8])))
		if f != math.Trunc(f) || f < 0 || f > never {
			return r, errReply
		}
		v[i] = int64(f)
	}
	r = reply{status: v[0], grant: v[1], level: level{v[2], v[3]}, wait: v[4], nodes: v[5], room: v[6], ends: v[7]}
	switch {
	case r.status == statusForeign:
		return reply{}, errForeign
	case r.status > statusForeign, r.grant > q.want, r.whole > q.burst, r.frac >= q.period, r.wait > patience*q.tick:
		return reply{}, errReply
	}
	return r, nil
}
