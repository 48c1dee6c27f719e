package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-go/spillway/benchmarks/peer"
)

// redis writes the section about limiters on Redis.
func (p page) redis() {
	if !slices.ContainsFunc(p.r.order, func(k id) bool { return strings.HasPrefix(k.scenario, "redis ") }) {
		return
	}
	p.printf(`## Redis

Decisions by goroutines that each ask for the next one when the last is answered, over the loopback interface; client and
servers share the machine's processors. "cN" is N goroutines. go-redis has its default pool. The delay is that of a single
decision. CPU is per decision, allocations are the client's. Differences below 25 %% mean nothing, nor does a single
round. Real networks make a trip dearer, and so the sharing of trips more useful.

`)
	for _, sc := range peer.RedisScenarios {
		for _, conc := range sc.Concurrency {
			s := fmt.Sprintf("redis %s-c%d", sc.Name, conc)
			if p.r.rounds(s) > 0 {
				p.redisTable(s, sc.What)
			}
		}
	}
	for _, conc := range []string{"c1", "c64"} {
		s := "redis allocations " + conc
		if p.r.rounds(s) == 0 {
			continue
		}
		p.printf("### allocations, %s\n\nAs go test counts them. %s\n\n| | allocations | bytes | note |\n|---|--:|--:|---|\n", conc, p.roundsOf(s))
		for _, name := range p.sorted(s, "allocs/op") {
			k := id{s, name}
			p.printf("| %s | %s | %s | %s |\n", mark(name), p.cell(k, "allocs/op"), p.cell(k, "B/op"), note(s, name))
		}
		p.printf("\n")
	}
}

func (p page) redisTable(scenario, what string) {
	columns := []struct {
		column
		base string // the ratio to this case instead of the value
	}{
		{column{"decisions/s", "decisions_per_s"}, ""},
		{column{"to " + redisRate, "decisions_per_s"}, redisRate},
		{column{"to " + scriptFloor, "decisions_per_s"}, scriptFloor},
		{column{"median, µs", "p50_us"}, ""},
		{column{"99 %, µs", "p99_us"}, ""},
		{column{"CPU of Redis, µs", "redis_cpu_us"}, ""},
		{column{"to " + redisRate, "redis_cpu_us"}, redisRate},
		{column{"CPU of client, µs", "client_cpu_us"}, ""},
		{column{"allocations", "allocs"}, ""},
		{column{"wrong", "wrong"}, ""},
		{column{"errors", "errors"}, ""},
	}
	p.printf("### %s\n\n%s. %s\n\n|", scenario[len("redis "):], what, p.roundsOf(scenario))
	rule := "|---"
	for _, c := range columns {
		p.printf(" | %s", c.title)
		rule += "|--:"
	}
	p.printf(" | note |\n%s|---|\n", rule)
	names := p.sorted(scenario, "decisions_per_s")
	slices.Reverse(names)
	for _, name := range names {
		k := id{scenario, name}
		p.printf("| %s", mark(name))
		for _, c := range columns {
			cell := p.cell(k, c.metric)
			if c.base != "" {
				cell = p.ratioCell(k, id{scenario, c.base}, c.metric)
			}
			p.printf(" | %s", cell)
		}
		p.printf(" | %s |\n", note(scenario, name))
	}
	p.printf("\n")
}
