package degrade_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/degrade"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return noon.Add(d) }

func httpDate(d time.Duration) string { return at(d).Format(http.TimeFormat) }

func fieldsOf(fields ...string) http.Header {
	h := http.Header{}
	setFields(h, fields)
	return h
}

func TestInitialAge(t *testing.T) {
	for name, c := range map[string]struct {
		fields []string
		delay  time.Duration
		want   time.Duration
	}{
		"nothing said":        {nil, 0, 0},
		"Age":                 {[]string{"Age: 30"}, 0, 30 * time.Second},
		"Age and a delay":     {[]string{"Age: 30"}, 2 * time.Second, 32 * time.Second},
		"Date":                {[]string{"Date: " + httpDate(-45*time.Second)}, 0, 45 * time.Second},
		"Date older than Age": {[]string{"Date: " + httpDate(-45*time.Second), "Age: 30"}, 0, 45 * time.Second},
		"Age more than Date":  {[]string{"Date: " + httpDate(-45*time.Second), "Age: 50"}, 0, 50 * time.Second},
		"Date in the future":  {[]string{"Date: " + httpDate(time.Hour)}, 0, 0},
		"the clock went back": {nil, -time.Hour, 0},
		"no date":             {[]string{"Date: yesterday"}, 0, 0},
		"no age":              {[]string{"Age: -5"}, 0, 0},
		"a list":              {[]string{"Age: 7, 9"}, 0, 7 * time.Second},
		"overflow":            {[]string{"Age: 99999999999999999999"}, time.Hour, 1 << 31 * time.Second},
		"Date of year 1":      {[]string{"Date: Mon, 01 Jan 0001 00:00:00 GMT"}, 0, 1 << 31 * time.Second},
	} {
		require.Equal(t, c.want, degrade.InitialAge(fieldsOf(c.fields...), noon.Add(-c.delay), noon), name)
	}
}

func TestLifetime(t *testing.T) {
	for name, c := range map[string]struct {
		fields []string
		want   time.Duration
	}{
		"nothing said":         {nil, -1},
		"max-age":              {[]string{"Cache-Control: max-age=60"}, time.Minute},
		"max-age before":       {[]string{"Cache-Control: max-age=60", "Expires: " + httpDate(time.Hour)}, time.Minute},
		"Expires":              {[]string{"Expires: " + httpDate(time.Hour)}, time.Hour},
		"Expires behind Date":  {[]string{"Expires: " + httpDate(time.Hour), "Date: " + httpDate(-time.Hour)}, 2 * time.Hour},
		"Expires in the past":  {[]string{"Expires: " + httpDate(-time.Hour)}, 0},
		"Expires: 0":           {[]string{"Expires: 0"}, 0},
		"Expires twice":        {[]string{"Expires: " + httpDate(time.Hour), "Expires: " + httpDate(time.Hour)}, 0},
		"Expires in year 9999": {[]string{"Expires: Fri, 31 Dec 9999 23:59:59 GMT"}, 1 << 31 * time.Second},
	} {
		h := fieldsOf(c.fields...)
		d := degrade.ParseDirectives(h["Cache-Control"])
		require.Equal(t, c.want, degrade.Lifetime(h, &d, noon), name)
	}
}

// To the second, and not below zero when the clock goes back.
func TestPageAge(t *testing.T) {
	p := &degrade.Page{Stored: noon, Age: 10 * time.Second, Lifetime: time.Minute}
	unsaid := &degrade.Page{Stored: noon, Age: 10 * time.Second, Lifetime: -1}
	for _, c := range []struct{ now, age, ttl, stale, unsaid time.Duration }{
		{0, 10 * time.Second, 50 * time.Second, -50 * time.Second, 0},
		{time.Second - 1, 11*time.Second - 1, 50 * time.Second, -49*time.Second - 1, time.Second - 1},
		{time.Second, 11 * time.Second, 49 * time.Second, -49 * time.Second, time.Second},
		{50 * time.Second, time.Minute, 0, 0, 50 * time.Second},
		{51 * time.Second, 61 * time.Second, -time.Second, time.Second, 51 * time.Second},
		{85 * time.Second, 95 * time.Second, -35 * time.Second, 35 * time.Second, 85 * time.Second},
		{-time.Hour, 10 * time.Second, 50 * time.Second, -50 * time.Second, 0},
	} {
		require.Equal(t, c.age, p.AgeAt(at(c.now)), c.now)
		require.Equal(t, c.ttl, p.TTLAt(at(c.now)), c.now)
		require.Equal(t, c.stale, p.StaleAt(at(c.now)), c.now)
		require.Equal(t, c.unsaid, unsaid.StaleAt(at(c.now)), c.now)
		require.Equal(t, -c.age.Truncate(time.Second), unsaid.TTLAt(at(c.now)), c.now)
	}
}

