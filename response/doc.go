// Package response says what a client is told: the rate limit fields of every response and the body of a refusal.
//
// It decides nothing and keeps no state. A [Renderer], built once from [Options], writes fields from the decisions of a
// request ([Renderer.WriteHeaders]) and refusals ([Renderer.Refuse]); a [Policy], built once per limit, holds the texts
// that never change. Package middleware drives both; use this package alone to tell limits that were decided elsewhere.
//
// # Choosing a set of fields
//
//   - [X], the default: X-RateLimit-Limit, -Remaining and -Reset, which most clients read. One policy is described: on
//     a refusal the one with the longest wait, otherwise the one with the fewest units left.
//   - [Draft11Set]: RateLimit and RateLimit-Policy of draft-ietf-httpapi-ratelimit-headers-11, which tell all policies.
//   - [Both]: the two together.
//   - [Off]: nothing, for login and similar endpoints.
//
// Older drafts, and the one being written after draft 11, can be chosen with [Set].
//
// # What the numbers mean
//
// All times are whole seconds, rounded up, so that waiting as told is always enough; units left are rounded down.
// Retry-After goes with refusals only, is at least 1 and at most 2147483647, and is missing where waiting cannot help.
// X-RateLimit-Limit of a bucket is what it can hold, its burst and not its rate; of a window it is the rate.
// X-RateLimit-Reset is the instant at which the full quota is back, or the window ends; a client that wants to know when
// to try again reads Retry-After. Structured fields (RFC 9651) hold at most 15 digits; larger numbers are clamped.
//
// Several limiters on one response add to the lists, keep the larger Retry-After, and leave the X fields to whichever
// has fewer units left. Fields of a refusal are never overwritten by those of a pass.
//
// # Refusals
//
// A refusal is a problem document (RFC 9457) of the types that the draft registers, or the bare status phrase for
// clients that take text and no JSON. Titles are fixed; the detail is yours, by language ([Messages]); the whole body
// can be replaced ([Options].Body).
//
// # Shared values
//
// Most values of a response are said by many: constants, small numbers, the seconds of the hour to come. Their slices are
// made once and put into every header that says them. Replace a field (Set, Del, Add), as everybody does; writing into its
// slice, as in header["X-Ratelimit-Reset"][0] = "0", would change other responses. The texts of up to 8192 numbers are kept,
// which is less than half a megabyte.
//
// Everything here is safe for concurrent use once built.
package response
