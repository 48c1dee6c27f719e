// Package spillway rate-limits HTTP services and degrades them gracefully: for Gin, Echo v4 and plain net/http.
//
//	guard := spillway.Must(spillway.New(spillway.Config{
//		Policies: []spillway.Policy{
//			{Name: "burst", Key: keyfunc.IP(), Limit: limiter.PerSecond(20)},
//		},
//	}))
//	router.Use(ginlimit.Middleware(guard))                    // Gin
//	e.Use(echolimit.Middleware(guard))                        // Echo
//	http.ListenAndServe(addr, stdhttp.Middleware(guard)(mux)) // net/http
//
// A [Policy] says which requests are meant, by whom is counted, and how much. A [Guard] decides every request by all
// policies that apply: all of them are charged, or none. It writes X-RateLimit-* or RateLimit fields and Retry-After, and
// answers refusals with a problem document, or with whatever the policy degrades to.
//
// Make the guard once, at start-up: one made inside a handler would count nothing but its own request.
//
// This package is the face. The parts stand by themselves: package limiter has limits, algorithms and the contract of
// stores, keyfunc says who is asking, response what the client is told, degrade what happens at the limit, middleware is
// the guard, and adapters/… put it into frameworks.
package spillway
