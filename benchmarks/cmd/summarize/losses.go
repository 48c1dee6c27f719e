package main

import (
	"math"
	"slices"
	"strings"
)

// comparison says in which metric spillway is compared with its peers, and which difference means something.
type comparison struct {
	metric  string
	what    string
	noise   float64 // a ratio of up to 1 + noise is none
	slack   float64 // nor is a difference of up to slack
	atLeast bool    // larger is better
}

// Repeatability on a shared machine of two cores: serial cases a few percent, parallel cases and whole requests up to
// a quarter, pauses a few milliseconds.
var (
	serial   = []comparison{{metric: "cpu-ns/op", what: "CPU ns", noise: 0.10}, {metric: "allocs/op", what: "allocations"}}
	parallel = []comparison{{metric: "ns/op", what: "wall ns", noise: 0.25}, {metric: "allocs/op", what: "allocations"}}
	request  = []comparison{{metric: "added", what: "CPU ns added", noise: 0.25, slack: 20}, {metric: "allocs/op", what: "allocations"}}
	heap     = []comparison{
		{metric: "bytes_per_key", what: "heap bytes per key", noise: 0.05},
		{metric: "gc_ms", what: "full collection, ms", noise: 0.25, slack: 3},
	}
	cleanup = []comparison{
		{metric: "clean_max_us", what: "longest delay, µs", noise: 1, slack: 5000},
		{metric: "left_bytes_per_key", what: "bytes left per key", noise: 0.10, slack: 1},
		{metric: "extra_cpu_ms", what: "CPU of the cleanup, ms", noise: 0.25, slack: 200},
	}
	admit = []comparison{{metric: "over", what: "units over the limit"}, {metric: "errors", what: "errors"}}
	redis = []comparison{
		{metric: "decisions_per_s", what: "decisions/s", noise: 0.25, atLeast: true},
		{metric: "p99_us", what: "99 % of the delays, µs", noise: 0.25},
		{metric: "redis_cpu_us", what: "CPU of Redis, µs", noise: 0.15},
		{metric: "client_cpu_us", what: "CPU of the client, µs", noise: 0.15},
		{metric: "errors", what: "errors"},
	}
	redisAllocations = []comparison{{metric: "allocs/op", what: "allocations"}}

	wrk = []comparison{{metric: "requests_per_s", what: "requests/s", noise: 0.05, atLeast: true}}
)

func comparisonsOf(scenario string) []comparison {
	switch {
	case strings.HasPrefix(scenario, "http "):
		return request
	case strings.HasPrefix(scenario, "wrk "):
		return wrk
	case strings.HasPrefix(scenario, "redis allocations "):
		return redisAllocations
	case strings.HasPrefix(scenario, "redis "):
		return redis
	case scenario == "heap":
		return heap
	case scenario == "cleanup":
		return cleanup
	case scenario == "admit":
		return admit
	case strings.Contains(scenario, "-parallel"):
		return parallel
	case strings.Contains(scenario, "-serial"):
		return serial
	}
	return nil
}

// loss is a case in which a peer is better than spillway by more than the noise.
type loss struct {
	scenario, what, peer string
	ours, theirs, ratio  float64
}

func isPeer(name string) bool {
	return name != frameless && !strings.HasPrefix(name, "floor") && !strings.HasPrefix(name, ours)
}

func losses(r *results) (out []loss) {
	var scenarios []string
	for _, k := range r.order {
		if !slices.Contains(scenarios, k.scenario) {
			scenarios = append(scenarios, k.scenario)
		}
	}
	for _, scenario := range scenarios {
		us := id{scenario, ours}
		for _, c := range comparisonsOf(scenario) {
			for _, name := range r.names(scenario) {
				peer := id{scenario, name}
				mine, ok := r.value(us, c.metric)
				theirs, ok2 := r.value(peer, c.metric)
				if !isPeer(name) || !ok || !ok2 {
					continue
				}
				ratio, ok := r.ratio(us, c.metric, peer, c.metric)
				if !ok {
					ratio = math.Inf(1) // the peer has none of it
				}
				if c.lost(mine, theirs, ratio) {
					out = append(out, loss{scenario, c.what, name, mine, theirs, ratio})
				}
			}
		}
	}
	return out
}

func (c comparison) lost(mine, theirs, ratio float64) bool {
	if c.atLeast {
		return theirs-mine > c.slack && ratio < 1-c.noise
	}
	return mine-theirs > c.slack && ratio > 1+c.noise
}
