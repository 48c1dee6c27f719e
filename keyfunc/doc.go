// Package keyfunc says who is asking: it turns a request into a [Key], the identity whose quota is charged.
//
// A [Func] is a plain function. The package has one for each usual source and three that combine others:
//
//	keyfunc.IP()                                  // the client address, safe by default
//	keyfunc.User(currentUser)                     // your own idea of a user
//	keyfunc.Join(keyfunc.Tenant(tenant), keyfunc.Route())
//	keyfunc.First(keyfunc.User(currentUser), keyfunc.IP())
//	keyfunc.HMAC(secret, keyfunc.Header("X-Api-Key"))
//
// Writing your own is one line, and an empty value is never a bucket shared by strangers:
//
//	func(r *keyfunc.Request) (keyfunc.Key, error) { return r.Key("device", deviceID(r)), nil }
//
// # Choosing
//
//   - Before authentication: [IP]. Nothing else is known that the sender could not have made up.
//   - After it: [User] or [Tenant], from what authentication has verified. A key from an unverified name, header, cookie
//     or query value lets the sender pick a fresh quota per request, or spend somebody else's.
//   - Either: [First] of the user and the address.
//   - Per endpoint: [Join] with [Route], which is the router's pattern and never the raw path.
//   - Secret or personal values such as API keys and e-mail addresses: wrap them in [HMAC].
//
// # The client address
//
// By default the client is the peer of the connection and no header is read. Behind proxies, name them in a [Trust]; the
// list is then walked from the right, and the first address that is not one of yours is the client. Anything malformed
// stops the walk: nothing left of it is read, no other header is tried, and no text that is not an address becomes a key.
// A middleware that has rewritten RemoteAddr from a header before has undone all this; leave it out.
//
// # Encoding
//
// A key reads kind=value, parts joined by |, as in "tenant=acme|ip=203.0.113.7". Kinds are one to sixteen of a-z, 0-9
// and _, starting with a letter. Values keep A-Z a-z 0-9 - . _ ~ : / and write every other byte as %XX; a value of more
// than 128 bytes in that form becomes # and the base64url SHA-256 of kind, NUL and raw value; a keyed one is $ and the
// base64url of the first 16 bytes of an HMAC-SHA-256. The text can be split back into its parts, so two identities never
// share a key, and it holds no brace, so nobody can choose a Redis Cluster slot. Values are bytes: nothing is folded,
// trimmed or normalised. An application that treats Alice and alice alike has to fold the name first.
//
// # Errors
//
// [ErrNoKey] means that the request has no such key, [ErrSkip] that the policy does not apply to it, and an error
// wrapping [limiter.ErrInvalid] that the function is wrongly configured; [Check] finds the latter before traffic.
//
// The package imports the standard library and package limiter alone.
package keyfunc
