package limiter

// Key says whose quota is meant: an identity inside a space. The space is the policy (with its stage), the identity is
// the encoded kinds and values of the caller. Keys are values and may be used as map keys.
type Key struct {
	Space string // names the counter, usually the policy
	ID    string // encoded identity, such as "tenant=acme|ip=203.0.113.7"; see package keyfunc
}

// Render spells the key for a store that other programs see: prefix:Space:{ID}, followed by :suffix if suffix is not
// empty. The braces make all counters of one identity share a Redis Cluster slot. An empty prefix is left out. A key
// with an empty Space is its ID and nothing else: it keeps the key of a system one migrates from.
func (k Key) Render(prefix, suffix string) string {
	if k.Space == "" {
		return k.ID
	}
	return string(k.AppendRender(make([]byte, 0, len(prefix)+len(k.Space)+len(k.ID)+len(suffix)+5), prefix, suffix))
}

// AppendRender is [Key.Render] into a buffer.
func (k Key) AppendRender(dst []byte, prefix, suffix string) []byte {
	if k.Space == "" {
		return append(dst, k.ID...)
	}
	if prefix != "" {
		dst = append(dst, prefix...)
		dst = append(dst, ':')
	}
	dst = append(dst, k.Space...)
	dst = append(dst, ':', '{')
	dst = append(dst, k.ID...)
	dst = append(dst, '}')
	if suffix != "" {
		dst = append(dst, ':')
		dst = append(dst, suffix...)
	}
	return dst
}
