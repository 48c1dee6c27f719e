package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	conf "github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/memory"
)

// What is wrong with a calendar is told once, where it stands, however many policies name it by alias; what is wrong with another
// is told as well, though some of it is the same.
func TestCalendarsByAlias(t *testing.T) {
	policy := func(name, rest string) string {
		return fmt.Sprintf("  - {name: %s, key: ip, mode: local, limit: 9/s, schedule: [{when: Mon, scale: 2}], %s}\n", name, rest)
	}
	first := policy("a", "calendar: &c {holidays: &h [2026-10-01, &x 2026-02-30, y], workdays: &w [z]}")
	wrong := []string{"policies[0].calendar.holidays[1]", "policies[0].calendar.holidays[2]", "policies[0].calendar.workdays[0]"}
	for name, c := range map[string]struct {
		others string
		more   []string
	}{
		"alone":         {"", nil},
		"whole":         {policy("b", "calendar: *c") + policy("d", "calendar: *c"), nil},
		"one list":      {policy("b", "calendar: {holidays: *h, workdays: [v]}"), []string{"policies[1].calendar.workdays[0]"}},
		"the other":     {policy("b", "calendar: {workdays: *w, holidays: [v]}"), []string{"policies[1].calendar.holidays[0]"}},
		"in both":       {policy("b", "calendar: {workdays: *h, holidays: *h}"), nil},
		"one of a list": {policy("b", "calendar: {holidays: [*x, v]}"), []string{"policies[1].calendar.holidays[0]", "policies[1].calendar.holidays[1]"}},
		"the same text": {policy("b", "calendar: {holidays: [2026-02-30]}"), []string{"policies[1].calendar.holidays[0]"}},
	} {
		doc, found := conf.Parse([]byte("version: 1\npolicies:\n" + first + c.others))
		require.NoError(t, found.Err(), name)
		_, found = conf.Build(doc, localDeps(t))
		var paths []string
		for _, f := range found {
			require.Equal(t, conf.InvalidValue, f.ID, f.String())
			paths = append(paths, f.Path)
		}
		require.ElementsMatch(t, append(append([]string{}, wrong...), c.more...), paths, name)
	}
}

// A short document that names a long one again and again costs as much as the document, not as much as what it stands for.
func TestCalendarsByAliasAreCheap(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	cost := func(policies int) float64 {
		days := strings.TrimSuffix(strings.Repeat("x,", 1000), ",")
		var text strings.Builder
		text.WriteString("version: 1\npolicies:\n")
		for k := range policies {
			calendar := "*c"
			if k == 0 {
				calendar = "&c {holidays: [" + days + "], workdays: [" + days + "]}"
			}
			fmt.Fprintf(&text, "  - {name: p%d, key: ip, mode: local, limit: 9/s, schedule: [{when: Mon, scale: 2}], calendar: %s}\n", k, calendar)
		}
		doc, found := conf.Parse([]byte(text.String()))
		require.NoError(t, found.Err())
		deps := localDeps(t)
		return testing.AllocsPerRun(1, func() {
			_, found = conf.Build(doc, deps)
			require.Error(t, found.Err())
		})
	}
	one := cost(1)
	require.Less(t, cost(40), 2*one, "forty times as much would be told of each entry of each policy")
}

// localDeps has one limiter in memory.
func localDeps(t *testing.T) conf.Deps {
	lim, err := memory.New(memory.Config{})
	require.NoError(t, err)
	t.Cleanup(lim.Close)
	return conf.Deps{Local: func(conf.Store) (limiter.Limiter, error) { return lim, nil }}
}
