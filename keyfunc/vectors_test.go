package keyfunc_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/keyfunc"
	"github.com/spillway-go/spillway/limiter"
)

type ipVector struct {
	ID             string      `json:"id"`
	Desc           string      `json:"desc"`
	RemoteAddr     string      `json:"remote_addr"`
	Headers        [][2]string `json:"headers"`
	TrustedProxies []string    `json:"trusted_proxies"`
	Strategy       string      `json:"strategy"`
	StrategyArg    string      `json:"strategy_arg"`
	IPv6Prefix     int         `json:"ipv6_prefix"`
	IPv4Prefix     int         `json:"ipv4_prefix"`
	TrustUnix      bool        `json:"trust_unix"`
	NAT64Prefixes  []string    `json:"nat64_prefixes"`
	Expected       struct {
		Key, Error  string
		ConfigError string `json:"config_error"`
		FallbackKey string `json:"fallback_key"`
	} `json:"expected"`
}

type encodingVector struct {
	ID        string       `json:"id"`
	Relation  string       `json:"relation"`
	A         *vectorKey   `json:"a"`
	B         *vectorKey   `json:"b"`
	RouteA    *vectorRoute `json:"route_a"`
	RouteB    *vectorRoute `json:"route_b"`
	ExpectedA string       `json:"expected_a"`
	ExpectedB string       `json:"expected_b"`
	SlotA     int          `json:"slot_a"`
	SlotB     int          `json:"slot_b"`
	ErrorA    string       `json:"error_a"`
}

type vectorKey struct {
	Prefix, Policy, Suffix string
	Parts                  []struct {
		Kind, Value, Mode string
		ValueHex          string `json:"value_hex"`
	}
}

type vectorRoute struct {
	Method, Pattern string
	RawPath         string `json:"raw_path"`
}

