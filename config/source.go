package config

import (
	"context"
	"errors"
)

// Source is where a policy document comes from: a file, a key in a store, a config centre. Implementations are safe for
// concurrent use. One that has a String method is named by it in logs and events; the name holds no secret.
type Source interface {
	// Load returns the document as it is now. [ErrIncomplete] says that there is none yet, or none that is whole: whoever
	// follows keeps what it has and asks again. Any other error says that the source could not be asked.
	Load(ctx context.Context) ([]byte, error)
	// Watch calls changed whenever the document may have changed, and once as soon as it would notice a change, so that
	// nothing is missed between a Load and the beginning of a Watch. changed returns at once, and calling it for nothing
	// does no harm. Watch returns when ctx ends, with its error, or when the watch is lost, with the cause: whoever
	// follows begins again after a pause. When it returns, everything it has started has ended.
	Watch(ctx context.Context, changed func()) error
}

// ErrIncomplete is the error of a [Source] whose document is missing, empty or half written: a moment of its life, as while
// an editor saves it, and no bad version.
var ErrIncomplete = errors.New("config: there is no whole document yet")

// MaxDocument is the size in bytes above which sources refuse a document: 1 MiB. No policy needs as much, and what comes
// over a network is not to be trusted with the memory of the process.
const MaxDocument = 1 << 20
