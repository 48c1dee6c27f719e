// Package degrade is what a limited request gets instead of a refusal: a [Handler] is asked when a policy says no, and
// may answer something useful, let the request through marked as degraded, or pass.
//
//	pages := degrade.NewPages(degrade.PagesConfig{})
//	policy.Degrade = degrade.First(degrade.Cached(pages), degrade.Within(limiter.PerMinute(30), degrade.ReadOnly()))
//
//	[Cached]     the last good copy of the page
//	[ReadOnly]   reads proceed, writes are refused
//	[Static]     an answer of yours, by language and type
//	[Queue]      a turn, and then the policies are asked again
//	[Redirect]   another place, such as a waiting page
//	[Shed]       the less important are refused before the quota is spent
//	[Flag]       the handler serves less: it finds an [Info] in its context
//	[Func]       something else
//	[First]      the first of several that serves
//	[Within]     any of them, so many times
//
// A chain ends in the plain refusal, which cannot fail: a handler that panics or passes costs nothing but itself.
// Degrading takes nothing from the policy that refused. What proceeds or is replayed has a budget, so that degrading does
// not amplify what the policy is there to stop; see [Within] and [Denial.Afford].
//
// Handlers are settings of a policy. Parts that hold a state, such as recorded responses or a queue, keep it when the
// policy is replaced by one with equal settings; see [Heir].
package degrade