func vectors(t *testing.T) (v struct {
	IP       []ipVector       `json:"ip_extraction"`
	Encoding []encodingVector `json:"key_encoding"`
},
) {
	t.Helper()
	raw, err := os.ReadFile("testdata/vectors.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &v))
	require.NotEmpty(t, v.IP)
	require.NotEmpty(t, v.Encoding)
	return v
}

var causes = map[string]error{
	"no_peer": keyfunc.ErrNoPeer, "no_client_ip": keyfunc.ErrNoClientIP,
	"invalid_forwarded": keyfunc.ErrInvalidForwarded, "too_few_hops": keyfunc.ErrTooFewHops,
}

func TestVectorsClientIP(t *testing.T) {
	for _, v := range vectors(t).IP {
		t.Run(v.ID, func(t *testing.T) {
			trust := keyfunc.Trust{
				Strategy: keyfunc.Strategy(v.Strategy), TrustedProxies: v.TrustedProxies, TrustUnix: v.TrustUnix,
				IPv6Prefix: v.IPv6Prefix, IPv4Prefix: v.IPv4Prefix, NAT64Prefixes: v.NAT64Prefixes,
			}
			switch trust.Strategy {
			case keyfunc.XForwardedForCount:
				n, err := strconv.Atoi(v.StrategyArg)
				require.NoError(t, err)
				trust.Count = n
			case keyfunc.SingleHeader:
				trust.Header = v.StrategyArg
			}
			c, err := keyfunc.NewClientIP(trust)
			if v.Expected.ConfigError != "" {
				var te *keyfunc.TrustError
				require.ErrorAs(t, err, &te)
				require.Equal(t, v.Expected.ConfigError, te.Code)
				require.ErrorIs(t, err, limiter.ErrInvalid)
				require.ErrorIs(t, keyfunc.Check(keyfunc.IP(keyfunc.TrustedBy(trust))), limiter.ErrInvalid)
				return
			}
			require.NoError(t, err)

			req := httptest.NewRequest(http.MethodGet, "/", nil)
			req.RemoteAddr = v.RemoteAddr
			for _, h := range v.Headers {
				req.Header.Add(h[0], h[1])
			}
			r := wrap(req, nil, c)
			cause := causes[v.Expected.Error]
			_, err = r.ClientIP()
			require.ErrorIs(t, err, cause)
			key, err := keyText(r, keyfunc.IP())
			switch {
			case v.Expected.Error == "":
				require.NoError(t, err)
				require.Equal(t, "ip="+v.Expected.Key, key)
				require.NoError(t, r.Fallback())
			case v.Expected.FallbackKey != "":
				require.NoError(t, err)
				require.Equal(t, "ip="+v.Expected.FallbackKey, key)
				require.Equal(t, cause, r.Fallback())
			default:
				require.ErrorIs(t, err, keyfunc.ErrNoKey)
				require.ErrorIs(t, err, cause)
			}

			// The same by the options, and what deny and allow make of an error.
			again, err2 := keyText(wrap(req, nil, nil), keyfunc.IP(keyfunc.TrustedBy(trust)))
			require.Equal(t, err, err2)
			require.Equal(t, key, again)
			if v.Expected.Error != "" {
				trust.OnKeyError = keyfunc.DenyRequest
				_, err = keyText(r, keyfunc.IP(keyfunc.TrustedBy(trust)))
				require.ErrorIs(t, err, keyfunc.ErrNoKey)
				require.ErrorIs(t, err, cause)
				trust.OnKeyError = keyfunc.AllowRequest
				_, err = keyText(r, keyfunc.IP(keyfunc.TrustedBy(trust)))
				require.ErrorIs(t, err, keyfunc.ErrSkip)
			}
		})
	}
}

const vectorSecret = "vector-secret-do-not-use"

// errBadName stands for what whoever renders a key answers to a name that ValidName refuses.
var errBadName = errors.New("bad name")

// render makes the store key of a vector through the public functions.
func (v *vectorKey) render() (string, error) {
	if !keyfunc.ValidName(v.Prefix) || !keyfunc.ValidName(v.Policy) {
		return "", errBadName
	}
	var funcs []keyfunc.Func
	for _, p := range v.Parts {
		value := p.Value
		if p.ValueHex != "" {
			raw, err := hex.DecodeString(p.ValueHex)
			if err != nil {
				return "", err
			}
			value = string(raw)
		}
		f := keyfunc.Func(func(r *keyfunc.Request) (keyfunc.Key, error) { return r.Key(p.Kind, value), nil })
		if p.Mode == "hmac" {
			f = keyfunc.HMAC([]byte(vectorSecret), f)
		}
		funcs = append(funcs, f)
	}
	id, err := keyText(request(), keyfunc.Join(funcs...))
	return limiter.Key{Space: v.Policy, ID: id}.Render(v.Prefix, v.Suffix), err
}

func (v *vectorRoute) key() (string, error) {
	req := httptest.NewRequest(http.MethodGet, v.RawPath, nil)
	req.Method = v.Method
	key, err := keyText(wrap(req, &fake{route: v.Pattern}, nil), keyfunc.Route())
	if err != nil {
		return "", err
	}
	parts, err := split(key)
	if err != nil {
		return "", err
	}
	return parts[0].value, nil
}

func TestVectorsEncoding(t *testing.T) {
	refusals := map[string]error{"empty_part": keyfunc.ErrNoKey, "bad_kind": limiter.ErrInvalid, "bad_name": errBadName}
	for _, v := range vectors(t).Encoding {
		t.Run(v.ID, func(t *testing.T) {
			if v.Relation == "error" {
				_, err := v.A.render()
				require.ErrorIs(t, err, refusals[v.ErrorA])
				return
			}
			var a, b string
			var errA, errB error
			if v.RouteA != nil {
				a, errA = v.RouteA.key()
				b, errB = v.RouteB.key()
			} else {
				a, errA = v.A.render()
				b, errB = v.B.render()
				require.Equal(t, v.SlotA, slot(a))
				require.Equal(t, v.SlotB, slot(b))
			}
			require.NoError(t, errA)
			require.NoError(t, errB)
			require.Equal(t, v.ExpectedA, a)
			require.Equal(t, v.ExpectedB, b)
			switch v.Relation {
			case "must_differ":
				require.NotEqual(t, a, b)
			case "must_equal":
				require.Equal(t, a, b)
			case "same_slot":
				require.Equal(t, slot(a), slot(b))
			default:
				t.Fatalf("relation %q", v.Relation)
			}
		})
	}
}

// slot is the Redis Cluster slot of a key: CRC-16/XMODEM of the text between the first { and the next }.
func slot(key string) int {
	for i := range len(key) {
		if key[i] != '{' {
			continue
		}
		for j := i + 1; j < len(key); j++ {
			if key[j] == '}' && j > i+1 {
				key = key[i+1 : j]
				break
			}
		}
		break
	}
	crc := uint16(0)
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc % 16384)
}
