// Package echolimit puts a guard into Echo v4.
//
//	e.Use(echolimit.Middleware(guard))
//
// Import it under its own name:
//
//	import echolimit "github.com/spillway-go/spillway/adapters/echo"
//
// # Where to mount it
//
// With Use, with Pre, on a group, or on a route. With Use the guard sees every request, those that match no route
// included. With Pre it runs before routing: policies match the path that the client sent, keyfunc.Route keys are all
// alike, and there are no parameters. A middleware that rewrites paths belongs before the guard if policies are written
// for the new paths, behind it if for the old ones. A group with middleware sees what is below its prefix: Echo adds a
// route for everything there, so a wrong method is 404 and not 405. A guard on a route sees that route.
//
// # Order
//
// From the outside to the inside: recovery and logger, CORS, the guard, authentication, the guard's stage
// [middleware.StageIdentity], compression, handlers.
//
//	e.Use(recovery, cors, echolimit.Middleware(guard))
//	api := e.Group("/api", authenticate, echolimit.Middleware(guard.Stage(middleware.StageIdentity)))
//
// Recovery stands outside also for the sake of degrade.Cached: inside of the guard it turns a panic into a response that
// ended well, and what the handler had written before into a whole page.
//
// Behind CORS a refusal has the fields without which a script cannot read it. What authentication stores with c.Set is a
// key by [keyfunc.Value]. Echo's own Timeout middleware serves in another goroutine and with another writer; use its
// ContextTimeout, which a guard that holds requests obeys, or put Timeout inside of the guard.
//
// # One request, one decision
//
// A stage decides a request once. Where it stands twice in a chain, with Use and on a route, the first one counts and the
// second one lets pass. Call Middleware for each place: one echo.MiddlewareFunc that is mounted twice cannot know. The
// mark is in Echo's context, and is set only if Middleware was called more than once for the stage.
//
// # What Echo hides
//
// Echo answers HEAD with 405 unless there is a HEAD route; policies for GET match it all the same. Path parameters are
// told apart after unescaping, so that %31 and 1 are one key, although [echo.Context.Param] may return either.
//
// A request that is let through degraded is marked in the context of c.Request(), see degrade.FromContext. c.Get knows
// nothing of it.
//
// An upgraded connection (WebSocket) is one request; its messages are limited with [middleware.Guard.Take]. A browser
// does not show a script the 429 that refuses an upgrade, only a connection that failed.
//
// # Client address
//
// It is the peer of the connection unless the guard's Config.ClientIP says which proxies to believe. It is never
// [echo.Context.RealIP], and Echo#IPExtractor is not asked: the ready-made ones trust every private address.
package echolimit
