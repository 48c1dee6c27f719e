// Package degrade is what a limited request gets instead of a refusal: a [Handler] is asked when a policy says no, and
// may answer something useful, let the request through marked as degraded, or pass.
//
// A chain ends in the plain refusal, which cannot fail: a handler that panics or passes costs nothing but itself.
// Degrading takes nothing from the policy that refused. What proceeds or is replayed has a budget, so that degrading does
// not amplify what the policy is there to stop; see [Within] and [Denial.Afford].
//
// Handlers are settings of a policy. Parts that hold a state, such as recorded responses or a queue, keep it when the
// policy is replaced by one with equal settings; see [Heir].
package degrade
