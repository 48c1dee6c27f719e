package rediscall

import (
	"context"
	"errors"

	"github.com/redis/go-redis/v9"
)

// RunAny is [Client.Run] for scripts whose reply is not one string: it returns the reply as go-redis reads it, an array as
// []any, an integer as int64. A reply of nil is a nil value, not an error.
func (c *Client) RunAny(ctx context.Context, s *Script, keys []string, args ...any) (any, error) {
	b, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer b.end()
	known, again := true, false
	for pause := firstPause; ; {
		// Same words and key positions as a script with a string reply.
		same := scriptCmd(b, make([]any, 0, 3+len(keys)+len(args)), s, known, keys, args)
		cmd := anyCmd{redis.NewCmd(b, same.Args()...)}
		cmd.SetStepCount(1)
		if len(keys) > 0 {
			cmd.SetFirstKeyPos(3)
		}
		err := c.rdb.Process(b, cmd)
		switch {
		case err == nil:
			return cmd.Val(), nil
		case errors.Is(err, redis.Nil):
			return nil, nil
		case known && isUnknown(err):
			known = false // the source is sent instead
		case !again && c.didNotRun(err) && !b.over():
			again = true
		case isMoving(err) && b.pause(&pause):
		default:
			return nil, c.fault(b, err)
		}
	}
}
