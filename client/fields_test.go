package client

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var readAt = time.Date(2026, 5, 4, 12, 0, 0, 250e6, time.UTC)

func header(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

func TestRetryAfter(t *testing.T) {
	for name, c := range map[string]struct {
		h    http.Header
		want time.Duration
		none bool
	}{
		"seconds":                      {h: header("Retry-After", "7"), want: 7 * time.Second},
		"zero":                         {h: header("Retry-After", "0")},
		"blanks":                       {h: header("Retry-After", " 7\t"), want: 7 * time.Second},
		"longest of several":           {h: header("Retry-After", "7", "Retry-After", "9", "Retry-After", "x"), want: 9 * time.Second},
		"saturates":                    {h: header("Retry-After", "99999999999999999999999"), want: mostSeconds * time.Second},
		"longest in a list":            {h: header("Retry-After", "60, 120,5"), want: 120 * time.Second},
		"a list with something else":   {h: header("Retry-After", "60, x"), none: true},
		"an age that saturates":        {h: header("Date", "Mon, 04 May 2026 11:00:00 GMT", "Age", "10000000000", "Retry-After", "Mon, 04 May 2026 11:00:30 GMT")},
		"fraction rounds up":           {h: header("Retry-After", "0.493"), want: time.Second},
		"negative":                     {h: header("Retry-After", "-1"), none: true},
		"sign":                         {h: header("Retry-After", "+1"), none: true},
		"unit":                         {h: header("Retry-After", "1s"), none: true},
		"empty":                        {h: header("Retry-After", ""), none: true},
		"two dots":                     {h: header("Retry-After", "1.2.3"), none: true},
		"date by our clock":            {h: header("Retry-After", "Mon, 04 May 2026 12:00:30 GMT"), want: 29750 * time.Millisecond},
		"date in the past":             {h: header("Retry-After", "Mon, 04 May 2020 12:00:30 GMT")},
		"date that says UTC":           {h: header("Retry-After", "Mon, 04 May 2026 12:00:30 UTC"), want: 29750 * time.Millisecond},
		"date in another zone":         {h: header("Retry-After", "Mon, 04 May 2026 12:00:30 CEST"), none: true},
		"server an hour ahead":         {h: header("Date", "Mon, 04 May 2026 13:00:00 GMT", "Retry-After", "Mon, 04 May 2026 13:00:30 GMT"), want: 30 * time.Second},
		"server an hour behind":        {h: header("Date", "Mon, 04 May 2026 11:00:00 GMT", "Retry-After", "Mon, 04 May 2026 11:00:30 GMT"), want: 30 * time.Second},
		"date of something aged":       {h: header("Date", "Mon, 04 May 2026 11:00:00 GMT", "Age", "10", "Retry-After", "Mon, 04 May 2026 11:00:30 GMT"), want: 20 * time.Second},
		"seconds need no clock":        {h: header("Date", "Mon, 04 May 1999 11:00:00 GMT", "Retry-After", "3"), want: 3 * time.Second},
		"a broken Date is not counted": {h: header("Date", "yesterday", "Retry-After", "Mon, 04 May 2026 12:00:30 GMT"), want: 29750 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			a := readAdvice(c.h, readAt)
			require.Equal(t, !c.none, a.hasRetry)
			require.Equal(t, c.want, a.retry)
			require.Empty(t, a.bounds)
		})
	}
}

