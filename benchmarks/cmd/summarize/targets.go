package main

import (
	"fmt"
	"math"
	"strings"
)

// target is one row of what spillway sets itself: a bar for every release, and what has been shown to be possible.
type target struct {
	number int
	what   string
	bounds []bound
}

// bound is one number of a target.
type bound struct {
	what    string
	must    float64 // none: no bar
	stretch float64
	atLeast bool // larger is better
	measure func(*results) (float64, bool)
}

var none = math.NaN()

const (
	ours      = "spillway"
	ourWindow = "spillway-sliding-window"
	ourGiven  = "spillway-given-instant" // the instant is the caller's, as in a guard
	casFloor  = "floor:cas-1var"
	mapFloor  = "floor:shard-rwmutex+cas"
	httpFloor = "floor-headers"
	frameless = "none"

	ourUnshared = "spillway-unshared" // a trip to Redis for each decision
	ourLeased   = "spillway-leased"
	redisRate   = "redis_rate"
	scriptFloor = "floor:evalsha"
)

var frameworks = []string{"std", "gin", "echo"}

var targets = []target{
	{1, "hot key, serial, full result", []bound{
		{"CPU, ratio to the CAS floor", 1.7, 1.3, false, ratio("hot-serial", ours, casFloor, "cpu-ns/op")},
		{"the same with a clock cached by the caller", none, 0.7, false, ratio("hot-serial", ourGiven, casFloor, "cpu-ns/op")},
		{"allocations", 0, 0, false, value("hot-serial", ours, "allocs/op")},
	}},
	{2, "hot key, denied", []bound{
		{"CPU, ratio to the CAS floor", 1.7, 1.3, false, ratio("hot-denied-serial", ours, casFloor, "cpu-ns/op")},
		{"allocations", 0, 0, false, value("hot-denied-serial", ours, "allocs/op")},
	}},
	{3, "hot key, parallel", []bound{
		{"wall time, 1 goroutine per processor, ratio to the CAS floor", 2.0, 1.4, false, ratio("hot-parallel", ours, casFloor, "ns/op")},
		{"wall time, 50 goroutines per processor, ratio to the CAS floor", 1.3, 1.1, false, ratio("hot-parallel-x50", ours, casFloor, "ns/op")},
	}},
	{4, "100,000 keys, parallel", []bound{
		{"CPU, uniform, ratio to the map floor", 1.1, 0.8, false, ratio("100k-uniform-parallel", ours, mapFloor, "cpu-ns/op")},
		{"CPU, zipf, ratio to the map floor", 1.1, 0.8, false, ratio("100k-zipf-parallel", ours, mapFloor, "cpu-ns/op")},
		{"allocations on a known key", 0, 0, false, value("100k-uniform-parallel", ours, "allocs/op")},
	}},
	{5, "1,000,000 keys, uniform, parallel", []bound{
		{"CPU, ratio to the map floor", 1.0, 0.65, false, ratio("1M-uniform-parallel", ours, mapFloor, "cpu-ns/op")},
	}},
	{6, "heap per live key", []bound{
		{"token bucket, bytes", 96, 48, false, value("heap", ours, "bytes_per_key")},
		{"sliding window of two counters, bytes", 128, 64, false, value("heap", ourWindow, "bytes_per_key")},
	}},
	{7, "one full collection with 1,000,000 keys", []bound{
		{"ms", 80, 5, false, value("heap", ours, "gc_ms")},
	}},
	{8, "worst delay of a decision while 1,000,000 keys expire", []bound{
		{"ratio to the quiet phase", 2, none, false, within("cleanup", ours, "clean_max_us", "quiet_max_us")},
		{"ms, for an idle machine", 5, none, false, scaled(1e-3, value("cleanup", ours, "clean_max_us"))},
	}},
	{9, "memory after all keys have expired, and its bound", []bound{
		{"bytes left per key", 60, none, false, value("cleanup", ours, "left_bytes_per_key")},
		{"share left of the peak", none, 0.1, false, within("cleanup", ours, "left_bytes_per_key", "filled_bytes_per_key")},
		{"growth of the heap by four times as many keys as allowed", 1.5, 1.1, false, value("bound", ours, "growth")},
	}},
	{10, "over-admission, 64 goroutines on one key", []bound{
		{"units beyond limit and refill", 0, 0, false, value("admit", ours, "over")},
		{"errors", 0, 0, false, value("admit", ours, "errors")},
	}},
	{11, "Redis, a trip for each decision, 1 goroutine: decisions/s", []bound{
		{"ratio to redis_rate", 0.95, none, true, ratio("redis spread-c1", ourUnshared, redisRate, "decisions_per_s")},
		{"ratio to the empty script", none, 0.85, true, ratio("redis spread-c1", ourUnshared, scriptFloor, "decisions_per_s")},
	}},
	{12, "Redis, a trip for each decision, 64 goroutines: decisions/s", []bound{
		{"ratio to the empty script", 0.80, 0.95, true, ratio("redis spread-c64", ourUnshared, scriptFloor, "decisions_per_s")},
		{"share of rounds above redis_rate", 0.51, 1, true, wins("redis spread-c64", ourUnshared, redisRate, "decisions_per_s")},
	}},
	{13, "Redis, shared trips, 1 goroutine with nothing to share: decisions/s", []bound{
		{"ratio to redis_rate", 0.95, 1.0, true, ratio("redis spread-c1", ours, redisRate, "decisions_per_s")},
	}},
	{14, "Redis, shared trips: decisions/s, ratio to redis_rate", []bound{
		{"16 goroutines", 2.0, 2.3, true, ratio("redis spread-c16", ours, redisRate, "decisions_per_s")},
		{"64 goroutines", 3.3, 5, true, ratio("redis spread-c64", ours, redisRate, "decisions_per_s")},
		{"256 goroutines", 5, 7, true, ratio("redis spread-c256", ours, redisRate, "decisions_per_s")},
	}},
	{15, "Redis Cluster of three masters, shared trips: decisions/s, ratio to redis_rate", []bound{
		{"64 goroutines", 2.8, 3.3, true, ratio("redis cluster-c64", ours, redisRate, "decisions_per_s")},
		{"256 goroutines", 3.5, 6, true, ratio("redis cluster-c256", ours, redisRate, "decisions_per_s")},
	}},
	{16, "Redis, shared trips, 64 goroutines: delay, ratio to redis_rate", []bound{
		{"median", 0.40, 0.20, false, ratio("redis spread-c64", ours, redisRate, "p50_us")},
		{"99 %", 0.50, 0.25, false, ratio("redis spread-c64", ours, redisRate, "p99_us")},
	}},
	{17, "Redis, shared trips: CPU of Redis per decision, ratio to redis_rate", []bound{
		{"64 goroutines", 0.33, 0.22, false, ratio("redis spread-c64", ours, redisRate, "redis_cpu_us")},
		{"256 goroutines", 0.20, 0.13, false, ratio("redis spread-c256", ours, redisRate, "redis_cpu_us")},
	}},
	{18, "Redis, one hot key, shared trips, 64 goroutines: decisions/s", []bound{
		{"ratio to redis_rate", 6, 8.5, true, ratio("redis hot-c64", ours, redisRate, "decisions_per_s")},
	}},
	{19, "Leases, warm keys, 64 goroutines", []bound{
		{"decisions/s, ratio to redis_rate", 20, 60, true, ratio("redis warm-c64", ourLeased, redisRate, "decisions_per_s")},
		{"delay, median, µs", 5, none, false, value("redis warm-c64", ourLeased, "p50_us")},
		{"CPU of Redis per decision, µs", 1, none, false, value("redis warm-c64", ourLeased, "redis_cpu_us")},
	}},
	{20, "Redis, allocations per decision", []bound{
		{"a trip for each decision, 1 goroutine", 14, 12, false, value("redis allocations c1", ourUnshared, "allocs/op")},
		{"shared trips, 64 goroutines", 6, 4, false, value("redis allocations c64", ours, "allocs/op")},
	}},
	{21, "middleware, allowed, three headers: allocations", []bound{
		{"net/http", 3, 2, false, value("http allow std", ours, "allocs/op")},
		{"Gin", 3, 2, false, value("http allow gin", ours, "allocs/op")},
		{"Echo", 4, 3, false, value("http allow echo", ours, "allocs/op")},
	}},
	{22, "middleware, allowed, three headers: CPU added, ratio to the header floor", []bound{
		{"net/http", 1.6, 1.2, false, ratio("http allow std", ours, httpFloor, "added")},
		{"Gin", 1.6, 1.2, false, ratio("http allow gin", ours, httpFloor, "added")},
		{"Echo", 1.6, 1.2, false, ratio("http allow echo", ours, httpFloor, "added")},
	}},
	{23, "middleware, denied with a body: CPU added, ratio to the header floor, and allocations", []bound{
		{"net/http", 3, 2, false, ratio("http deny std", ours, httpFloor, "added")},
		{"Gin", 3, 2, false, ratio("http deny gin", ours, httpFloor, "added")},
		{"Echo", 3, 2, false, ratio("http deny echo", ours, httpFloor, "added")},
		{"net/http, allocations", 6, 4, false, value("http deny std", ours, "allocs/op")},
		{"Gin, allocations", 6, 4, false, value("http deny gin", ours, "allocs/op")},
		{"Echo, allocations", 6, 4, false, value("http deny echo", ours, "allocs/op")},
	}},
	{24, "requests per second over the loopback interface, ratio to no middleware", []bound{
		{"net/http, no headers", 0.96, 0.98, true, ratio("wrk std", ours+"-off", frameless, "requests_per_s")},
		{"net/http, three headers", 0.83, 0.86, true, ratio("wrk std", ours, frameless, "requests_per_s")},
		{"Gin, no headers", 0.96, 0.98, true, ratio("wrk gin", ours+"-off", frameless, "requests_per_s")},
		{"Gin, three headers", 0.83, 0.86, true, ratio("wrk gin", ours, frameless, "requests_per_s")},
		{"Echo, no headers", 0.96, 0.98, true, ratio("wrk echo", ours+"-off", frameless, "requests_per_s")},
		{"Echo, three headers", 0.83, 0.86, true, ratio("wrk echo", ours, frameless, "requests_per_s")},
	}},
	{25, "requests per second over the loopback interface, limiter on Redis with shared trips, ratio to no middleware", []bound{
		{"net/http, three headers", 0.42, 0.48, true, ratio("wrk redis", ours, frameless, "requests_per_s")},
	}},
}

