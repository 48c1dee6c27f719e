package prove_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	tableBegins = "<!-- written by make prove: begins -->"
	tableEnds   = "<!-- written by make prove: ends -->"
)

// writeTable puts the results between the two marks of a file.
func writeTable(path string, results []result) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(text), tableBegins)
	_, after, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		return fmt.Errorf("%s has not both %q and %q", path, tableBegins, tableEnds)
	}
	return os.WriteFile(path, []byte(before+tableBegins+"\n"+table(results)+tableEnds+after), 0o644)
}

// table is one row for each cell.
func table(results []result) string {
	var b strings.Builder
	b.WriteString("\n| fault | mode | guards | busy: measured, promised | early: measured, promised | refused wrongly | answers | longest | back after |\n" +
		"|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range results {
		each := strings.Join(r.adapters, ", ")
		if one := slices.Compact(slices.Clone(r.adapters)); len(one) == 1 {
			each = fmt.Sprintf("%d × %s", len(r.adapters), one[0])
		}
		wrong := "–"
		if r.wrong >= 0 {
			wrong = fmt.Sprint(r.wrong)
		}
		units := func(name string) string { return fmt.Sprintf("%.1f, %.1f", max(0, r.over[name]), r.promised[name]) }
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %v | %v |\n", r.fault, r.mode, each, units(busy), units(early), wrong, told(r.statuses),
			r.longest.Round(time.Millisecond), r.back.Round(10*time.Millisecond))
	}
	b.WriteString("\n")
	return b.String()
}

// told is counts of statuses in one order.
func told(counts map[int]int) string {
	var out []string
	for _, status := range slices.Sorted(maps.Keys(counts)) {
		what := fmt.Sprint(status)
		if status == 0 {
			what = "none"
		}
		out = append(out, fmt.Sprintf("%d × %s", counts[status], what))
	}
	return strings.Join(out, ", ")
}

func TestTableIsWrittenBetweenItsMarks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "doc.md")
	r := result{
		fault: "some fault", mode: central, adapters: []string{"gin", "gin"}, over: map[string]float64{busy: -3, early: 2.25},
		promised: map[string]float64{busy: 4, early: 40}, statuses: map[int]int{429: 2, 200: 1, 0: 3}, longest: 50400 * time.Microsecond, back: 1234 * time.Millisecond,
	}
	require.NoError(t, os.WriteFile(path, []byte("a\n"+tableBegins+"\nold\n"+tableEnds+"\nb\n"), 0o600))
	for range 2 {
		require.NoError(t, writeTable(path, []result{r}))
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(text), "a\n"+tableBegins+"\n\n| fault |"), "%s", text)
		require.True(t, strings.HasSuffix(string(text), "|\n\n"+tableEnds+"\nb\n"), "%s", text)
		require.NotContains(t, string(text), "old")
		require.Contains(t, string(text), "\n| some fault | central | 2 × gin | 0.0, 4.0 | 2.2, 40.0 | 0 | 3 × none, 1 × 200, 2 × 429 | 50ms | 1.23s |\n")
	}
	require.NoError(t, os.WriteFile(path, []byte("no marks"), 0o600))
	require.Error(t, writeTable(path, nil))
}
