package keyfunc_test

import (
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/keyfunc"
)

// fake stands in for a framework.
type fake struct {
	route  string
	params map[string]string
	values map[string]any
	asked  int
}

func (f *fake) Route() string            { f.asked++; return f.route }
func (f *fake) Param(name string) string { return f.params[name] }
func (f *fake) Value(name string) (any, bool) {
	v, ok := f.values[name]
	return v, ok
}

// request makes a Request of the peer 192.0.2.1:1234 with the given header lines, "Name: value" each.
func request(lines ...string) *keyfunc.Request {
	req := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Add(name, value)
	}
	return wrap(req, nil, nil)
}

func wrap(req *http.Request, fw keyfunc.Framework, trust *keyfunc.ClientIP) *keyfunc.Request {
	r := new(keyfunc.Request)
	r.Reset(req, fw, trust)
	return r
}

// keyText resolves f and cuts the key out of the frozen buffer, as the guard does.
func keyText(r *keyfunc.Request, f keyfunc.Func) (string, error) {
	k, err := r.Resolve(f)
	if err != nil {
		return "", err
	}
	if got := k.In(r.Freeze()); got != k.String() {
		return "", fmt.Errorf("In gives %q, String %q", got, k.String())
	}
	return k.String(), nil
}

func requireKey(t *testing.T, want string, r *keyfunc.Request, f keyfunc.Func) {
	t.Helper()
	got, err := keyText(r, f)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// part is one kind and value of a key.
type part struct{ kind, value string }

var (
	kindPattern = regexp.MustCompile(`\A[a-z][a-z0-9_]{0,15}\z`)
	partPattern = regexp.MustCompile(`\A[a-z][a-z0-9_]{0,15}=([A-Za-z0-9._~:/-]|%[0-9A-F]{2}|[#][A-Za-z0-9_-]{43}\z|[$][A-Za-z0-9_-]{22}\z)+\z`)
)

// split reads an encoded key back: the inverse that makes the encoding injective. A plain value is decoded, a hashed or
// keyed one is returned as it is, mark included.
func split(key string) (parts []part, err error) {
	for piece := range strings.SplitSeq(key, "|") {
		kind, value, ok := strings.Cut(piece, "=")
		if !ok || value == "" {
			return nil, fmt.Errorf("part %q", piece)
		}
		if value[0] != '#' && value[0] != '$' {
			if value, err = decode(value); err != nil {
				return nil, err
			}
		}
		parts = append(parts, part{kind, value})
	}
	return parts, nil
}

func decode(value string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(value); i++ {
		c := value[i]
		switch {
		case strings.IndexByte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~:/", c) >= 0:
			b.WriteByte(c)
		case c == '%' && i+2 < len(value):
			raw, err := hex.DecodeString(value[i+1 : i+3])
			if err != nil || strings.ToUpper(value[i+1:i+3]) != value[i+1:i+3] {
				return "", fmt.Errorf("escape in %q", value)
			}
			b.WriteByte(raw[0])
			i += 2
		default:
			return "", fmt.Errorf("byte %q in %q", c, value)
		}
	}
	return b.String(), nil
}
