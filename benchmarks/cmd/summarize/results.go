package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// id is one case of one scenario.
type id struct{ scenario, name string }

// results are the values of all cases: case, round, metric. What was not measured is absent.
type results struct {
	order  []id
	values map[id]map[int]map[string]float64
	setup  map[string]string // how and where it was measured
}

func newResults() *results {
	return &results{values: map[id]map[int]map[string]float64{}, setup: map[string]string{}}
}

func (r *results) put(k id, round int, metric string, x float64) {
	if r.values[k] == nil {
		r.values[k] = map[int]map[string]float64{}
		r.order = append(r.order, k)
	}
	if r.values[k][round] == nil {
		r.values[k][round] = map[string]float64{}
	}
	r.values[k][round][metric] = x
}

// names returns the cases of a scenario in the order in which they were measured.
func (r *results) names(scenario string) (out []string) {
	for _, k := range r.order {
		if k.scenario == scenario {
			out = append(out, k.name)
		}
	}
	return out
}

// rounds is how often a scenario was measured.
func (r *results) rounds(scenario string) (n int) {
	for _, k := range r.order {
		if k.scenario == scenario {
			n = max(n, len(r.values[k]))
		}
	}
	return n
}

// value is the median of a metric over all rounds.
func (r *results) value(k id, metric string) (float64, bool) {
	var xs []float64
	for _, m := range r.values[k] {
		if x, ok := m[metric]; ok {
			xs = append(xs, x)
		}
	}
	return median(xs)
}

// ratio is the median over all rounds of a metric divided by another case's metric in the same round.
func (r *results) ratio(k id, metric string, base id, baseMetric string) (float64, bool) {
	var xs []float64
	for round, m := range r.values[k] {
		x, ok := m[metric]
		if b := r.values[base][round][baseMetric]; ok && b > 0 {
			xs = append(xs, x/b)
		}
	}
	return median(xs)
}

func median(xs []float64) (float64, bool) {
	if len(xs) == 0 {
		return 0, false
	}
	slices.Sort(xs)
	n := len(xs)
	return (xs[(n-1)/2] + xs[n/2]) / 2, true
}

// load reads all results there are in a folder. Steps that were not run leave nothing.
func load(dir string) (*results, error) {
	r := newResults()
	for _, part := range []struct {
		file string
		read func(*results, []string) error
	}{
		{"setup.txt", readSetup},
		{"hot.txt", readBench},
		{"keys.txt", readBench},
		{"million.txt", readBench},
		{"http.txt", readBench},
		{"heap.tsv", table("heap").read},
		{"bound.tsv", table("bound").read},
		{"cleanup.tsv", table("cleanup").read},
		{"admit.tsv", table("admit").read},
		{"wrk.tsv", groups("wrk").read},
		{"redis.tsv", groups("redis").read},
		{"redis.txt", readBench},
		{"fleet.tsv", groups("fleet").read},
		{"rediswrk.tsv", groups("wrk").read},
		{"growth.tsv", groups("growth").read},
		{"rediscost.tsv", table("rediscost").read},
		{"redismem.tsv", table("redismem").read},
	} {
		text, err := os.ReadFile(filepath.Join(dir, part.file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = part.read(r, strings.Split(strings.TrimSpace(string(text)), "\n"))
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", part.file, err)
		}
	}
	if len(r.order) == 0 {
		return nil, fmt.Errorf("%s: no results", dir)
	}
	r.deriveAdded()
	return r, nil
}

func readSetup(r *results, lines []string) error {
	for _, l := range lines {
		k, v, _ := strings.Cut(l, "\t")
		r.setup[k] = v
	}
	return nil
}

var procs = regexp.MustCompile(`-\d+$`) // the number of processors that go test appends to names

// readBench reads the output of go test -bench; a line "goos:" begins a round. BenchmarkMem/SCENARIO/NAME becomes case
// NAME of SCENARIO, BenchmarkHTTP/SCENARIO/FRAMEWORK/NAME case NAME of "http SCENARIO FRAMEWORK", BenchmarkRedis/SCENARIO/NAME case NAME of
// "redis allocations SCENARIO".
func readBench(r *results, lines []string) error {
	round := 0
	for _, l := range lines {
		if strings.HasPrefix(l, "goos:") {
			round++
		}
		f := strings.Fields(l)
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		kind, rest, _ := strings.Cut(procs.ReplaceAllString(f[0], ""), "/")
		scenario, name, _ := strings.Cut(rest, "/")
		switch kind {
		case "BenchmarkHTTP":
			var framework string
			framework, name, _ = strings.Cut(name, "/")
			scenario = "http " + scenario + " " + framework
		case "BenchmarkRedis":
			scenario = "redis allocations " + scenario
		}
		for i := 2; i+1 < len(f); i += 2 {
			x, err := strconv.ParseFloat(f[i], 64)
			if err != nil {
				return fmt.Errorf("%q: %w", l, err)
			}
			r.put(id{scenario, name}, round, f[i+1], x)
		}
	}
	return nil
}

// table reads tab-separated columns round, name and metrics as cases of one scenario.
type table string

func (t table) read(r *results, lines []string) error {
	header := strings.Split(lines[0], "\t")
	for _, l := range lines[1:] {
		f := strings.Split(l, "\t")
		if len(f) != len(header) {
			return fmt.Errorf("%q: %d columns instead of %d", l, len(f), len(header))
		}
		round, err := strconv.Atoi(f[0])
		if err != nil {
			return fmt.Errorf("%q: %w", l, err)
		}
		for i := 2; i < len(f); i++ {
			x, err := strconv.ParseFloat(f[i], 64)
			if err != nil {
				return fmt.Errorf("%q: %w", l, err)
			}
			r.put(id{string(t), f[1]}, round, header[i], x)
		}
	}
	return nil
}

// groups reads a table whose names are GROUP/NAME, as case NAME of scenario "GROUPS GROUP".
type groups string

func (g groups) read(r *results, lines []string) error {
	all := newResults()
	if err := table("").read(all, lines); err != nil {
		return err
	}
	for _, k := range all.order {
		group, name, _ := strings.Cut(k.name, "/")
		for round, m := range all.values[k] {
			for metric, x := range m {
				r.put(id{string(g) + " " + group, name}, round, metric, x)
			}
		}
	}
	return nil
}

// deriveAdded computes what each HTTP case adds to the bare framework in the same round.
func (r *results) deriveAdded() {
	for _, k := range r.order {
		if !strings.HasPrefix(k.scenario, "http ") {
			continue
		}
		for round, m := range r.values[k] {
			if none, ok := r.values[id{k.scenario, "none"}][round]["cpu-ns/op"]; ok {
				m["added"] = m["cpu-ns/op"] - none
			}
		}
	}
}
