package main

import (
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An audit that cannot fail is none.
func TestAudit(t *testing.T) {
	sound := func() *result {
		s := newShop()
		s.orders, s.inside.most, s.others.most = []string{"ann"}, places, places-kept
		t := tally{asked: 5, fresh: 1, copies: 1, shared: 1, lesser: 1, tried: 1, done: 1}
		return &result{seen: &seen{tally: t, visitors: []tally{t}}, shop: s, took: time.Second}
	}
	require.NoError(t, sound().audit(true))
	for name, spoil := range map[string]func(*result){
		"number of answers":     func(r *result) { r.asked++ },
		"failed":                func(r *result) { r.failed = 1 },
		"for somebody else":     func(r *result) { r.foreign = 1 },
		"in the books":          func(r *result) { r.shop.orders = nil },
		"checkouts were":        func(r *result) { r.refusedCheckouts = 1 },
		"too old":               func(r *result) { r.old = 1 },
		"inside at once":        func(r *result) { r.shop.inside.most = places + 1 },
		"were no checkouts":     func(r *result) { r.shop.others.most = places - kept + 1 },
		"were whole":            func(r *result) { r.whole = 2*wholeRate + 1 },
		"were lesser":           func(r *result) { r.lesser = 2*lesserRate + 1 },
		"for the service":       func(r *result) { r.shared = 2*sharedRate + 1 },
		"198.18.0.0 had 16 pag": func(r *result) { r.visitors[0].fresh = pageBurst + pageRate },
		"198.18.0.0 had 21 cop": func(r *result) { r.visitors[0].copies = 2*copyRate + 1 },
	} {
		r := sound()
		spoil(r)
		require.ErrorContains(t, r.audit(true), name)
	}
}

// What visitors look at is what the audit goes by.
func TestLook(t *testing.T) {
	begin := time.UnixMilli(100_000)
	for body, want := range map[string]tally{
		"<title>Product 7</title>Hello, ann!<p data-made=\"99000\">":      {},
		"<title>Product 7</title>Hello, bob!<p data-made=\"99000\">":      {foreign: 1},
		"<title>Product 7</title>Hello, stranger!<p data-made=\"99000\">": {foreign: 1},
		"<title>Product 7</title>Hello, ann!<p data-made=\"90000\">":      {old: 1},
		"<title>Product 8</title>Hello, ann!<p data-made=\"99000\">":      {failed: 1},
		"": {failed: 1},
	} {
		v := &visitor{tally: new(tally), user: "ann"}
		v.look(body, 7, begin)
		require.Equal(t, want, *v.tally, body)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"extra"}, {"-nope"}, {"-browsers", "9"}, {"-browsers", "5001"}, {"-for", "1ms"}, {"-for", "2m"}, {"-limits", ""}} {
		require.Error(t, run(t.Context(), args, io.Discard, io.Discard), "%v", args)
	}
}
