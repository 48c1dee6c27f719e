package live

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/spillway-go/spillway/middleware"
)

// view is what the sampler knows of a policy. Nobody else touches it.
type view struct {
	was      counts
	left     [len(shares)]uint64
	hist     [len(shares)]float64 // of what is left, halving in about half a minute
	series   series
	over     overshoot
	over0    counts // when measuring began
	since    time.Time
	limits   string    // that were measured
	known    bool      // by a guard that is watched
	open     time.Time // when a request passed undecided last
	seen     middleware.Overview
	listed   bool
	several  bool // guards have it
	flight   int  // of its controller
	flightOf int  // the bound of that
	row      row
	about    about
	aboutIs  []byte // encoded
}

// storeView is the same of a store.
type storeView struct {
	was    [len(latency) + 1]uint64
	failed uint64
}

// sampler is the one goroutine that makes ticks.
type sampler struct {
	page *Page

	mu     sync.Mutex // of all below
	n      int64      // of the next tick
	last   time.Time
	drift  int64     // ns that the wall clock was set ahead since the page was made
	mute   time.Time // since when a guard is watched that tells nothing; zero: it does
	hidden int       // policies that are too many
	clock  clock
	totals series
	lat    [fine + coarse][2]float64
	stores map[string]*storeView

	state    []byte
	stateIs  state
	rows     []storeRow
	document document
	docIs    []byte
	top      []topRow
	topIs    []byte
	policies []*policy // as shown

	whole   []byte // the event with everything
	wholeOf int64  // as of this tick

	// Of the goroutine alone, without mu.
	overview asked[[]standing]
	status   asked[Status]
}

// sample takes a snapshot a second until Close.
func (p *Page) sample() {
	defer close(p.ended)
	s := p.sampler
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-p.done:
			return
		case now := <-t.C:
			s.gather(now)
			s.tick(time.Now())
		}
	}
}

// tick takes a snapshot and shows it.
func (s *sampler) tick(now time.Time) { s.tickAt(now, now.UnixNano()) }

// aStep of the wall clock moves the times of the points with it.
const aStep = int64(1500 * time.Millisecond)

// tickAt is a tick at an instant and what the wall clock says of it, in ns.
func (s *sampler) tickAt(now time.Time, wall int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	elapsed := now.Sub(s.last).Seconds()
	if s.n == 0 || elapsed <= 0 {
		elapsed = 1
	}
	s.last = now
	drift := wall - s.page.epoch.UnixNano() - int64(now.Sub(s.page.epoch))
	step := drift - s.drift
	s.drift = drift
	stepped := step > aStep || step < -aStep
	if stepped {
		s.clock.shift(int64(time.Duration(step).Round(time.Second) / time.Second))
	}
	t := tick{Now: wall / int64(time.Second)}
	s.clock.put(s.n, t.Now)
	t.Gone = s.list()
	var sum [kinds]float32
	for order, p := range s.policies {
		rates := s.policy(&t, p, order, now, elapsed)
		for k := range sum {
			sum[k] += rates[k]
		}
	}
	s.totals.put(s.n, sum)
	for k := range sum {
		t.Total[k] = tenth(float64(sum[k]))
	}
	t.Latency = s.askStores(elapsed)
	t.Stores = s.rows
	s.askStatus(&t)
	s.askTop(&t)
	s.n++
	if stepped { // the times of all points are others, so everybody gets the whole
		s.page.ticks.put(s.page.frame(s.n-1, "full", s.full()))
		return
	}
	s.page.ticks.put(s.page.frame(s.n-1, "tick", encode(&t)))
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // a number that is none
		return []byte("{}")
	}
	return b
}

// list finds the policies that there are, in their order, and returns those that are gone.
func (s *sampler) list() (gone []int) {
	before := make(map[*policy]bool, len(s.policies))
	for _, p := range s.policies {
		before[p] = true
		p.shown.listed = false
	}
	page := s.page
	page.mu.Lock()
	s.policies = s.policies[:0]
	s.hidden = 0
	for _, o := range s.overview.last {
		p := page.find(o.Policy)
		if p == nil {
			s.hidden++
			continue
		}
		v := &p.shown
		v.seen, v.listed, v.several, v.flight, v.flightOf = o.Overview, true, p.bound > 1, o.flight, o.flightOf
		s.policies = append(s.policies, p)
	}
	s.listen()
	var more []*policy // of guards that are not watched
	for _, x := range page.policies.Range {
		switch p := x.(*policy); {
		case p.shown.listed:
		case p.bound > 0:
			p.shown.seen, p.shown.several = middleware.Overview{Policy: p.name}, p.bound > 1
			more = append(more, p)
		default:
			page.policies.Delete(p.name)
			page.count--
		}
	}
	page.mu.Unlock()
	slices.SortFunc(more, func(a, b *policy) int { return a.id - b.id })
	s.policies = append(s.policies, more...)
	for _, p := range s.policies {
		delete(before, p)
	}
	for p := range maps.Keys(before) {
		gone = append(gone, p.id)
	}
	slices.Sort(gone)
	return gone
}

