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
		s := newShop(2)
		s.left["bag"], s.ledger, s.asked["bag"] = 1, []purchase{{"ann", "bag"}}, 1
		return &result{tally: &tally{requests: 2, bought: 1, waiting: 1}, shop: s, stock: 2, took: time.Second}
	}
	require.NoError(t, sound().audit(true))
	for name, spoil := range map[string]func(*result){
		"were not there":    func(r *result) { r.stock = 0 },
		"users have":        func(r *result) { r.bought = 2 },
		"left are not":      func(r *result) { r.shop.left["bag"] = 0 },
		"number of answers": func(r *result) { r.requests = 3 },
		"failed":            func(r *result) { r.failed = 1 },
		"requests got to":   func(r *result) { r.shop.asked["bag"] = itemBurst + itemRate + 1 },
		"looks got to":      func(r *result) { r.shop.looked["bag"] = lookBurst + lookRate + 1 },
		"somebody bought":   func(r *result) { r.shop.ledger = append(r.shop.ledger, purchase{"ann", "bag"}) },
	} {
		r := sound()
		spoil(r)
		require.ErrorContains(t, r.audit(true), name)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"extra"}, {"-nope"}, {"-users", "9"}, {"-users", "5001"}, {"-for", "1ms"}, {"-stock", "0"}, {"-limits", ""}} {
		require.Error(t, run(t.Context(), args, io.Discard, io.Discard), "%v", args)
	}
}
