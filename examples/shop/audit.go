package main

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// What shop.yaml says, for those who check it.
const (
	pageBurst, pageRate = 10, 5 // of one address
	copyRate            = 10    // likewise
	sharedRate          = 1000
	wholeRate           = 20
	lesserRate          = 200
	places, kept        = 40, 8
	maxStale            = 5 * time.Second

	// leeway is for a machine that is busy between the making and the recording of a page.
	leeway = time.Second
)

// audit names every promise that was not kept. Who is guarded has promised more.
func (r *result) audit(guarded bool) (err error) {
	broken := func(is bool, format string, args ...any) {
		if is {
			err = errors.Join(err, fmt.Errorf(format, args...))
		}
	}
	answers := r.fresh + r.copies + r.shared + r.refusedPages + r.whole + r.lesser + r.refusedSearches + r.done + r.refusedCheckouts
	broken(r.asked != answers+r.gaveUp+r.failed, "%d requests have another number of answers", r.asked)
	broken(r.failed > 0, "%d requests failed", r.failed)
	broken(r.foreign > 0, "%d pages were made for somebody else", r.foreign)
	broken(r.done > len(r.shop.orders), "%d checkouts are done, and %d are in the books", r.done, len(r.shop.orders))
	if !guarded {
		return err
	}
	broken(r.refusedCheckouts > 0, "%d checkouts were refused", r.refusedCheckouts)
	broken(r.old > 0, "%d copies were too old", r.old)
	broken(r.shop.inside.most > places, "%d requests were inside at once", r.shop.inside.most)
	broken(r.shop.others.most > places-kept, "%d requests were inside at once that were no checkouts", r.shop.others.most)
	over := func(n, burst, rate int) bool { return float64(n) > float64(burst)+float64(rate)*r.took.Seconds() }
	broken(over(r.whole, wholeRate, wholeRate), "%d searches were whole", r.whole)
	broken(over(r.lesser, lesserRate, lesserRate), "%d searches were lesser", r.lesser)
	broken(over(r.shared, sharedRate, sharedRate), "%d copies were served for the service's sake", r.shared)
	for k := range r.visitors {
		v := &r.visitors[k]
		pages := v.fresh + v.whole + v.lesser
		broken(over(pages, pageBurst, pageRate), "%s had %d pages", addressOf(k), pages)
		broken(over(v.copies, copyRate, copyRate), "%s had %d copies", addressOf(k), v.copies)
	}
	return err
}

// table prints both runs as Markdown.
func table(w io.Writer, without, with *result) {
	fmt.Fprintln(w, "| | without a guard | with the guard |\n|---|--:|--:|")
	row := func(what string, of func(*result) any) {
		fmt.Fprintf(w, "| %s | %v | %v |\n", what, of(without), of(with))
	}
	ms := func(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }
	row("product pages, fresh", func(r *result) any { return r.browsing.fresh })
	row("… from a copy", func(r *result) any { return r.browsing.copies + r.browsing.shared })
	row("… refused", func(r *result) any { return r.browsing.refusedPages })
	row("… refused to customers, of these", func(r *result) any { return r.customers.refusedPages })
	row("searches, whole", func(r *result) any { return r.browsing.whole })
	row("… lesser", func(r *result) any { return r.browsing.lesser })
	row("… refused", func(r *result) any { return r.browsing.refusedSearches })
	row("given up after "+patience.String(), func(r *result) any { return r.browsing.gaveUp })
	row("the scraper: requests", func(r *result) any { return r.visitors[0].asked })
	row("… fresh pages and searches", func(r *result) any { v := r.visitors[0]; return v.fresh + v.whole + v.lesser })
	row("… copies", func(r *result) any { v := r.visitors[0]; return v.copies + v.shared })
	row("checkouts, tried", func(r *result) any { return r.tried })
	row("… done", func(r *result) any { return r.done })
	row("… refused", func(r *result) any { return r.refusedCheckouts })
	row("… median", func(r *result) any { return ms(r.quantile(0.5)) })
	row("… 99th percentile", func(r *result) any { return ms(r.quantile(0.99)) })
	row("pages made", func(r *result) any { return r.shop.pages })
	row("database busy", func(r *result) any {
		return fmt.Sprintf("%.0f %%", 100*r.shop.busy.Seconds()/connections/r.took.Seconds())
	})
	row("inside at once, at most", func(r *result) any { return r.shop.inside.most })
}
