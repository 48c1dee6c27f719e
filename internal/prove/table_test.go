package prove_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
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

// writeTable puts a section between the two marks of a file.
func writeTable(path, section string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(text), tableBegins)
	_, after, ends := strings.Cut(rest, tableEnds)
	if !begins || !ends {
		return fmt.Errorf("%s has not both %q and %q", path, tableBegins, tableEnds)
	}
	return os.WriteFile(path, []byte(before+tableBegins+"\n"+section+tableEnds+after), 0o644)
}

// section is what stands between the marks: one row for each cell.
func section(results []result, redis string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `
## Measured under faults

One fault after the other, under load, in each mode: guards that are processes of their own behind real sockets, a real Redis,
and a meter beside their handlers that knows nothing of how anything was decided (%[1]s in internal/prove). %[2]s
writes this section. It fails where more is measured than promised, where somebody is refused or answered otherwise than
promised, where units that were spent come back or others vanish, where decisions do not come back, and where a guard leaves
a goroutine or a socket behind.

Of *busy*, 200 a second with a burst of 100, twice the rate is asked for. *Early*, 40 a day, is spent before the fault. *Over L*
is by how many units the fullest of all intervals was above L, measured at the handlers. *Promised* is what the tables above
allow for an interval of that length: S(t) with fallback, Q for each loss of data, fail-over or eviction, what a clock jumped
over, and Rate·d for the slowest decision. *Refused wrongly* are refusals of busy by Redis that its bucket had units for; leased
is not judged by that, as a process does not know what others hold. In all rows, nobody was refused who asked for less than a
third of the rate, and a policy that fails open answered nothing but 200; those of the table fail closed. 418 is an answer
of the handler whose unit was given back, *none* that of a guard that was killed. *Back* is how long after the fault the last guard
had again decided by Redis or a lease, *starved* the longest that a guard got no processor, which is in *longest* and in d. Times
are told and not promised: %[3]d processors, %[4]s, Redis %[5]s.

| fault | mode | guards | busy: over L | promised | early: over L | promised | refused wrongly | answers | longest | starved | back |
|---|---|---|---|---|---|---|---|---|---|---|---|
`, "`TestFaults`", "`make prove`", runtime.NumCPU(), runtime.Version(), redis)
	for _, r := range results {
		each := strings.Join(r.adapters, ", ")
		if one := slices.Compact(slices.Clone(r.adapters)); len(one) == 1 {
			each = fmt.Sprintf("%d × %s", len(r.adapters), one[0])
		}
		wrong := "–"
		if r.wrong >= 0 {
			wrong = fmt.Sprint(r.wrong)
		}
		fmt.Fprintf(&b, "| %s | %s | %s |", r.fault, r.mode, each)
		for _, name := range []string{busy, early} {
			fmt.Fprintf(&b, " %.1f | %.1f |", max(0, r.over[name]), r.promised[name])
		}
		fmt.Fprintf(&b, " %s | %s | %v | %v | %v |\n", wrong, told(r.statuses), r.longest.Round(time.Millisecond),
			r.starved.Round(time.Millisecond), r.back.Round(10*time.Millisecond))
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
		promised: map[string]float64{busy: 4, early: 40}, statuses: map[int]int{429: 2, 200: 1, 0: 3},
		longest: 50400 * time.Microsecond, starved: time.Millisecond, back: 1234 * time.Millisecond,
	}
	require.NoError(t, os.WriteFile(path, []byte("a\n"+tableBegins+"\nwhat was there\n"+tableEnds+"\nb\n"), 0o600))
	for range 2 {
		require.NoError(t, writeTable(path, section([]result{r}, "7.0")))
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(text), "a\n"+tableBegins+"\n\n## Measured"), "%s", text)
		require.True(t, strings.HasSuffix(string(text), "|\n\n"+tableEnds+"\nb\n"), "%s", text)
		require.NotContains(t, string(text), "what was there")
		require.Contains(t, string(text),
			"\n| some fault | central | 2 × gin | 0.0 | 4.0 | 2.2 | 40.0 | 0 | 3 × none, 1 × 200, 2 × 429 | 50ms | 1ms | 1.23s |\n")
	}
	require.NoError(t, os.WriteFile(path, []byte("no marks"), 0o600))
	require.Error(t, writeTable(path, ""))
}