// policy brings one up to date, and tells in t what changed.
func (s *sampler) policy(t *tick, p *policy, order int, now time.Time, elapsed float64) (rates [kinds]float32) {
	v := &p.shown
	is := p.counts()
	since := func(is, was uint64) float32 { return float32(float64(is-min(was, is)) / elapsed) }
	rates = [kinds]float32{since(is.Allowed, v.was.Allowed), since(is.Refused, v.was.Refused), since(is.Degraded, v.was.Degraded)}
	if passed, before := is.Undecided-is.Closed, v.was.Undecided-v.was.Closed; passed > before && v.seen.OnStoreError == middleware.FailOpen {
		v.open = now
		rates[sUndecided] = since(passed, before)
	}
	would, was := since(is.Shadow, v.was.Shadow), v.was
	v.was = is
	v.series.put(s.n, rates)
	s.remaining(p)

	limits := fmt.Sprint(v.seen.Limit, " ", v.seen.Limiter, v.seen.Refunds, v.listed)
	if limits != v.limits || v.since.IsZero() {
		if v.known {
			p.again()
		}
		v.limits, v.since, v.over, v.over0, v.known = limits, now, overshoot{}, was, v.listed
	}
	p.measure(&v.over)
	if p.unmeasured(is) != "" {
		v.over = overshoot{}
	}
	row := row{
		ID: p.id, Flight: max(v.seen.InFlight, v.flight), Left: v.percents(), Keys: v.over.keys,
		Sums: [5]uint64{is.Allowed, is.Refused, is.Degraded, is.Shadow, is.Undecided},
	}
	for k := range rates {
		row.Rates[k] = tenth(float64(rates[k]))
	}
	row.Rates[kinds] = tenth(float64(would))
	row.Median = median(row.Left)
	var promise string
	row.Bound, promise = p.promise(now, is)
	row.Over, row.Bound = hundredth(v.over.worst), hundredth(row.Bound)
	if !slices.Equal(row.Left, v.row.Left) || !sameRow(&row, &v.row) {
		v.row = row
		t.Rows = append(t.Rows, row)
	}
	about := p.describe(order, is, promise)
	if b := encode(&about); !bytes.Equal(b, v.aboutIs) {
		v.about, v.aboutIs = about, b
		t.About = append(t.About, about)
	}
	return rates
}

// listen finds out whether the guard that is watched tells the page anything. Page.mu is held.
func (s *sampler) listen() {
	for _, p := range s.policies {
		if p.bound > 0 || p.shown.was.total() > 0 {
			s.mute = time.Time{}
			return
		}
	}
	switch {
	case len(s.policies) == 0:
		s.mute = time.Time{}
	case s.mute.IsZero():
		s.mute = s.last
	}
}

// contain calls something of the user's, whose panic must not end the process.
func contain(f func()) {
	defer func() { _ = recover() }()
	f()
}

func sameRow(a, b *row) bool {
	return a.ID == b.ID && a.Rates == b.Rates && a.Sums == b.Sums && a.Flight == b.Flight && a.Over == b.Over && a.Bound == b.Bound && a.Keys == b.Keys
}

// hundredth rounds up: neither a measure nor a bound is shown smaller than it is.
func hundredth(v float64) float64 { return math.Ceil(v*100) / 100 }

// remaining brings the histogram of what is left up to date. It fades with traffic alone: nobody asking is no news.
func (s *sampler) remaining(p *policy) {
	v := &p.shown
	const fade = 0.977 // to the 30th it is a half
	var fresh [len(shares)]float64
	some := false
	for k := range fresh {
		is := p.left[k].Load()
		fresh[k] = float64(is - v.left[k])
		some = some || is != v.left[k]
		v.left[k] = is
	}
	if !some {
		return
	}
	for k := range fresh {
		v.hist[k] = v.hist[k]*fade + fresh[k]
	}
}

// percents are the shares of the histogram.
func (v *view) percents() []int {
	sum := 0.0
	for _, n := range v.hist {
		sum += n
	}
	if sum == 0 {
		return nil
	}
	out := make([]int, len(v.hist))
	for k, n := range v.hist {
		out[k] = int(math.Round(100 * n / sum))
	}
	return out
}

// median is the percentage of the quota that half of the decisions left at most.
func median(percents []int) int {
	sum := 0
	for k, n := range percents {
		if sum += n; sum >= 50 {
			return int(math.Round(100 * shares[k]))
		}
	}
	return 0
}

// full encodes everything as of the last tick.
func (s *sampler) full() []byte {
	n := s.n - 1
	const many = 64
	short := len(s.policies) > many
	f := full{
		Title: s.page.cfg.Title, Now: s.last.Unix(), Times: s.clock.times(n, false),
		State: s.stateIs, Stores: s.rows, Document: s.document, Policies: []fullPolicy{},
	}
	for k := range kinds {
		f.Totals = append(f.Totals, s.totals.values(n, false, k))
	}
	points(n, false, func(isCoarse bool, k int) {
		if !isCoarse {
			k += coarse
		}
		f.Latency[0] = append(f.Latency[0], s.lat[k][0])
		f.Latency[1] = append(f.Latency[1], s.lat[k][1])
	})
	if s.page.cfg.Top != nil {
		f.Top = &s.top
	}
	if short {
		f.Recent = int(min(n+1, fine))
	}
	for _, p := range s.policies {
		x := fullPolicy{About: p.shown.about, Row: p.shown.row}
		if p.shown.series.used {
			for k := range kinds {
				x.History = append(x.History, p.shown.series.values(n, short, k))
			}
		}
		f.Policies = append(f.Policies, x)
	}
	return encode(&f)
}