func value(scenario, name, metric string) func(*results) (float64, bool) {
	return func(r *results) (float64, bool) { return r.value(id{scenario, name}, metric) }
}

// ratio compares two cases of a scenario.
func ratio(scenario, name, base, metric string) func(*results) (float64, bool) {
	return func(r *results) (float64, bool) {
		return r.ratio(id{scenario, name}, metric, id{scenario, base}, metric)
	}
}

// wins is the share of rounds in which a case has more of a metric than another.
func wins(scenario, name, base, metric string) func(*results) (float64, bool) {
	return func(r *results) (float64, bool) {
		won, n := 0, 0
		for round, m := range r.values[id{scenario, name}] {
			if b, ok := r.values[id{scenario, base}][round][metric]; ok {
				n++
				if m[metric] > b {
					won++
				}
			}
		}
		return float64(won) / float64(max(n, 1)), n > 0
	}
}

// within compares two metrics of a case.
func within(scenario, name, metric, base string) func(*results) (float64, bool) {
	return func(r *results) (float64, bool) {
		return r.ratio(id{scenario, name}, metric, id{scenario, name}, base)
	}
}

func scaled(factor float64, f func(*results) (float64, bool)) func(*results) (float64, bool) {
	return func(r *results) (float64, bool) {
		x, ok := f(r)
		return x * factor, ok
	}
}

