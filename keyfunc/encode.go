package keyfunc

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"strings"
	"sync"
)

// maxPlain is the longest encoded value that stays readable, in bytes. A longer one is hashed, never cut: cutting would
// merge identities, and keeping it would let a client fill the store.
const maxPlain = 128

// keyedBytes is how much of an HMAC a key holds. 128 bits keep two of n values from meeting up to n near 2⁶⁴.
const keyedBytes = 16

// minSecret is the shortest secret of [HMAC], in bytes.
const minSecret = 16

// plain marks the bytes a value keeps as they are. None of | = { } % # $ is among them: they frame the key.
var plain = func() (t [256]bool) {
	for i := range t {
		b := byte(i)
		t[i] = alnum(b) || strings.IndexByte("-._~:/", b) >= 0
	}
	return t
}()

const upperHex = "0123456789ABCDEF"

// text is what a raw value may be.
type text interface{ ~string | ~[]byte }

// validKind reports whether kind fits ^[a-z][a-z0-9_]{0,15}$.
func validKind(kind string) bool {
	if len(kind) == 0 || len(kind) > 16 || kind[0] < 'a' || kind[0] > 'z' {
		return false
	}
	for i := 1; i < len(kind); i++ {
		if b := kind[i]; (b < 'a' || b > 'z') && (b < '0' || b > '9') && b != '_' {
			return false
		}
	}
	return true
}

// KindOf returns the kind of the keys that [Header], [Cookie], [Query], [Param] and [Value] make of name: the name in
// lower case with - as _, or, where that does not fit the grammar of kinds, h_ and the first 8 hex digits of its
// SHA-256. Names that differ in case alone, or in - and _, are one kind.
func KindOf(name string) string {
	kind := strings.ReplaceAll(strings.ToLower(name), "-", "_")
	if validKind(kind) {
		return kind
	}
	sum := sha256.Sum256([]byte(kind))
	return "h_" + hex.EncodeToString(sum[:4])
}

// Encode returns the identity kind=value as it stands in a store's key, for limits whose key is known only outside of a
// request. It escapes and hashes as [Request.Key] does. An empty value is [ErrNoKey], a bad kind an error wrapping
// [limiter.ErrInvalid].
func Encode(kind, value string) (string, error) {
	var r Request
	k := r.Key(kind, value)
	if err := k.Err(); err != nil {
		return "", err
	}
	return k.String(), nil
}

// makeKey appends kind=value to the buffer of r.
func makeKey[T text](r *Request, kind string, value T) Key {
	if !validKind(kind) {
		return Key{r: r, lo: 1, hi: 0, gen: r.gen}
	}
	if r.probe != nil {
		r.probe.kinds = append(r.probe.kinds, kind)
	}
	if len(value) == 0 {
		return Key{}
	}
	lo := len(r.buf)
	r.buf = append(append(r.buf, kind...), '=')
	switch {
	case r.mac != nil:
		r.buf = append(r.buf, '$')
		appendDigest(r, r.mac, keyedBytes, kind, value)
	case !appendPlain(r, value):
		h := hashers.Get().(hash.Hash)
		r.buf = append(r.buf, '#')
		appendDigest(r, h, sha256.Size, kind, value)
		hashers.Put(h)
	}
	return r.since(lo)
}

// since is the key from lo to the end of the buffer.
func (r *Request) since(lo int) Key {
	return Key{r: r, lo: uint32(lo), hi: uint32(len(r.buf)), gen: r.gen}
}

// appendPlain appends value with every byte outside the plain set as %XX. It reports false, appending nothing, if that
// takes more than maxPlain bytes.
func appendPlain[T text](r *Request, value T) bool {
	if len(value) > maxPlain {
		return false
	}
	buf := r.buf
	for i := range len(value) {
		if b := value[i]; plain[b] {
			buf = append(buf, b)
		} else {
			buf = append(buf, '%', upperHex[b>>4], upperHex[b&15])
		}
	}
	if len(buf)-len(r.buf) > maxPlain {
		return false
	}
	r.buf = buf
	return true
}

var hashers = sync.Pool{New: func() any { return sha256.New() }}

// appendDigest appends the first n bytes of h(kind NUL value) in base64url. The kind is inside, so that one value has
// unrelated digests as a user and as an address. The value passes through the scratch buffer piecewise: a value of a
// megabyte must not leave a megabyte in every pooled Request. It may be the scratch buffer itself, which is then moved to
// its own front.
func appendDigest[T text](r *Request, h hash.Hash, n int, kind string, value T) {
	const piece = 512
	h.Reset()
	from := len(r.buf)
	r.buf = append(append(r.buf, kind...), 0)
	h.Write(r.buf[from:])
	r.buf = r.buf[:from]
	for len(value) > 0 {
		m := min(piece, len(value))
		r.raw = append(r.raw[:0], value[:m]...)
		h.Write(r.raw)
		value = value[m:]
	}
	r.buf = base64.RawURLEncoding.AppendEncode(r.buf, h.Sum(r.sum[:0])[:n])
}

// HMAC is f with keyed values: who can list the keys of the store learns neither the values nor whether a guess was
// right, as they would from a plain hash of an address or e-mail. Every value of f becomes $ and 22 characters, its kind
// stays readable. Use it for API keys, tokens, e-mail addresses. All processes that share a store need the same secret;
// another secret is another set of counters. A secret of less than 16 bytes or a nil f is an error wrapping
// [limiter.ErrInvalid]. Of two nested HMACs the inner one decides.
func HMAC(secret []byte, f Func) Func {
	if len(secret) < minSecret {
		return fail(invalid("HMAC: secret of %d bytes, want %d or more", len(secret), minSecret))
	}
	if f == nil {
		return fail(invalid("HMAC: function is nil"))
	}
	secret = append([]byte(nil), secret...)
	pool := &sync.Pool{New: func() any { return hmac.New(sha256.New, secret) }}
	return func(r *Request) (Key, error) {
		mac, outer := pool.Get().(hash.Hash), r.mac
		r.mac = mac
		defer func() { // also when f panics: the guard may go on with the next policy
			r.mac = outer
			pool.Put(mac)
		}()
		k, err := r.Resolve(f)
		if err != nil {
			return Key{}, err
		}
		// f may have returned a key it had made earlier, outside of this function. Its value would go into the store in
		// the clear.
		for rest := k.text(); len(rest) > 0; {
			var part []byte
			part, rest = cutPart(rest)
			if v := len(kindOf(part)) + 1; part[v] != '$' {
				return Key{}, errNotKeyed
			}
		}
		return k, nil
	}
}

var errNotKeyed = invalid("HMAC: the function returned a key made before it was called")

// cutPart splits the first part off an encoded key.
func cutPart(key []byte) (part, rest []byte) {
	part, rest, _ = bytes.Cut(key, []byte("|"))
	return part, rest
}

// kindOf returns the kind of a part.
func kindOf(part []byte) []byte { return part[:max(bytes.IndexByte(part, '='), 0)] }
