package promtest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// A line of a setting, if it is no comment.
var (
	targetsLine  = regexp.MustCompile(`(?m)^( *(?:- )?targets: ).*$`)
	rulesLine    = regexp.MustCompile(`(?m)^(rule_files: )\[(.*)\]$`)
	intervalLine = regexp.MustCompile(`(?m)^( *(?:scrape|evaluation)_interval: ).*$`)
	timeoutLine  = regexp.MustCompile(`(?m)^( *scrape_timeout: ).*$`)
)

// adapt returns the text of a scrape config with other targets and intervals, and with rule files that are found from
// any folder. All else stays, so that what is tested is what is shipped.
func adapt(file string, targets []string, interval time.Duration) (string, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	text := string(raw)
	for _, line := range []*regexp.Regexp{targetsLine, rulesLine, intervalLine} {
		if !line.MatchString(text) {
			return "", fmt.Errorf("%s has no line like %s", file, line)
		}
	}
	folder, err := filepath.Abs(filepath.Dir(file))
	if err != nil {
		return "", err
	}
	text = targetsLine.ReplaceAllString(text, "${1}"+list(targets))
	text = intervalLine.ReplaceAllString(text, "${1}"+strconv.FormatInt(interval.Milliseconds(), 10)+"ms")
	text = timeoutLine.ReplaceAllString(text, "${1}"+strconv.FormatInt(interval.Milliseconds(), 10)+"ms")
	text = rulesLine.ReplaceAllStringFunc(text, func(line string) string {
		part := rulesLine.FindStringSubmatch(line)
		var rules []string
		for name := range strings.SplitSeq(part[2], ",") {
			name = strings.Trim(name, ` "'`)
			if name != "" && !filepath.IsAbs(name) {
				name = filepath.Join(folder, name)
			}
			rules = append(rules, name)
		}
		return part[1] + list(rules)
	})
	return text, nil
}

// list writes a YAML list of strings on one line.
func list(items []string) string {
	quoted := make([]string, len(items))
	for i, item := range items {
		quoted[i] = strconv.Quote(item)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
