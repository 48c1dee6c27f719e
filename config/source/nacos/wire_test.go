package nacossource_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	nacossource "github.com/spillway-go/spillway/config/source/nacos"
)

// What is written by hand is what the descriptor says, both ways.
func TestWire(t *testing.T) {
	for _, m := range []message{
		{kind: "A", ip: "192.0.2.1", headers: map[string]string{"k": "v"}, body: map[string]any{"x": "请求"}},
		{kind: "", headers: map[string]string{"": "", "long": string(make([]byte, 300))}, body: map[string]any{}},
	} {
		body, err := json.Marshal(m.body)
		require.NoError(t, err)
		data, err := nacossource.Encode(m.kind, m.ip, m.headers, body)
		require.NoError(t, err)
		p := dynamicpb.NewMessage(payloadType)
		require.NoError(t, proto.Unmarshal(data, p))
		require.Empty(t, p.GetUnknown())
		got, err := decode(p)
		require.NoError(t, err)
		require.Equal(t, m, got)

		p, err = encode(m)
		require.NoError(t, err)
		data, err = proto.Marshal(p)
		require.NoError(t, err)
		kind, gotBody, err := nacossource.Decode(data)
		require.NoError(t, err)
		require.Equal(t, m.kind, kind)
		require.JSONEq(t, string(body), string(gotBody))
	}
}

// Whatever comes is taken as the library for protocol buffers takes it, or refused.
func FuzzWire(f *testing.F) {
	for _, seed := range []string{"", "\x12\x03\x1a\x01A\x1a\x04\x12\x02{}", "\x12\xff", "\x08\x96\x01", "\x1b\x12\x00\x1c"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		kind, body, err := nacossource.Decode(data)
		p := dynamicpb.NewMessage(payloadType)
		if proto.Unmarshal(data, p) != nil {
			return // ours looks at less of it
		}
		require.NoError(t, err)
		require.Equal(t, get(get(p, "metadata").Message(), "type").String(), kind)
		require.Equal(t, string(get(get(p, "body").Message(), "value").Bytes()), string(body))
	})
}
