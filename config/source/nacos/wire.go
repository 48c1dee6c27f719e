package nacossource

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// payload is the one message of Nacos's gRPC service: the name of a request or an answer, headers, and the JSON of it. In
// protocol buffers it is
//
//	message Payload  { Metadata metadata = 2; google.protobuf.Any body = 3; }
//	message Metadata { string type = 3; map<string, string> headers = 7; string clientIp = 8; }
//
// where only the value of body is used. It is written here by hand, as generated code would be registered with the process
// under a name that the client of the Nacos project registers, too, and two of a name end the process.
type payload struct {
	kind    string
	ip      string
	headers map[string]string
	body    []byte
}

// codec carries a *payload.
type codec struct{}

// Name is that of protocol buffers, whose bytes they are.
func (codec) Name() string { return "proto" }

func (codec) Marshal(v any) ([]byte, error) {
	p, ok := v.(*payload)
	if !ok {
		return nil, fmt.Errorf("nacossource: a message of type %T", v)
	}
	var meta []byte
	meta = appendBytes(meta, 3, []byte(p.kind))
	for name, value := range p.headers {
		entry := appendBytes(nil, 1, []byte(name))
		entry = appendBytes(entry, 2, []byte(value))
		meta = appendBytes(meta, 7, entry)
	}
	if p.ip != "" {
		meta = appendBytes(meta, 8, []byte(p.ip))
	}
	out := appendBytes(nil, 2, meta)
	return appendBytes(out, 3, appendBytes(nil, 2, p.body)), nil
}

func appendBytes(b []byte, field protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), value)
}

var errWire = errors.New("a message that is not one of Nacos")

func (codec) Unmarshal(data []byte, v any) error {
	p, ok := v.(*payload)
	if !ok {
		return fmt.Errorf("nacossource: a message of type %T", v)
	}
	*p = payload{}
	return eachBytes(data, func(field protowire.Number, value []byte) error {
		switch field {
		case 2:
			return eachBytes(value, func(field protowire.Number, value []byte) error {
				if field == 3 {
					p.kind = string(value)
				}
				return nil // nothing in the headers is of interest
			})
		case 3:
			return eachBytes(value, func(field protowire.Number, value []byte) error {
				if field == 2 {
					p.body = append([]byte(nil), value...) // data is used again
				}
				return nil
			})
		}
		return nil
	})
}

// eachBytes calls f for every field of a message that is a string, bytes or a message, and skips the others.
func eachBytes(data []byte, f func(field protowire.Number, value []byte) error) error {
	for len(data) > 0 {
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return errWire
		}
		data = data[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(field, kind, data); n < 0 {
				return errWire
			}
			data = data[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(data)
		if n < 0 {
			return errWire
		}
		data = data[n:]
		if err := f(field, value); err != nil {
			return err
		}
	}
	return nil
}
