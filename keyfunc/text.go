package keyfunc

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
