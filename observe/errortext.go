package observe

import "github.com/spillway-go/spillway/internal/errtext"

// ErrorText says of err what can be said without its text, for that may hold a key: the function that finds keys may name
// the one it could not look up, a panic may quote its request, a connection's error names the client's address, and Redis
// quotes the arguments of a command that it does not know, such as a script's keys.
//
// It is made of the errors in err's tree that are constants: those of limiter and keyfunc, of contexts, of the operating
// system ("connection refused"), time-outs; of the first word of an answer of Redis, if it is one that Redis is known to give
// ("OOM"); and of the names of other types. An example is "limiter: store unavailable: dial: connection refused". It is ""
// for nil, and "text withheld" where nothing can be said.
func ErrorText(err error) string { return errtext.Of(err) }
