// Package httpsource follows a policy document on a web server.
//
//	src, err := httpsource.New(httpsource.Config{
//		URL:    "https://config.example.com/shop/limits.yaml",
//		Header: http.Header{"Authorization": {"Bearer " + token}},
//	})
//
// Import it under its own name:
//
//	import httpsource "github.com/spillway-go/spillway/config/source/http"
//
// # Asking
//
// The server is asked every Config.Interval, give or take a tenth so that replicas do not ask in step, for a document other
// than the last one: by its ETag, or by its Last-Modified where that was old enough to tell two editions apart. A server with
// neither sends the whole document each time. How long a response may be cached does not count, as Config.Interval says it
// all; caches on the way are asked to look anew, which not all of them do. The last document is kept for an answer of 304.
//
// # Answers
//
//	200                    the document; empty: config.ErrIncomplete
//	204, 404, 410          config.ErrIncomplete
//	304                    the document as it was
//	any other              an error
//	429, 503, Retry-After  an error, and nothing is asked before that time is over, ten minutes at most
//
// A document is whole or an error: one that is cut off is noticed by its length, its chunks or its checksum, and one that
// came with none of them, ended by the end of the connection alone, is refused. Config.Timeout is for all of an answer, however
// slowly it comes, and [config.MaxDocument] for what it is after decompression.
//
// # Secrets
//
// Use https. A document that came in the clear may be anybody's, so http is logged as a warning unless the host is this
// one. What may be secret in a URL, user, password and query, is in no error, log or name, and neither are headers. With
// credentials, which are a user in the URL, Config.Header and Config.Prepare, no redirect is followed to another scheme,
// host or port; without, none from https to http.
package httpsource
