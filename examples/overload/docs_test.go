package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/adaptive"
)

// section is a part of the guide for operators.
func section(t *testing.T, title string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "\n### "+title+"\n")
	require.True(t, found, title)
	part, _, _ := strings.Cut(rest, "\n## ")
	part, _, _ = strings.Cut(part, "\n### ")
	return part
}

// Whoever is woken by a reason finds what it means, and nothing is explained that there is not.
func TestReasonsAreExplained(t *testing.T) {
	told := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]+`) \\|").FindAllStringSubmatch(section(t, "Why a limit is what it is"), -1) {
		for _, name := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[1], -1) {
			told[name[1]] = true
		}
	}
	for _, why := range adaptive.Reasons() {
		require.True(t, told[string(why)], "%s is not explained", why)
		delete(told, string(why))
	}
	require.Empty(t, told)
}

// The schedule that is worked out is a valid one, and leaves room above the busiest minute of every block.
func TestScheduleOfTheGuide(t *testing.T) {
	text := section(t, "A schedule from a week of metrics")
	fields := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(text)
	require.NotNil(t, fields)
	document := strings.ReplaceAll(strings.TrimSpace(fields[1]), "\n   ", "\n    ")
	document = "version: 1\nstore: {memory: {}}\npolicies:\n  - name: service\n    key: global\n    mode: local\n    " + document + "\n"
	doc, findings := config.Parse([]byte(document))
	require.NoError(t, findings.Err(), document)
	var rules []adaptive.Rule
	for _, r := range doc.Policies[0].Schedule {
		rules = append(rules, adaptive.Rule{When: r.When, Zone: r.Zone, Scale: float64(*r.Scale)})
	}
	require.Len(t, rules, 3)
	s, err := adaptive.NewSchedule(rules, adaptive.Calendar{Holidays: doc.Policies[0].Calendar.Holidays})
	require.NoError(t, err)
	nominal := limiter.PerSecond(750).WithBurst(75)
	blocks := map[string]int{} // busiest minutes, as the table has them
	for _, row := range regexp.MustCompile(`(?m)^ +\| ([MS][^|]+) \| (\d+) \|`).FindAllStringSubmatch(text, -1) {
		n := 0
		for _, digit := range row[2] {
			n = 10*n + int(digit-'0')
		}
		blocks[row[1]] = n
	}
	require.Len(t, blocks, 4)
	for at := time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC); at.Day() != 7; at = at.Add(time.Hour) { // a week from a Monday on
		block := "Mon-Fri 08:00-18:00"
		switch h := at.Hour(); {
		case at.Weekday() == time.Saturday || at.Weekday() == time.Sunday:
			block = "Sat,Sun"
		case h < 6 || h == 23:
			block = "Mon-Fri 00:00-06:00, 23:00-24:00"
		case h < 8 || h >= 18:
			block = "Mon-Fri 06:00-08:00, 18:00-23:00"
		}
		rate := s.Adjust(at, nominal).Rate
		require.GreaterOrEqual(t, 100*rate, 148*blocks[block], "%v %s", at, block)
		require.LessOrEqual(t, rate, 2*blocks[block], "%v %s", at, block)
	}
	require.Equal(t, 300, s.Adjust(time.Date(2026, 12, 25, 12, 0, 0, 0, time.UTC), nominal).Rate, "a holiday")
}
