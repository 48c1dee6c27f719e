// Package ginlimit puts a guard into Gin.
//
//	router.Use(ginlimit.Middleware(guard))
//
// Import it under its own name:
//
//	import ginlimit "github.com/spillway-go/spillway/adapters/gin"
//
// # Where to mount it
//
// With Use on the engine, on a group, or on a route. Engine middleware sees requests that match no route as well, also
// those that a NoRoute or NoMethod handler answers, so unknown paths cannot be probed for free; group and route middleware
// does not. Mount it before the routes are added: Gin gives a route the middleware that is there by then.
//
// # Order
//
// From the outside to the inside: recovery and logger, CORS, the guard, authentication, the guard's stage
// [middleware.StageIdentity], compression, handlers.
//
//	router.Use(gin.Recovery(), cors, ginlimit.Middleware(guard))
//	api := router.Group("/api", authenticate, ginlimit.Middleware(guard.Stage(middleware.StageIdentity)))
//
// Behind CORS a refusal has the fields without which a script cannot read it. What authentication stores with c.Set is a
// key by [keyfunc.Value].
//
// # One request, one decision
//
// A stage decides a request once. Where it stands twice in a chain, on the engine and on a route, the first one counts
// and the second one lets pass. Call Middleware for each place: one gin.HandlerFunc that is mounted twice cannot know.
// The mark is in the context of Gin, and is set only if Middleware was called more than once for the stage.
// [gin.Engine.HandleContext] begins anew and is a second request.
//
// # What Gin hides
//
// Gin answers redirects to a path with or without its trailing slash (RedirectTrailingSlash) and to a fixed path
// (RedirectFixedPath) without running any middleware: no guard sees those. The redirected request is seen. A HEAD request
// without a HEAD route, and a path with a doubled slash, have no route in Gin; policies match them by path all the same.
// With UseRawPath leave UnescapePathValues on, or one parameter has many spellings, and each is a key.
//
// A request that is let through degraded is marked in the context of c.Request, see degrade.FromContext; with
// Engine.ContextWithFallback also in c itself. c.Get knows nothing of it.
//
// An upgraded connection (WebSocket) is one request; its messages are limited with [middleware.Guard.Take]. A browser
// does not show a script the 429 that refuses an upgrade, only a connection that failed.
//
// # Client address
//
// It is the peer of the connection unless the guard's Config.ClientIP says which proxies to believe. It is never
// [gin.Context.ClientIP], which by default trusts every sender, and the engine's TrustedProxies are not asked.
package ginlimit
