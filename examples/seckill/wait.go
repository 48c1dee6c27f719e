package main

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-go/spillway/degrade"
)

// browsersOnly is registered: what comes after it in a chain is for browsers. Others get the plain refusal.
var browsersOnly = degrade.Func(func(_ http.ResponseWriter, r *http.Request, _ *degrade.Denial) degrade.Outcome {
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		return degrade.Skip
	}
	return degrade.Refuse
})

// spread is by how much more than it says the waiting page waits, at random: a crowd that came in one moment would come
// back in one moment.
const spread = 2 * time.Second

// wait is the page to which limits.yaml redirects browsers. It goes back to the page of the item, where a person clicks
// again. It does not buy by itself: a link to it from elsewhere would then buy for whoever follows it. For the same reason
// it goes to no address that it is given, but to one that it makes.
func (s *shop) wait(w http.ResponseWriter, r *http.Request) {
	_, item, _ := strings.Cut(strings.TrimPrefix(r.FormValue("back"), "/"), "/") // of /buy/{item} or /stock/{item}
	s.mu.Lock()
	_, known := s.left[item]
	s.mu.Unlock()
	seconds, err := strconv.Atoi(r.FormValue("seconds"))
	if !known || err != nil || seconds < 1 || seconds > 60 {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprintf(w, waitingPage, seconds, item, item, seconds*1000, spread.Milliseconds())
}

const waitingPage = `<!doctype html>
<title>One moment, please</title>
<p>Many want this at once. It goes on in %d s, or <a href="/stock/%s">now</a>.
<script>setTimeout(() => location.replace("/stock/%s"), %d + %d * Math.random())</script>
`
