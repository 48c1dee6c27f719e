package negotiate_test

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-go/spillway/internal/negotiate"
)

const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"

func TestWeight(t *testing.T) {
	for params, want := range map[string]int{
		"": 1000, "q=1": 1000, "q=1.000": 1000, "q=0": 0, "q=0.0": 0, "q=0.": 0, " q=0.5 ": 500, "Q=0.05": 50, "q=0.001": 1,
		"charset=utf-8;q=0.25": 250, "q=0.1;q=0.9": 100,
		"q=": 1000, "q=.2": 1000, "q=2": 1000, "q=0.0001": 1000, "q=0,5": 1000, "q=0.x": 1000, "q=1.9": 1000, "qs=0.1": 1000, "q": 1000,
	} {
		require.Equal(t, want, negotiate.Weight(params), "%q", params)
	}
}

func TestIsJSON(t *testing.T) {
	for name, want := range map[string]bool{
		"application/json": true, "Application/JSON": true, "text/json": true, "application/*": true, "application/problem+json": true,
		"image/x+JSON": true, "text/html": false, "+json": false, "application/jsonp": false, "*/*": false, "": false,
	} {
		require.Equal(t, want, negotiate.IsJSON(name), "%q", name)
	}
}

func TestTypes(t *testing.T) {
	jht := []string{"application/json", "text/html", "text/plain"}
	for name, c := range map[string]struct {
		types  []string
		accept []string
		want   int
	}{
		"no accept":                       {jht, nil, 0},
		"no types":                        {nil, []string{"*/*"}, -1},
		"no types, no accept":             {nil, nil, -1},
		"anything":                        {jht, []string{"*/*"}, 0},
		"browser":                         {jht, []string{browser}, 1},
		"by name":                         {jht, []string{"text/plain"}, 2},
		"in capitals":                     {jht, []string{"TEXT/PLAIN"}, 2},
		"group":                           {jht, []string{"text/*"}, 1},
		"weights":                         {jht, []string{"text/html;q=0.4, text/plain;q=0.5"}, 2},
		"weights over lines":              {jht, []string{"text/html;q=0.4", "text/plain;q=0.5"}, 2},
		"equal weights: the first":        {jht, []string{"text/plain, text/html"}, 1},
		"named wins over a wildcard":      {[]string{"text/html", "application/json"}, []string{"application/json, text/plain, */*"}, 1},
		"named wins over its group":       {jht, []string{"text/*, text/plain"}, 2},
		"group wins over anything":        {jht, []string{"*/*, text/*"}, 1},
		"the specific range decides":      {jht, []string{"text/*;q=0.9, text/html;q=0.1, application/json;q=0.5"}, 2},
		"refused by name":                 {jht, []string{"*/*, application/json;q=0"}, 1},
		"refused by group":                {jht, []string{"*/*;q=0.1, text/*;q=0"}, 0},
		"all refused":                     {jht, []string{"*/*;q=0"}, -1},
		"nothing that is there":           {jht, []string{"image/png, audio/*"}, -1},
		"empty":                           {jht, []string{""}, -1},
		"empty elements":                  {jht, []string{",, ,text/plain,"}, 2},
		"parameters of ranges":            {jht, []string{"text/html;level=1;q=0.3, text/plain;q=0.2"}, 1},
		"the better of two parameters":    {jht, []string{"text/html;level=1;q=0, text/html;q=0.3"}, 1},
		"malformed weight":                {jht, []string{"text/plain;q=x, text/html;q=0.9"}, 2},
		"a problem is JSON":               {[]string{"text/html", "application/problem+json"}, []string{"application/json"}, 1},
		"JSON for who names another":      {[]string{"text/html", "application/json"}, []string{"application/vnd.api+json, */*;q=0.1"}, 1},
		"the family wins over anything":   {[]string{"text/html", "application/json"}, []string{"application/vnd.api+json, */*"}, 1},
		"exact wins over the family":      {[]string{"application/problem+json", "application/json"}, []string{"application/json"}, 1},
		"the family does not overrule":    {jht, []string{"application/json;q=0.1, application/vnd.a+json, text/plain;q=0.2"}, 2},
		"the family does not refuse":      {jht, []string{"application/vnd.a+json;q=0, */*"}, 0},
		"the family does not lower":       {jht, []string{"application/vnd.a+json;q=0.1, text/html;q=0.5, */*"}, 0},
		"text/json of application/*":      {[]string{"text/html", "text/json"}, []string{"application/*"}, 1},
		"a suffix is no group":            {jht, []string{"text/html*"}, -1},
		"no type at all":                  {jht, []string{"*, text, /, *, */html"}, -1},
		"of many ranges the first":        {jht, []string{strings.Repeat("image/png,", 63) + "text/plain"}, 2},
		"behind 64 ranges":                {jht, []string{strings.Repeat("image/png,", 64) + "text/plain"}, -1},
		"behind 64 ranges of other lines": {jht, append(strings.Split(strings.Repeat("image/png,", 63)+"image/png", ","), "text/plain"), -1},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, negotiate.NewTypes(c.types...).Choose(c.accept))
		})
	}
}

