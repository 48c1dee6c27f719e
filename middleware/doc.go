// Package middleware is the guard: it decides which requests may pass, tells clients what they may do, and serves
// something useful when the answer is no. It knows net/http, no framework and no store; adapters put it into a chain,
// limiters keep the counts.
//
//	guard, err := middleware.New(middleware.Config{
//		Limiter: store,
//		Policies: []middleware.Policy{
//			{Name: "burst", Key: keyfunc.IP(), Limit: limiter.PerSecond(20)},
//			{Name: "search", Match: middleware.Match{Routes: []string{"GET /search"}}, Key: keyfunc.User(user), Limit: limiter.PerMinute(600)},
//		},
//	})
//	…
//	guard.Serve(w, r, next)
//
// Limits that are known only inside a handler are asked by [Guard.Take]; what to answer is then the handler's to say. Outgoing calls
// are for package client.
//
// # One request
//
// Policies that match and do not exempt the request find its key and take its cost, all of them or none: a refused request
// consumes nothing from any policy. Then the fields are written, and the request is held if a queue says so, handed on,
// and settled by its real status where a policy gives units back. All-or-nothing holds for the policies of one stage.
//
//   - Limited: 429, or 503 where the service and not the caller's quota is the cause (a bound in flight, a limit that
//     adjusters have lowered). The chains of [Policy].Degrade are asked first, if every policy that refuses has one.
//   - No key: 403, or the policy is skipped; see [NoKey].
//   - The store is away: the request passes and only its handler can know ([Undecided]), or 503; see [OnError]. It is
//     logged once per change.
//   - Malformed limits and costs, limiters that cannot do what is asked, and panics of callbacks refuse with 503 whatever
//     OnStoreError says: a crafted input must not open the gate. Panics are counted, and the first is logged.
//   - The request's context has ended: nothing is taken and nobody is to blame. The response is 499 if the client has
//     left, which nobody reads, and 504 if a deadline has passed.
//
// # Choosing
//
//   - [Guard.Serve] for net/http, [Guard.Enter] and [Pass.Leave] for frameworks, [Guard.Check] where the caller answers
//     himself, [Guard.Peek] to look, [Guard.Take] for keys known late and for workers.
//   - Before authentication, policies by address in [StageEdge]; behind it, by user in [StageIdentity].
//   - A trial: [Policy].Shadow decides and is observed, and leaves no trace in a response.
package middleware
