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

// fleets writes the section about ten processes with one limit.
func (p page) fleets() {
	if !slices.ContainsFunc(p.r.order, func(k id) bool { return strings.HasPrefix(k.scenario, "fleet ") }) {
		return
	}
	p.printf(`## One limit for ten processes

Ten processes decide about one key of 2,000 a second with a burst of as many. Requests come at a pace, in units of the
limit, evenly or nine tenths of them at one process. "Of the ideal" is what passed against what one bucket lets pass of the
same requests. "Over" is by how many requests the fullest interval, measured at the processes, is above burst and rate; a
reply that took long counts here. A trip is a read of Redis from a connection, the first ones of new connections included.

`)
	var done []string
	for _, k := range p.r.order {
		if strings.HasPrefix(k.scenario, "fleet ") && !slices.Contains(done, k.scenario) {
			done = append(done, k.scenario)
			p.printf("### %s\n\n%s\n\n", strings.TrimPrefix(k.scenario, "fleet "), p.roundsOf(k.scenario))
			p.printf("| | requests | passed | of the ideal | over | trips per 1,000 | CPU of Redis, µs | errors | note |\n|---|--:|--:|--:|--:|--:|--:|--:|---|\n")
			for _, name := range p.r.names(k.scenario) {
				p.printf("| %s", mark(name))
				for _, metric := range []string{"asked", "admitted", "use", "over", "trips_per_1000", "redis_cpu_us", "errors"} {
					p.printf(" | %s", p.cell(id{k.scenario, name}, metric))
				}
				p.printf(" | %s |\n", note(k.scenario, name))
			}
			p.printf("\n")
		}
	}
}
