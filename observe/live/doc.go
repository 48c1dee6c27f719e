// Package live shows what a process limits, in a browser and while it happens: a page of tables and charts that moves once a
// second. It is for whoever looks at one process: while trying a policy, in an incident, in a demonstration. What a fleet did
// last night is what package observe/prom is for.
//
//	page, err := live.New(live.Config{})
//	…
//	defer page.Close()
//	store, err := redislimit.New(redislimit.Config{Client: client, Observer: page, …})
//	guard, err := middleware.New(middleware.Config{Limiter: store, Observer: page, …})
//	…
//	page.Watch(guard, nil)
//	mux.Handle("/live/", page)
//	mux.Handle("/", stdhttp.Middleware(guard)(service))
//
// With other observers beside it, give all of them by observe.Tee.
//
// # Where to mount it
//
// Outside of the guard, as above: behind it, what the page asks for counts, and each viewer holds a place in flight for as long
// as he looks. Where a guard is around everything, its Exempt has the route of the page. The page wants GET and HEAD, and the slash
// at its end: [http.ServeMux] and Gin redirect to that by themselves.
//
//	engine.Match([]string{"GET", "HEAD"}, "/live/*any", gin.WrapH(page)) // Gin: before engine.Use(ginlimit.Middleware(guard))
//
//	e.Use(echolimit.Middleware(guard, echolimit.WithSkipper(func(c echo.Context) bool { return strings.HasPrefix(c.Path(), "/live") })))
//	e.Match([]string{"GET", "HEAD"}, "/live/*", echo.WrapHandler(page)) // Echo
//	e.GET("/live", func(c echo.Context) error { return c.Redirect(308, "live/") })
//
// Streams are flushed, and have a deadline for each write alone. So the page is not for a place behind [http.TimeoutHandler] or
// what compresses and buffers answers: write deadlines do not pass a TimeoutHandler, and it holds answers back until they end.
//
// # Who may look
//
// The page changes nothing, but it tells what a service allows and who is refused (hashed). Without [Config].Authorize it
// answers only requests that come from this machine, by a name of this machine, and through no proxy: see [Config].Authorize.
// [Config].Authorize answers 403 and asks for no password. For Basic authentication put a middleware of your own before the page,
// which sends the challenge, and let the page take whoever has passed it:
//
//	page, err := live.New(live.Config{Authorize: func(*http.Request) bool { return true }})
//	…
//	mux.HandleFunc("/live/", func(w http.ResponseWriter, r *http.Request) {
//		if user, password, _ := r.BasicAuth(); !valid(user, password) {
//			w.Header().Set("WWW-Authenticate", `Basic realm="limits"`)
//			http.Error(w, "Who are you?", http.StatusUnauthorized)
//			return
//		}
//		page.ServeHTTP(w, r)
//	})
//
// It asks nothing of other hosts, and its Content-Security-Policy forbids it to; nothing that it shows is read as HTML. Secrets and keys are
// not in it, as long as [Config].Top has no Clear and [Status] holds none.
//
// # What is measured, and where
//
// Everything is of this process: other processes on the same store have pages of their own. Several policies may decide about
// one request, and each counts.
//
// For each policy the page shows how far it admitted more than its limit promises, beside the bound that
// docs/guarantees.md computes for where its counts are kept. Up to 8 keys of a policy are measured, those that are asked for
// most. A bucket is measured over every interval that begins and ends at multiples of 10 ms since its key is watched: what
// passed there above Burst + Rate·t/Period is the overshoot, too low by at most what the rate brings in 20 ms and never too high. By the
// clock of the process for what a shared store decided, as that is when requests pass; the bound is then what the rate brings
// in the slowest decision. By the instant of the booking for the rest, where the bound is zero. The others count in windows
// that are aligned to their Period: a FixedWindow is measured exactly, a SlidingWindow and a SlidingLog not beyond that.
// Of a LeakyBucket the bookings are measured and not the departures.
//
// Not measured, as nothing would be certain: calendar windows, and periods that are no multiple of 10 ms; policies with a Refund;
// a policy that several guards have with counts in this process; and a key that was decided by two limits, as by a Plan, an
// adjuster or a Var, until it was under one for as long as its quota takes to be full, or for two windows. A policy whose guard is
// not watched is shown without a bound. A key that is given a full quota by Guard.Reset is measured as if it was not.
//
// # Cost
//
// A decision costs a few atomic additions, takes no lock and allocates nothing. One goroutine takes a snapshot a second, however many look, and
// encodes it once for all of them. Memory is bounded: about 5 KB for each policy and 2 KB for each key that is
// measured, 8 of a policy at most; up to 1024 policies. A viewer who cannot follow skips frames.
//
// What is the program's, such as adjusters, controllers and the function for the [Status], is asked by goroutines of their own,
// one for each. Where one blocks the page shows what was last known and says so, and its goroutine stays until it returns.
//
// # Shutdown
//
// Streams never end by themselves, and [http.Server.Shutdown] waits for them: give it Close before, by
// server.RegisterOnShutdown(func() { page.Close() }).
//
// Charts are drawn by uPlot, © Leon Sorokin, under the MIT licence in assets/uplot.LICENSE.
package live
