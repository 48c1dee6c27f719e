package degrade_test

import (
	"math"
	"strings"
	"testing"

	"github.com/pquerna/cachecontrol/cacheobject"
	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/degrade"
)

func TestDirectives(t *testing.T) {
	for line, want := range map[string]struct {
		forbids, public, bad bool
		numbers              [4]int64 // max-age, stale-if-error, min-fresh, max-stale
	}{
		"":                                     {numbers: [4]int64{-1, -1, -1, -1}},
		" , ,":                                 {numbers: [4]int64{-1, -1, -1, -1}},
		"public":                               {public: true, numbers: [4]int64{-1, -1, -1, -1}},
		"PUBLIC ,Max-Age=60":                   {public: true, numbers: [4]int64{60, -1, -1, -1}},
		"max-age=60,public":                    {public: true, numbers: [4]int64{60, -1, -1, -1}},
		`max-age="60"`:                         {numbers: [4]int64{60, -1, -1, -1}},
		`max-age="6\0"`:                        {numbers: [4]int64{60, -1, -1, -1}},
		"max-age=060":                          {numbers: [4]int64{60, -1, -1, -1}},
		"max-age=60, max-age=30, max-age=90":   {numbers: [4]int64{30, -1, -1, -1}},
		"min-fresh=3, min-fresh=9":             {numbers: [4]int64{-1, -1, 9, -1}},
		"max-stale, max-stale=5":               {numbers: [4]int64{-1, -1, -1, 5}},
		"max-age=2147483647":                   {numbers: [4]int64{math.MaxInt32, -1, -1, -1}},
		"max-age=2147483648":                   {numbers: [4]int64{1 << 31, -1, -1, -1}},
		"max-age=2147483649":                   {numbers: [4]int64{1 << 31, -1, -1, -1}},
		"max-age=99999999999999999999999999":   {numbers: [4]int64{1 << 31, -1, -1, -1}},
		"stale-if-error=600, max-age=1":        {numbers: [4]int64{1, 600, -1, -1}},
		"no-store":                             {forbids: true, numbers: [4]int64{-1, -1, -1, -1}},
		"NO-STORE":                             {forbids: true, numbers: [4]int64{-1, -1, -1, -1}},
		"private, no-store":                    {forbids: true, numbers: [4]int64{-1, -1, -1, -1}},
		"max-age=60,private":                   {forbids: true, numbers: [4]int64{60, -1, -1, -1}},
		`private="X-A, no-cache"`:              {forbids: true, numbers: [4]int64{-1, -1, -1, -1}},
		`no-cache="Set-Cookie"`:                {forbids: true, numbers: [4]int64{-1, -1, -1, -1}},
		"no-cache=Set-Cookie":                  {forbids: true, numbers: [4]int64{-1, -1, -1, -1}},
		"must-revalidate":                      {forbids: true, numbers: [4]int64{-1, -1, -1, -1}},
		"proxy-revalidate":                     {forbids: true, numbers: [4]int64{-1, -1, -1, -1}},
		"s-maxage=9":                           {forbids: true, numbers: [4]int64{-1, -1, -1, -1}},
		"public, private":                      {forbids: true, public: true, numbers: [4]int64{-1, -1, -1, -1}},
		`x="no-store, private", public`:        {public: true, numbers: [4]int64{-1, -1, -1, -1}},
		`x="a\", no-store", public`:            {public: true, numbers: [4]int64{-1, -1, -1, -1}},
		`x="a\\", no-store`:                    {forbids: true, numbers: [4]int64{-1, -1, -1, -1}},
		"public=yes":                           {numbers: [4]int64{-1, -1, -1, -1}},
		"nonsense, immutable, x=y":             {numbers: [4]int64{-1, -1, -1, -1}},
		"must-understand, no-store":            {forbids: true, numbers: [4]int64{-1, -1, -1, -1}},
		"no-store-please, privateer, x-public": {numbers: [4]int64{-1, -1, -1, -1}},
	} {
		d := degrade.ParseDirectives([]string{line})
		require.Equal(t, want.bad, d.Bad(), line)
		require.Equal(t, want.forbids, d.Forbids(), line)
		require.Equal(t, want.public, d.Public(), line)
		require.Equal(t, want.numbers, d.Numbers(), line)
	}
	for _, garbage := range []string{
		"private; max-age=60", "max-age=-1", "max-age=+1", "max-age=1.5", "max-age", "max-age=", "max-age= 60", "max-age =60", "max-age=60s", `max-age=""`,
		`x="no-store`, `x="`, `x="a\`, "public private", "=", "=x", "public, \x00", "x=\"\x7f\"", "ｐｕｂｌｉｃ", `"public"`, "x=[1]", "public,;",
		"stale-if-error=x", "max-stale=x", "min-fresh",
	} {
		d := degrade.ParseDirectives([]string{garbage})
		require.True(t, d.Bad(), "%q", garbage)
		require.True(t, d.Forbids(), "%q", garbage)
	}
	// All lines count, whichever says it.
	for _, lines := range [][]string{{"public", "no-store"}, {"no-store", "public"}, {"max-age=60", "", "private"}, {"public", "\""}} {
		d := degrade.ParseDirectives(lines)
		require.True(t, d.Forbids(), "%q", lines)
	}
}

// What another parser takes for a prohibition, this one must not pass over, and what it reads it reads alike.
func FuzzDirectives(f *testing.F) {
	for _, s := range []string{
		"private, no-store", `no-cache="a,b", max-age=60`, `x="a\",no-store"`, "max-age=2147483648", `public, x="`, "private=a, b", "no-cache=a,b no-store",
		"s-maxage=1,must-revalidate", `"no-store"`, "no-store;public",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		d := degrade.ParseDirectives([]string{line})
		// Two lines are one list, RFC 9110 5.3, wherever a list may be cut.
		if joined := degrade.ParseDirectives([]string{line, "public"}); !d.Bad() {
			require.Equal(t, d.Forbids(), joined.Forbids())
			require.True(t, joined.Public())
		}
		if !d.Bad() {
			more := degrade.ParseDirectives([]string{line + ", no-store"})
			require.True(t, more.NoStore(), "%q hides what follows", line)
		}
		o, err := cacheobject.ParseResponseCacheControl(line)
		if err != nil {
			return
		}
		if o.NoStore || o.NoCachePresent || o.PrivatePresent || o.MustRevalidate || o.ProxyRevalidate || o.SMaxAge >= 0 {
			require.True(t, d.Forbids(), "%q", line)
		}
		if d.Bad() {
			return
		}
		require.Equal(t, o.Public, d.Public(), "%q", line)
		// Of the numbers said twice it takes the last one, and none above 2^31-1.
		if strings.Count(strings.ToLower(line), "max-age") == 1 && o.MaxAge >= 0 {
			require.Equal(t, int64(o.MaxAge), min(d.Numbers()[0], math.MaxInt32), "%q", line)
		}
	})
}
