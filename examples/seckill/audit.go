package main

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// What limits.yaml says, for those who check it.
const (
	itemBurst, itemRate = 5, 50 // a second
	lookBurst, lookRate = 5, 20 // likewise
	personWindow        = 10 * time.Second
)

// most is how often one user has bought one item.
func (r *result) most() (n int) {
	by := make(map[purchase]int)
	for _, p := range r.shop.ledger {
		by[p]++
		n = max(n, by[p])
	}
	return n
}

// oversold is how many were sold that were not there.
func (r *result) oversold() (n int) {
	sold := make(map[string]int)
	for _, p := range r.shop.ledger {
		sold[p.item]++
	}
	for _, item := range items {
		n += max(0, sold[item]-r.stock)
	}
	return n
}

// audit names every promise that was not kept. Who is guarded has promised more.
func (r *result) audit(guarded bool) (err error) {
	broken := func(is bool, format string, args ...any) {
		if is {
			err = errors.Join(err, fmt.Errorf(format, args...))
		}
	}
	broken(r.oversold() > 0, "%d were sold that were not there", r.oversold())
	broken(r.bought > len(r.shop.ledger), "users have %d, and %d were sold", r.bought, len(r.shop.ledger))
	left := 0
	for _, item := range items {
		left += r.shop.left[item]
	}
	broken(len(r.shop.ledger)+left != r.stock*len(items), "%d sold and %d left are not %d", len(r.shop.ledger), left, r.stock*len(items))
	broken(r.requests != r.pages+r.bought+r.waiting+r.soldOut+r.gaveUp+r.failed, "%d requests have another number of answers", r.requests)
	broken(r.failed > 0, "%d requests failed", r.failed)
	if !guarded {
		return err
	}
	for _, item := range items {
		asked, bound := r.shop.asked[item], itemBurst+itemRate*r.took.Seconds()
		broken(float64(asked) > bound, "%s: %d requests got to the stock service, at most %.0f should", item, asked, bound)
		looked, bound := r.shop.looked[item], lookBurst+lookRate*r.took.Seconds()
		broken(float64(looked) > bound, "%s: %d looks got to the stock service, at most %.0f should", item, looked, bound)
	}
	broken(float64(r.most()) > 1+r.took.Seconds()/personWindow.Seconds(), "somebody bought one item %d times in %v", r.most(), r.took)
	return err
}

// table prints both sales as Markdown.
func table(w io.Writer, without, with *result) {
	fmt.Fprintln(w, "| | without a guard | with the guard |\n|---|--:|--:|")
	row := func(what string, of func(*result) any) {
		fmt.Fprintf(w, "| %s | %v | %v |\n", what, of(without), of(with))
	}
	ms := func(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }
	sum := func(in map[string]int) (n int) {
		for _, k := range in {
			n += k
		}
		return n
	}
	row("requests", func(r *result) any { return r.requests })
	row("purchases that got to the stock service", func(r *result) any { return sum(r.shop.asked) })
	row("looks that got there", func(r *result) any { return sum(r.shop.looked) })
	row("pages of items", func(r *result) any { return r.pages })
	row("… from a copy", func(r *result) any { return r.copies })
	row("waiting pages", func(r *result) any { return r.waiting })
	row("given up after "+patience.String(), func(r *result) any { return r.gaveUp })
	row("sold", func(r *result) any { return len(r.shop.ledger) })
	row("… to people who know it", func(r *result) any { return r.bought - r.bots })
	row("… to somebody who had given up", func(r *result) any { return len(r.shop.ledger) - r.bought })
	row("… to bots", func(r *result) any { return r.bots })
	row("… of one item to one user, at most", func(r *result) any { return r.most() })
	row("oversold", func(r *result) any { return r.oversold() })
	row("purchase, median", func(r *result) any { return ms(r.quantile(0.5)) })
	row("purchase, 99th percentile", func(r *result) any { return ms(r.quantile(0.99)) })
}