var names = []string{"application/json", "text/html", "text/plain", "application/xml", "image/png"}

// Without families the choice is that of RFC 9110 section 12.5.1, written here by its words.
func TestTypesAreTheStandards(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		types := rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 4, rapid.ID[string]).Draw(t, "types")
		ranges := rapid.SliceOfN(rapid.SampledFrom(append([]string{"*/*", "text/*", "image/*"}, names...)), 0, 8).Draw(t, "ranges")
		weights := map[string]int{}
		var elements []string
		for _, name := range ranges {
			weight := rapid.IntRange(0, 4).Draw(t, "weight") * 250
			elements = append(elements, name+";q="+strconv.FormatFloat(float64(weight)/1000, 'f', -1, 64))
			weights[name] = max(weights[name], weight)
		}
		of := func(name string) float64 {
			group, _, _ := strings.Cut(name, "/")
			for i, r := range []string{name, group + "/*", "*/*"} {
				if q, ok := weights[r]; ok {
					if q == 0 {
						return -1
					}
					return float64(q) - float64(i)/10 // of equal weights the more specific one
				}
			}
			return -1
		}
		want, most := -1, math.Inf(-1)
		for i, name := range types {
			if q := of(name); q > 0 && q > most {
				want, most = i, q
			}
		}
		require.Equal(t, want, negotiate.NewTypes(types...).Choose([]string{strings.Join(elements, ", ")}))
	})
}

func TestTypesAllocateNothing(t *testing.T) {
	types := negotiate.NewTypes(names...)
	lines := []string{browser}
	require.Zero(t, testing.AllocsPerRun(100, func() { types.Choose(lines) }))
}

func FuzzTypes(f *testing.F) {
	f.Add(browser, "")
	f.Add("application/*;q=0.1", "text/json; q=0.30, */*")
	f.Add(",;q=,\"", ";;q=1.\x00")
	types := negotiate.NewTypes(append(names, "application/problem+json", "text/json")...)
	f.Fuzz(func(t *testing.T, one, two string) {
		got := types.Choose([]string{one, two})
		require.GreaterOrEqual(t, got, -1)
		require.Less(t, got, len(types))
		if strings.Count(one, ",")+strings.Count(two, ",") < 60 { // empty elements count
			require.Equal(t, got, types.Choose([]string{one + "," + two}), "lines are one list (RFC 9110 section 5.3)")
		}
		require.LessOrEqual(t, negotiate.Weight(one), 1000)
		require.GreaterOrEqual(t, negotiate.Weight(one), 0)
	})
}

func BenchmarkTypes(b *testing.B) {
	types := negotiate.NewTypes("application/json", "text/html", "text/plain")
	for name, accept := range map[string]string{"browser": browser, "hostile": strings.Repeat("a/b,", 1<<18)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			lines := []string{accept}
			for b.Loop() {
				types.Choose(lines)
			}
		})
	}
}
