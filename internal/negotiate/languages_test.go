package negotiate_test

import (
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/internal/negotiate"
)

func languages(t testing.TB, names ...string) *negotiate.Languages {
	t.Helper()
	var tags []negotiate.Tag
	for _, name := range names {
		tag, err := negotiate.ParseTag(name)
		require.NoError(t, err)
		tags = append(tags, tag)
	}
	return negotiate.NewLanguages(tags...)
}

func TestLanguages(t *testing.T) {
	const other, anyone = negotiate.Other, negotiate.Any
	for name, c := range map[string]struct {
		names  []string
		accept []string
		want   int
	}{
		"no header":         {[]string{"en", "zh-CN"}, nil, anyone},
		"empty":             {[]string{"en", "zh-CN"}, []string{""}, anyone},
		"anything":          {[]string{"en", "zh-CN"}, []string{"*"}, anyone},
		"none, no header":   {nil, nil, anyone},
		"none":              {nil, []string{"en"}, other},
		"by name":           {[]string{"en", "zh-CN"}, []string{"zh-CN,zh;q=0.9,en;q=0.8"}, 1},
		"without a region":  {[]string{"en", "zh-CN"}, []string{"zh"}, 1},
		"another region":    {[]string{"en", "zh-CN"}, []string{"de, en-GB;q=0.5"}, 0},
		"by weight":         {[]string{"en", "zh-CN"}, []string{"en;q=0.5, zh-Hans-SG"}, 1},
		"not there":         {[]string{"en", "zh-CN"}, []string{"fr"}, other},
		"of another script": {[]string{"zh-CN"}, []string{"zh-TW"}, other},
		"malformed":         {[]string{"en"}, []string{"en;q="}, other},
		"too long":          {[]string{"en"}, []string{"en" + strings.Repeat(",fr", 43)}, other},
		"as long as it may": {[]string{"en"}, []string{"en" + strings.Repeat(",fr", 42)}, 0},
		"of lines the first": {
			[]string{"en", "zh-CN"},
			[]string{"zh-CN", "en"},
			1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := languages(t, c.names...)
			for range 3 { // found, remembered, and read again
				require.Equal(t, c.want, l.Choose(c.accept))
			}
		})
	}
}

func TestParseTag(t *testing.T) {
	a, err := negotiate.ParseTag("ZH-cn")
	require.NoError(t, err)
	b, err := negotiate.ParseTag("zh-CN")
	require.NoError(t, err)
	require.Equal(t, a, b)
	_, err = negotiate.ParseTag("not a language")
	require.Error(t, err)
}

// Clients choose what is remembered: answers stay right beyond the bound, and from many at once.
func TestLanguagesInvented(t *testing.T) {
	l := languages(t, "en", "fr")
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := range 200 {
				line := "de;q=0." + strconv.Itoa(g) + ", " + []string{"en", "fr"}[i%2] + ";q=0." + strconv.Itoa(100+i)
				if got := l.Choose([]string{line}); got != i%2 {
					t.Errorf("%s: got %d", line, got)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, negotiate.MaxAnswers, l.Remembered())
}

func TestLanguagesRememberedAllocateNothing(t *testing.T) {
	l := languages(t, "en", "zh-CN")
	lines := []string{"zh-CN,zh;q=0.9,en;q=0.8"}
	l.Choose(lines)
	require.Zero(t, testing.AllocsPerRun(100, func() { l.Choose(lines) }))
}

func FuzzLanguages(f *testing.F) {
	f.Add("zh-CN,zh;q=0.9,en;q=0.8")
	f.Add("en-u-co-phonebk;q=0.1, *")
	f.Add("x-\x00,;q")
	f.Fuzz(func(t *testing.T, line string) {
		l := languages(t, "en", "zh-CN", "de")
		got := l.Choose([]string{line})
		require.GreaterOrEqual(t, got, negotiate.Any)
		require.Less(t, got, 3)
		require.Equal(t, got, l.Choose([]string{line}))
	})
}