func TestPageLives(t *testing.T) {
	page := func(lifetime, staleIfError time.Duration) *degrade.Page {
		return &degrade.Page{Stored: noon, Lifetime: lifetime, StaleIfError: staleIfError}
	}
	for name, c := range map[string]struct {
		cfg   degrade.PagesConfig
		page  *degrade.Page
		cause degrade.Cause
		last  time.Duration // that it may be served
	}{
		"default":                      {page: page(time.Minute, -1), last: 2 * time.Minute},
		"no freshness":                 {page: page(-1, -1), last: time.Minute},
		"expired when stored":          {page: page(0, -1), last: time.Minute},
		"own bound":                    {cfg: degrade.PagesConfig{MaxStale: time.Hour}, page: page(time.Minute, -1), last: 61 * time.Minute},
		"none":                         {cfg: degrade.PagesConfig{MaxStale: -1}, page: page(time.Minute, -1), last: time.Minute},
		"stale-if-error for the quota": {page: page(time.Minute, 5*time.Minute), last: 2 * time.Minute},
		"raised":                       {page: page(time.Minute, 5*time.Minute), cause: degrade.Capacity, last: 6 * time.Minute},
		"lowered":                      {page: page(time.Minute, 5*time.Second), cause: degrade.Capacity, last: 65 * time.Second},
		"capped":                       {page: page(time.Minute, time.Hour), cause: degrade.Capacity, last: 11 * time.Minute},
		"own cap":                      {cfg: degrade.PagesConfig{MaxStaleIfError: 2 * time.Hour}, page: page(time.Minute, time.Hour), cause: degrade.Capacity, last: 61 * time.Minute},
		"ignored":                      {cfg: degrade.PagesConfig{MaxStaleIfError: -1}, page: page(time.Minute, time.Hour), cause: degrade.Capacity, last: 2 * time.Minute},
		"capacity, nothing said":       {page: page(time.Minute, -1), cause: degrade.Capacity, last: 2 * time.Minute},
	} {
		p := degrade.NewPages(c.cfg)
		require.NoError(t, p.Validate(), name)
		require.True(t, p.Lives(c.page, at(c.last), c.cause), name)
		require.False(t, p.Lives(c.page, at(c.last+1), c.cause), name)
		require.True(t, p.Lives(c.page, at(-time.Minute), c.cause), "%s: a clock that went back a little", name)
		require.False(t, p.Lives(c.page, at(-time.Minute-1), c.cause), "%s: from the future", name)
	}
}

func TestAccepts(t *testing.T) {
	for _, c := range []struct {
		wants string
		age   time.Duration // of a page that is fresh for 60 s
		want  bool
	}{
		{"", 0, true},
		{"", time.Hour, true},
		{"no-cache", 0, false},
		{"no-store", 0, false},
		{"max-age=", 0, false},
		{"max-age=0", 0, true},
		{"max-age=0", 1, false},
		{"max-age=30", 30 * time.Second, true},
		{"max-age=30", 31 * time.Second, false},
		{"max-age=90", 61 * time.Second, false},
		{"max-age=90, max-stale", 61 * time.Second, true},
		{"max-age=90, max-stale=1", 61 * time.Second, true},
		{"max-age=90, max-stale=1", 62 * time.Second, false},
		{"max-age=90, max-stale", 91 * time.Second, false},
		{"max-stale", time.Hour, true},
		{"max-stale=5", 65 * time.Second, true},
		{"max-stale=5", 66 * time.Second, false},
		{"min-fresh=10", 50 * time.Second, true},
		{"min-fresh=10", 51 * time.Second, false},
		{"min-fresh=0", 61 * time.Second, false},
		{"only-if-cached", time.Hour, true},
		{"no-transform, stale-if-error=9", time.Hour, true},
	} {
		p := &degrade.Page{Stored: noon, Lifetime: time.Minute}
		d := degrade.ParseDirectives([]string{c.wants})
		require.Equal(t, c.want, d.Accepts(p, at(c.age)), "%q at %v", c.wants, c.age)
	}
}

// Whatever an origin says and wherever the clock goes, an age is not negative, does not overflow, and with the time to live
// is the lifetime.
func TestAgeProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := http.Header{}
		if rapid.Bool().Draw(t, "date") {
			h.Set("Date", at(time.Duration(rapid.Int64().Draw(t, "date"))).Format(http.TimeFormat))
		}
		if rapid.Bool().Draw(t, "age") {
			h.Set("Age", strconv.FormatUint(rapid.Uint64().Draw(t, "age"), 10))
		}
		if rapid.Bool().Draw(t, "expires") {
			h.Set("Expires", at(time.Duration(rapid.Int64().Draw(t, "expires"))).Format(http.TimeFormat))
		}
		d := degrade.ParseDirectives(nil)
		p := &degrade.Page{Stored: noon, Age: degrade.InitialAge(h, at(time.Duration(rapid.Int64().Draw(t, "began"))), noon), Lifetime: degrade.Lifetime(h, &d, noon)}
		now := at(time.Duration(rapid.Int64().Draw(t, "now")))
		age := p.AgeAt(now)
		require.GreaterOrEqual(t, age, time.Duration(0))
		require.LessOrEqual(t, age, 1<<31*time.Second)
		require.Equal(t, max(p.Lifetime, 0).Truncate(time.Second), age.Truncate(time.Second)+p.TTLAt(now))
		require.LessOrEqual(t, p.AgeAt(now), p.AgeAt(now.Add(time.Second)), "older with time")
	})
}

func TestMatchesTag(t *testing.T) {
	for _, c := range []struct {
		list, tag string
		want      bool
	}{
		{`"v1"`, `"v1"`, true},
		{`W/"v1"`, `"v1"`, true},
		{`"v1"`, `W/"v1"`, true},
		{`"v2"`, `"v1"`, false},
		{`"v2" , W/"v1"`, `"v1"`, true},
		{`,, "v2",,"v1",`, `"v1"`, true},
		{`"a,b", "v1"`, `"v1"`, true},
		{`"x,"v1",y"`, `"v1"`, false}, // a comma within a tag
		{`*`, `"v1"`, true},
		{` * `, ``, true},
		{`"*"`, `"v1"`, false},
		{`"v1`, `"v1"`, false},
		{`v1`, `"v1"`, false},
		{`"v1"x, "v1"`, `"v1"`, false},
		{``, `"v1"`, false},
		{`""`, ``, false},
		{`""`, `""`, true},
		{`w/"v1"`, `"v1"`, false},
	} {
		require.Equal(t, c.want, degrade.MatchesTag(c.list, c.tag), "%s against %s", c.list, c.tag)
	}
}
