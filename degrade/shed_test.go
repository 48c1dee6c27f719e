package degrade_test

import (
	"fmt"
	"hash/fnv"
	"math"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

// level is where Shed puts a request: the level of the reserve it asks for.
func level(t *testing.T, h degrade.Handler, s *degrade.Subject) int {
	t.Helper()
	hint := h.(degrade.Gate).Before(s)
	require.Equal(t, degrade.Hint{Reserve: hint.Reserve}, hint, "it only reserves")
	if hint.Reserve == 0 {
		return int(degrade.CriticalPlus) * degrade.PlacesPerClass
	}
	for k := range degrade.ShedLevels {
		if degrade.ShedReserve(k, 0.2) == hint.Reserve {
			return k
		}
	}
	t.Fatalf("%v is the reserve of no level", hint.Reserve)
	return 0
}

func byHeader(name string) keyfunc.Func { return keyfunc.Header(name) }

func TestShedLevels(t *testing.T) {
	is := func(c degrade.Class) func(*keyfunc.Request) degrade.Class {
		return func(*keyfunc.Request) degrade.Class { return c }
	}
	const n = degrade.PlacesPerClass
	place := func(id string) int { return degrade.PlaceOf(id, time.Time{}, 0) }
	require.NotZero(t, place("all=-"))
	require.NotZero(t, place("x_user=ann"))
	for name, c := range map[string]struct {
		cfg  degrade.ShedConfig
		want int
	}{
		"zero":           {degrade.ShedConfig{}, 2*n + place("all=-")},
		"lowest":         {degrade.ShedConfig{Class: is(degrade.Sheddable)}, place("all=-")},
		"second":         {degrade.ShedConfig{Class: is(degrade.SheddablePlus)}, n + place("all=-")},
		"highest":        {degrade.ShedConfig{Class: is(degrade.CriticalPlus)}, 3 * n},
		"no class":       {degrade.ShedConfig{Class: is(4)}, place("all=-")},
		"panics":         {degrade.ShedConfig{Class: func(*keyfunc.Request) degrade.Class { panic("boom") }}, place("all=-")},
		"by user":        {degrade.ShedConfig{By: byHeader("X-User")}, 2*n + place("x_user=ann")},
		"by nobody":      {degrade.ShedConfig{By: byHeader("X-Other")}, 2 * n},
		"by panics":      {degrade.ShedConfig{By: func(*keyfunc.Request) (keyfunc.Key, error) { panic("boom") }}, 2 * n},
		"by skips":       {degrade.ShedConfig{By: func(*keyfunc.Request) (keyfunc.Key, error) { return keyfunc.Key{}, keyfunc.ErrSkip }}, 2 * n},
		"by zero":        {degrade.ShedConfig{By: func(*keyfunc.Request) (keyfunc.Key, error) { return keyfunc.Key{}, nil }}, 2 * n},
		"not by highest": {degrade.ShedConfig{Class: is(degrade.CriticalPlus), By: func(*keyfunc.Request) (keyfunc.Key, error) { panic("boom") }}, 3 * n},
	} {
		t.Run(name, func(t *testing.T) {
			h := degrade.Shed(c.cfg)
			s := &degrade.Subject{Request: guarded(t, "GET", "/", "", "X-User", "ann"), Key: limiter.Key{Space: "p", ID: "all=-"}}
			require.Equal(t, c.want, level(t, h, s))
			h.(degrade.Gate).After(s, degrade.Verdict{Refused: true})
			require.Equal(t, c.want, level(t, h, s))
			require.Equal(t, degrade.ModeShed, degrade.ModeOf(h))
			require.Equal(t, degrade.Skip, h.Degrade(httptest.NewRecorder(), s.Request.Request, new(degrade.Denial)))
		})
	}
}

// Other keys of the request stand as they were: By makes one more in the same buffer.
func TestShedLeavesKeysAlone(t *testing.T) {
	r := guarded(t, "GET", "/", "", "X-User", "ann", "X-Tenant", "acme")
	before, err := r.Resolve(byHeader("X-Tenant"))
	require.NoError(t, err)
	h := degrade.Shed(degrade.ShedConfig{By: byHeader("X-User")})
	level(t, h, &degrade.Subject{Request: r})
	require.Equal(t, "x_tenant=acme", before.In(r.Freeze()))
}

// A panic is told once, as soon as there is somebody to tell.
func TestShedReportsPanics(t *testing.T) {
	h := degrade.Shed(degrade.ShedConfig{Class: func(*keyfunc.Request) degrade.Class { panic("boom") }})
	var seen []any
	d := &degrade.Denial{Contain: func(p any) bool { seen = append(seen, p); return true }}
	ask(h, d)
	require.Empty(t, seen)
	level(t, h, &degrade.Subject{Request: guarded(t, "GET", "/", "")})
	ask(h, new(degrade.Denial))
	ask(h, d)
	ask(h, d)
	require.Equal(t, []any{"boom"}, seen)
}

func TestShedValidate(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  degrade.ShedConfig
		want []string
	}{
		"zero":        {degrade.ShedConfig{}, nil},
		"fine":        {degrade.ShedConfig{Keep: 0.999, Rotate: time.Hour, By: keyfunc.IP()}, nil},
		"keep 1":      {degrade.ShedConfig{Keep: 1}, []string{"Keep: 1"}},
		"keep −1":     {degrade.ShedConfig{Keep: -1}, []string{"Keep: -1"}},
		"keep NaN":    {degrade.ShedConfig{Keep: math.NaN()}, []string{"Keep: NaN"}},
		"rotate":      {degrade.ShedConfig{Rotate: -time.Hour}, []string{"Rotate: -1h"}},
		"all at once": {degrade.ShedConfig{Keep: 2, Rotate: 1, By: keyfunc.Header("no field")}, []string{"Keep: 2", "Rotate: 1ns", "By: keyfunc: Header"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := degrade.Validate(degrade.Shed(c.cfg))
			if c.want == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, limiter.ErrInvalid)
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
}

// The hash is the standard one, finished: other processes and later releases shed the same callers.
func TestShedHashIsFixed(t *testing.T) {
	for _, id := range []string{"", "a", "ip=192.0.2.1", "tenant=acme|user=ann"} {
		std := fnv.New64a()
		_, _ = std.Write([]byte("shed\x00" + id))
		require.Equal(t, degrade.Spread(std.Sum64()), degrade.HashIdentity(id))
	}
	require.Equal(t, []int{85, 41}, []int{degrade.PlaceOf("user=ann", latchBegin, 0), degrade.PlaceOf("user=ann", latchBegin, time.Hour)})
}

// Callers of any form are spread evenly: of 125 places with 400 callers each, none has less than half or more than double.
// The square deviation stays within what chance gives once in ten million times.
func TestShedSpread(t *testing.T) {
	const each = 400
	for form, text := range map[string]string{
		"numbers": "user=%d", "addresses": "ip=10.0.%d.7", "hex": "tenant=%08x", "long": "tenant=a-rather-long-name-of-a-tenant|user=%d",
	} {
		for _, rotate := range []time.Duration{0, time.Hour} {
			var n [degrade.PlacesPerClass]int
			for k := range each * len(n) {
				place := degrade.PlaceOf(fmt.Sprintf(text, k), latchBegin, rotate)
				require.True(t, place >= 0 && place < len(n))
				n[place]++
			}
			chi := 0.0
			for _, x := range n {
				require.True(t, x > each/2 && x < each*2)
				chi += float64((x-each)*(x-each)) / each
			}
			// 124 degrees of freedom: mean 124, deviation √248.
			require.InDelta(t, 124, chi, 5.5*math.Sqrt(248), "%s, rotated each %v", form, rotate)
		}
	}
}

// A caller keeps his place for the time of Rotate and has another then; at any instant only a few move.
func TestShedRotate(t *testing.T) {
	const callers = 2000
	places := func(at time.Duration) (p [callers]int) {
		for k := range p {
			p[k] = degrade.PlaceOf(fmt.Sprintf("user=%d", k), latchBegin.Add(at), time.Hour)
		}
		return p
	}
	moves, last, before := [callers]int{}, places(0), places(0)
	for minute := 1; minute <= 60; minute++ {
		now := places(time.Duration(minute) * time.Minute)
		moved := 0
		for k := range now {
			if now[k] != last[k] {
				moves[k]++
				moved++
			}
		}
		require.Less(t, moved, callers/60*2, "minute %d", minute)
		last = now
	}
	same := 0
	for k := range moves {
		require.LessOrEqual(t, moves[k], 1)
		if last[k] == before[k] {
			same++
		}
	}
	require.Less(t, same, callers/125*3, "as many as chance puts back")
	require.Equal(t, degrade.PlaceOf("user=7", latchBegin, 0), degrade.PlaceOf("user=7", latchBegin.Add(time.Hour), 0))
	for _, at := range []time.Time{{}, time.Unix(-1, 0), time.Unix(0, math.MaxInt64)} {
		place := degrade.PlaceOf("user=7", at, time.Hour)
		require.True(t, place >= 0 && place < degrade.PlacesPerClass)
	}
}

// A gate is asked for every request.
func TestShedAllocations(t *testing.T) {
	class := func(r *keyfunc.Request) degrade.Class {
		if r.Method == "GET" {
			return degrade.Critical
		}
		return degrade.Sheddable
	}
	for name, cfg := range map[string]degrade.ShedConfig{
		"zero": {}, "class": {Class: class, Rotate: time.Hour}, "by": {Class: class, By: byHeader("X-User")},
	} {
		gate := degrade.Shed(cfg).(degrade.Gate)
		req := guarded(t, "GET", "/", "", "X-User", "ann")
		s := &degrade.Subject{Request: req, Key: limiter.Key{ID: "all=-"}, Now: latchBegin}
		require.Zero(t, testing.AllocsPerRun(100, func() {
			req.Reset(req.Request, nil, nil)
			gate.Before(s)
			gate.After(s, degrade.Verdict{})
		}), name)
	}
}
