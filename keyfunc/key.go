package keyfunc

// Key is the identity of a request: a span of the buffer of its [Request], valid while that request is served. Making
// one does not allocate. The zero Key is no identity at all, and neither is one made of an empty value: where a [Func]
// returns such a Key without an error, that counts as [ErrNoKey].
type Key struct {
	r      *Request
	lo, hi uint32 // r.buf[lo:hi]; hi < lo marks a kind that breaks the grammar
	gen    uint32 // the request r was serving when the key was made
}

// IsZero tells whether k names nobody: it is the zero Key, or it was made of an empty value or a bad kind.
func (k Key) IsZero() bool { return k.hi <= k.lo }

// Err tells why k names nobody: [ErrNoKey] for an empty value, an error wrapping [limiter.ErrInvalid] for a kind that
// breaks the grammar or a Key kept from an earlier request. It is nil for a usable Key.
func (k Key) Err() error {
	switch {
	case k.hi < k.lo:
		return errBadKind
	case k.hi == k.lo:
		return ErrNoKey
	case k.gen != k.r.gen:
		return errStale
	}
	return nil
}

// String returns the encoded identity, such as "tenant=acme|ip=203.0.113.7", or "" if k names nobody. It allocates;
// [Key.In] does not.
func (k Key) String() string { return string(k.text()) }

// In cuts k out of frozen, which is what [Request.Freeze] returned after k was made. All keys of a request are so parts
// of one immutable string, which may be kept for as long as one likes.
func (k Key) In(frozen string) string {
	if int(k.hi) > len(frozen) || k.IsZero() || k.gen != k.r.gen {
		return k.String()
	}
	return frozen[k.lo:k.hi]
}

// text returns the bytes of k, none if it names nobody.
func (k Key) text() []byte {
	if k.Err() != nil {
		return nil
	}
	return k.r.buf[k.lo:k.hi]
}

var (
	errBadKind = invalid("key: a kind is 1 to 16 of a-z, 0-9 and _, beginning with a letter")
	errStale   = invalid("key: made by another request")
)

// ValidName tells whether s may name a policy or be a store's key prefix: 1 to 64 of A-Z a-z 0-9 _ . -, beginning with a
// letter or digit. Such a name can hold neither the colon that ends it in a store's key nor a brace that would move the
// key to another Redis Cluster slot.
func ValidName(s string) bool {
	if len(s) == 0 || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		if b := s[i]; !alnum(b) && (i == 0 || b != '_' && b != '.' && b != '-') {
			return false
		}
	}
	return true
}

func alnum(b byte) bool {
	return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9'
}
