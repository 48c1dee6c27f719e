package nacossource

import (
	"context"
	"net"
)

// SetDial has the source reach its servers in another way.
func (s *Source) SetDial(dial func(ctx context.Context, addr string) (net.Conn, error)) {
	s.dial = dial
}

const (
	Beat    = beat
	Renewal = renewal
)

// Decode reads a message as it comes over the wire.
func Decode(data []byte) (kind string, body []byte, err error) {
	var p payload
	err = codec{}.Unmarshal(data, &p)
	return p.kind, p.body, err
}

// Encode writes one.
func Encode(kind, ip string, headers map[string]string, body []byte) ([]byte, error) {
	return codec{}.Marshal(&payload{kind: kind, ip: ip, headers: headers, body: body})
}