func (b bound) meets(x, bar float64) bool {
	if b.atLeast {
		return x >= bar
	}
	return x <= bar
}

// verdict is the measured value and how it compares, as words of the page.
func (b bound) verdict(r *results) (measured, result string) {
	x, ok := b.measure(r)
	if !ok {
		return "–", "not measured"
	}
	measured = number(x)
	switch {
	case !math.IsNaN(b.must) && !b.meets(x, b.must):
		result = "**missed**"
	case math.IsNaN(b.must) && !b.meets(x, b.stretch):
		result = "stretch not reached"
	case b.meets(x, b.stretch): // never for a stretch of none: comparisons with NaN are false
		result = "met, stretch too"
	default:
		result = "met"
	}
	return measured, result
}

func (b bound) bar(x float64) string {
	switch {
	case math.IsNaN(x):
		return "–"
	case b.atLeast:
		return "≥ " + number(x)
	case x == 0:
		return "0"
	}
	return "≤ " + number(x)
}

// number writes three digits or so, without needless zeros.
func number(x float64) string {
	switch a := math.Abs(x); {
	case a >= 100:
		return fmt.Sprintf("%.0f", x)
	case a >= 10:
		return trim(fmt.Sprintf("%.1f", x))
	}
	return trim(fmt.Sprintf("%.2f", x))
}

func trim(s string) string {
	s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	if s == "-0" {
		return "0"
	}
	return s
}