func TestQuotaFields(t *testing.T) {
	one := func(left int64, d time.Duration, quota int64) []bound {
		return []bound{{left: left, span: d, quota: quota}}
	}
	for name, c := range map[string]struct {
		h    http.Header
		want []bound
	}{
		"draft 11":               {header("RateLimit", `"default";r=50;t=30`, "RateLimit-Policy", `"default";q=100;w=60`), one(50, 30*time.Second, 100)},
		"without policy":         {header("RateLimit", `"default";r=50;t=30`), one(50, 30*time.Second, 0)},
		"window of the policy":   {header("RateLimit", `"p";r=0`, "RateLimit-Policy", `"p";q=9;w=60`), one(0, 60*time.Second, 9)},
		"no window at all":       {header("RateLimit", `"p";r=0`), nil},
		"two policies":           {header("RateLimit", `"a";r=1;t=2, "b";r=3;t=4`), []bound{{left: 1, span: 2 * time.Second}, {left: 3, span: 4 * time.Second}}},
		"two lines":              {header("RateLimit", `"a";r=1;t=2`, "RateLimit", `"b";r=3;t=4`), []bound{{left: 1, span: 2 * time.Second}, {left: 3, span: 4 * time.Second}}},
		"token as a name":        {header("RateLimit", `default;r=5;t=3`), one(5, 3*time.Second, 0)},
		"the text after 11":      {header("RateLimit", `"default";a=5;w=3`), one(5, 3*time.Second, 0)},
		"unknown parameters":     {header("RateLimit", `"p";r=5;t=3;acme-x="y";pk=:AAE=:`), one(5, 3*time.Second, 0)},
		"bytes are no requests":  {header("RateLimit", `"p";r=5;t=3, "n";r=7;t=1`, "RateLimit-Policy", `"p";q=10;qu="content-bytes";w=60`), one(7, time.Second, 0)},
		"requests said aloud":    {header("RateLimit", `"p";r=5;t=3`, "RateLimit-Policy", `"p";q=10;qu="requests"`), one(5, 3*time.Second, 10)},
		"negative is nothing":    {header("RateLimit", `"p";r=-1;t=3`), one(0, 3*time.Second, 0)},
		"a negative wait":        {header("RateLimit", `"p";r=1;t=-3`), nil},
		"draft 7, negative":      {header("RateLimit", `limit=100, remaining=-2, reset=30`), one(0, 30*time.Second, 100)},
		"decimal":                {header("RateLimit", `"p";r=1.5;t=3`), nil},
		"no r":                   {header("RateLimit", `"p";t=3`), nil},
		"sixteen digits":         {header("RateLimit", `"p";r=1234567890123456;t=3`), nil},
		"an inner list":          {header("RateLimit", `("p" "q");r=1;t=3`), nil},
		"malformed":              {header("RateLimit", `"p;r=1`), nil},
		"with an age":            {header("RateLimit", `"p";r=0;t=30`, "Age", "1"), nil},
		"with age zero":          {header("RateLimit", `"p";r=0;t=30`, "Age", "0"), one(0, 30*time.Second, 0)},
		"draft 7":                {header("RateLimit", `limit=100, remaining=50, reset=30`, "RateLimit-Policy", `100;w=60`), one(50, 30*time.Second, 100)},
		"draft 7, none left":     {header("RateLimit", `limit=100, remaining=0, reset=30`), one(0, 30*time.Second, 100)},
		"draft 7, no reset":      {header("RateLimit", `limit=100, remaining=50`), nil},
		"draft 6":                {header("RateLimit-Limit", "100, 100;w=60", "RateLimit-Remaining", "50", "RateLimit-Reset", "30"), one(50, 30*time.Second, 100)},
		"x, delta":               {header("X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "30"), one(0, 30*time.Second, 100)},
		"x, epoch":               {header("X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1777896030"), one(0, 29750*time.Millisecond, 100)},
		"x, epoch, their clock":  {header("Date", "Mon, 04 May 2026 13:00:00 GMT", "X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "1777899640"), one(3, 40*time.Second, 0)},
		"x, milliseconds":        {header("X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "1777896030000"), one(3, 29750*time.Millisecond, 0)},
		"x, over":                {header("X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "1577896030"), one(3, time.Second, 0)},
		"x, over and full again": {header("X-RateLimit-Limit", "9", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1577896030"), one(9, time.Second, 9)},
		"draft 11, over":         {header("RateLimit", `"p";r=0;t=0`, "RateLimit-Policy", `"p";q=9;w=60`), one(9, time.Second, 9)},
		"x, a date":              {header("X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "Mon, 04 May 2026 12:00:30 UTC"), one(3, 29750*time.Millisecond, 0)},
		"x, a fraction":          {header("X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "29.2"), one(3, 30*time.Second, 0)},
		"x, no reset":            {header("X-RateLimit-Remaining", "3"), nil},
		"x, not a number":        {header("X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "NaN"), nil},
		"x, negative":            {header("X-RateLimit-Remaining", "-3", "X-RateLimit-Reset", "30"), one(0, 30*time.Second, 0)},
		"x, negative in a list":  {header("X-RateLimit-Remaining", "7, -3", "X-RateLimit-Reset", "30"), one(0, 30*time.Second, 0)},
		"x, two signs":           {header("X-RateLimit-Remaining", "--3", "X-RateLimit-Reset", "30"), nil},
		"x, only a sign":         {header("X-RateLimit-Remaining", "-", "X-RateLimit-Reset", "30"), nil},
		"x, a negative wait":     {header("X-RateLimit-Remaining", "3", "X-RateLimit-Reset", "-30"), nil},
		"x, microseconds":        {header("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1777896030000000"), nil},
		"x, 401 days ahead":      {header("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1812542400"), nil},
		"x, 399 days ahead":      {header("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "1812369600"), one(0, 399*24*time.Hour-250*time.Millisecond, 0)},
		"x, a date far ahead":    {header("X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "Mon, 04 May 2099 12:00:30 GMT"), nil},
		"the tightest of many": {
			header("RateLimit", `"1";r=9;t=5,"2";r=9;t=5,"3";r=9;t=5,"4";r=9;t=5,"5";r=9;t=5,"6";r=9;t=5,"7";r=9;t=5,"8";r=9;t=5,"9";r=0;t=5,"10";r=9;t=7`),
			append([]bound{{span: 5 * time.Second}, {left: 9, span: 7 * time.Second}}, slices.Repeat([]bound{{left: 9, span: 5 * time.Second}}, 6)...),
		},
		"x with dashes":        {header("X-Rate-Limit-Limit", "15", "X-Rate-Limit-Remaining", "4", "X-Rate-Limit-Reset", "30"), one(4, 30*time.Second, 15)},
		"the draft goes first": {header("RateLimit", `"p";r=5;t=3`, "X-RateLimit-Remaining", "1", "X-RateLimit-Reset", "60"), one(5, 3*time.Second, 0)},
		"two limiters":         {header("X-RateLimit-Remaining", "9, 4", "X-RateLimit-Reset", "10, 30"), one(4, 30*time.Second, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			got := readAdvice(c.h, readAt).bounds
			for i := range got {
				got[i].name = ""
			}
			require.Equal(t, c.want, got)
		})
	}
}

// Of a thousand lines no more than the first few cost anything.
func TestManyLines(t *testing.T) {
	many := append(slices.Repeat([]string{"1"}, 8), slices.Repeat([]string{"7"}, 1000)...)
	require.Equal(t, time.Second, readAdvice(http.Header{keyRetry: many}, readAt).retry)
	h := http.Header{keyState: append([]string{`"a";r=3;t=7`}, slices.Repeat([]string{`"b";r=9;t=7`}, 10_000)...)}
	require.Equal(t, bound{name: "a", left: 3, span: 7 * time.Second}, readAdvice(h, readAt).bounds[0])
	h = http.Header{keyLeftX: append([]string{"3"}, slices.Repeat([]string{"1"}, 10_000)...), keyResetX: {"7"}}
	require.Equal(t, []bound{{left: 1, span: 7 * time.Second}}, readAdvice(h, readAt).bounds)
}

// Whatever is sent, waits are between nothing and what fits, and nothing panics.
func FuzzFields(f *testing.F) {
	for _, s := range []string{`"p";r=1;t=2`, "limit=1, remaining=2, reset=3", "12", "1777896030", "Mon, 04 May 2026 12:00:30 GMT", "1.5", "9e99", `"\"`, ";;", "::"} {
		f.Add(s, s, s, s)
	}
	f.Add("7", `"a";r=1`, `"a";q=1;w=9`, "0")
	f.Fuzz(func(t *testing.T, retry, state, policy, reset string) {
		for _, h := range []http.Header{
			{keyRetry: {retry}, keyState: {state}, keyPolicy: {policy}, keyDate: {reset}, keyAge: {policy}},
			{keyRetry: {retry, state}, keyState: {state, policy}, keyPolicy: {policy, reset}},
			{keyLeftX: {state}, keyQuotaX: {policy}, keyResetX: {reset}},
			{keyLeft06: {state, retry}, keyQuota06: {policy}, keyResetDash: {reset}, keyLeftDash: {retry}, keyReset06: {reset}},
		} {
			a := readAdvice(h, readAt)
			require.True(t, a.retry >= 0 && a.retry <= mostSeconds*time.Second)
			require.LessOrEqual(t, len(a.bounds), mostBounds)
			for _, b := range a.bounds {
				require.True(t, b.left >= 0 && b.quota >= 0 && b.span > 0 && b.span <= mostSeconds*time.Second, "%+v", b)
			}
		}
	})
}
