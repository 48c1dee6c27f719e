// Package stdhttp puts a guard in front of net/http handlers.
//
//	http.ListenAndServe(addr, stdhttp.Middleware(guard)(mux))
//
// # Where to mount it
//
// Around a whole [http.ServeMux] the guard sees every request: unknown paths, wrong methods, and the redirects that the
// mux answers by itself (a missing trailing slash, an unclean path). It knows the route and the parameters by asking the
// mux, and asks only if a key wants them; [WithMux] names the mux where other middleware stands between. Around one
// handler the guard sees what the mux sends there, and nothing else.
//
// Policies match the path that the guard sees. Inside of [http.StripPrefix] that is the rest of it, so mount the guard
// outside, or write the routes of its policies without the prefix.
//
// # Order
//
// From the outside to the inside: recovery from panics and access log, CORS, the guard, authentication, the guard's
// stage [middleware.StageIdentity], compression, the mux.
//
//	edge, identity := stdhttp.Middleware(guard), stdhttp.Middleware(guard.Stage(middleware.StageIdentity))
//	http.ListenAndServe(addr, recovery(cors(edge(authenticate(identity(mux))))))
//
// Behind CORS a refusal has the fields without which a script cannot read it. Before authentication the guard spares the
// cost of checking credentials, and limits the guessing of them; only behind it are there users to count by.
//
// # One request, one decision
//
// A stage decides a request once. Where it stands at several places of one chain, around the mux and around a handler in
// it, the outer one counts and the inner one lets pass. To know, requests are marked in their context, at the price of a
// copy of the request, but only if the stage is mounted more than once and only outside of a mux. Not noticed is a stage
// that stands twice inside of one route with other middleware between.
//
// # What net/http hides
//
// A request is settled by the status that the guard sees written, see Policy.Refund. An [http.TimeoutHandler] belongs
// inside of the guard: outside of it, the guard sees the status of the handler even if the client was told 503. An upgraded
// connection (WebSocket) is one request; its messages are limited with [middleware.Guard.Take]. A browser does not show a
// script the 429 that refuses an upgrade, only a connection that failed; to tell it more, exempt the route, accept the
// connection, ask [middleware.Guard.Check], and close it with 1013.
//
// # Client address
//
// It is the peer of the connection unless the guard's Config.ClientIP says which proxies to believe. No middleware that
// rewrites [http.Request.RemoteAddr] from headers is needed, and none should be used: it would believe everybody.
package stdhttp
