package config_test

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-go/spillway/config"
	"github.com/spillway-go/spillway/limiter"
	"github.com/spillway-go/spillway/limiter/adaptive"
)

// adaptiveSettings are what the controller of a policy is made with.
func adaptiveSettings(t *testing.T, policy string) (c adaptive.Config, law string) {
	t.Helper()
	d, made := chainDeps(t), 0
	d.Adaptive = func(x *adaptive.Config) { c = *x; made++ }
	built(t, d, "version: 1\npolicies: [{name: a, key: ip, "+policy+"}]")
	require.Equal(t, 1, made)
	require.Same(t, d.Logger, c.Logger)
	x := c.Law(adaptive.Thresholds{CPU: 0.8})
	for name, other := range map[string]adaptive.Law{"hybrid": adaptive.Hybrid(adaptive.Thresholds{CPU: 0.8}), "aimd": adaptive.AIMD(adaptive.Thresholds{CPU: 0.8}), "bbr": adaptive.BBR(adaptive.Thresholds{CPU: 0.8})} {
		if same(x, other) {
			law = name
		}
	}
	c.Law, c.Observer, c.Logger = nil, nil, nil
	return c, law
}

func same(a, b any) bool { return reflect.TypeOf(a) == reflect.TypeOf(b) }

// Each field of adaptive arrives at its setting.
func TestAdaptiveArrives(t *testing.T) {
	for policy, want := range map[string]adaptive.Config{
		"adaptive: {max: 500}": {Name: "a", Max: 500},
		"limit: 9/s, in_flight: 5, adaptive: {target: in_flight, law: aimd, min: 5, max: 500, fixed: 50, cpu: 0.7, rtt: 500ms, errors: 7%, queue_delay: 10ms, runnable: 2.5, window: 100ms, interval: 2s, min_samples: 20, cpu_quota: 1.5}": {
			Name: "a", Min: 5, Max: 500, Fixed: 50, CPU: 0.7, RTT: 500 * time.Millisecond, Errors: 0.07, QueueDelay: 10 * time.Millisecond, Runnable: 2.5,
			Window: 100 * time.Millisecond, Interval: 2 * time.Second, MinSamples: 20, CPUQuota: 1.5,
		},
		"adaptive: {max: 500, law: bbr, rtt: off, errors: off, queue_delay: off}":                                                {Name: "a", Max: 500, RTT: -1, Errors: -1},
		"limit: 100/s, mode: local, adaptive: {target: rate}":                                                                    {Name: "a", Target: adaptive.Rate},
		"limit: 100/s, mode: local, adaptive: {target: rate, min: 600/m, max: 200/s, fixed: 50/s}":                               {Name: "a", Target: adaptive.Rate, Min: 0.1, Max: 2, Fixed: 0.5},
		"limit: '100', algorithm: fixed_window, align: {unit: day}, mode: local, adaptive: {target: rate, min: '50', law: aimd}": {Name: "a", Target: adaptive.Rate, Min: 0.5},
	} {
		got, law := adaptiveSettings(t, policy)
		require.InDelta(t, want.Errors, got.Errors, 1e-9)
		got.Errors = want.Errors
		require.Equal(t, want, got, policy)
		said := "hybrid"
		for _, name := range []string{"aimd", "bbr"} {
			if strings.Contains(policy, name) {
				said = name
			}
		}
		require.Equal(t, said, law, policy)
	}
	cfg := built(t, chainDeps(t), "version: 1\npolicies: [{name: a, key: ip, adaptive: {min: 4, max: 100}}, {name: b, key: ip, mode: local, limit: 100/s, adaptive: {target: rate, fixed: 50/s}}, {name: c, key: ip, limit: 1/s}]")
	require.Equal(t, 20, cfg.Policies[0].Adaptive.Bound())
	require.Equal(t, 100, cfg.Policies[0].Adaptive.Max())
	require.Equal(t, math.MaxInt, cfg.Policies[1].Adaptive.Bound())
	require.Nil(t, cfg.Policies[2].Adaptive)
	require.Nil(t, cfg.Policies[2].Adjust)
}

// What is wrong is told where it stands, in the words of a document.
func TestAdaptiveFindings(t *testing.T) {
	for policy, want := range map[string][]string{
		"adaptive: {min: 5}":                                                                   {"policies[0].adaptive missing_field"},
		"adaptive: {max: 10/s}":                                                                {"policies[0].adaptive.max invalid_value"},
		"adaptive: {max: 5000000}":                                                             {"policies[0].adaptive.max invalid_value"},
		"adaptive: {max: '0', min: x}":                                                         {"policies[0].adaptive.max invalid_value", "policies[0].adaptive.min invalid_value"},
		"adaptive: {max: 5, min: 6}":                                                           {"policies[0].adaptive.min invalid_value"},
		"adaptive: {max: 5, fixed: 6}":                                                         {"policies[0].adaptive.fixed invalid_value"},
		"adaptive: {max: 5, errors: 100%}":                                                     {"policies[0].adaptive.errors invalid_value"},
		"adaptive: {max: 5, window: 2s, interval: 1s}":                                         {"policies[0].adaptive.interval invalid_value"},
		"limit: 9/s, adaptive: {target: rate}":                                                 {"policies[0].adaptive.target conflict"},
		"limit: 9/s, mode: local, adaptive: {target: rate, law: bbr}":                          {"policies[0].adaptive.law conflict"},
		"mode: local, adaptive: {target: rate}":                                                {"policies[0] missing_field", "policies[0].adaptive.target conflict"},
		"limit: x, mode: local, adaptive: {target: rate}":                                      {"policies[0].limit invalid_value"},
		"limit: unlimited, mode: local, adaptive: {target: rate}":                              {"policies[0].adaptive.target conflict"},
		"limit: 9/s, mode: local, adaptive: {target: rate, min: 5}":                            {"policies[0].adaptive.min invalid_value"},
		"limit: 9/s, mode: local, adaptive: {target: rate, min: unlimited}":                    {"policies[0].adaptive.min invalid_value"},
		"limit: 9/s, mode: local, adaptive: {target: rate, min: 10/s}":                         {"policies[0].adaptive.min invalid_value"},
		"limit: 9/s, mode: local, adaptive: {target: rate, max: 91/s}":                         {"policies[0].adaptive.max invalid_value"},
		"limit: 9/s, mode: local, adaptive: {target: rate, fixed: 10/s}":                       {"policies[0].adaptive.fixed invalid_value"},
		"limit: 9/s, schedule: [{when: Mon-Fri}]":                                              {"policies[0].schedule[0] missing_field"},
		"limit: 9/s, schedule: [{when: Mon, scale: 2, limit: 5/s}]":                            {"policies[0].schedule[0].limit conflict"},
		"limit: 9/s, schedule: [{when: Mon, scale: 2}, {when: Mo 25, zone: Asia/X, scale: 2}]": {"policies[0].schedule[1].when invalid_value", "policies[0].schedule[1].zone invalid_value"},
		"limit: 9/s, schedule: [{when: Mon, zone: Local, scale: 2}]":                           {"policies[0].schedule[0].zone invalid_value"},
		"limit: 9/s, schedule: [{when: Mon, limit: 5}]":                                        {"policies[0].schedule[0].limit invalid_value"},
		"limit: 9/s, mode: leased, schedule: [{when: Mon, limit: 5/s sliding_log}]":            {"policies[0].mode conflict", "policies[0].schedule[0].limit conflict"},
		"in_flight: 5, schedule: [{when: Mon, scale: 2}]":                                      {"policies[0].schedule conflict"},
		"limit: 9/s, schedule: [{when: holiday, scale: 2}]":                                    {"policies[0].schedule[0].when no_effect"},
		"limit: 9/s, calendar: {holidays: [2026-10-01]}":                                       {"policies[0].calendar no_effect"},
		"limit: 9/s, schedule: [{when: Mon, scale: 2}], calendar: {holidays: [2026-10-01, 2026-02-30], workdays: [x]}": {
			"policies[0].calendar.holidays[1] invalid_value", "policies[0].calendar.workdays[0] invalid_value",
		},
		"limit: x, schedule: [{when: Mon, scale: 2}]": {"policies[0].limit invalid_value"},
	} {
		_, found := config.Build(parsed(t, "version: 1\npolicies: [{name: a, key: ip, "+policy+"}]"), chainDeps(t))
		require.ElementsMatch(t, want, ids(found), "%s: %v", policy, found)
		for _, f := range found {
			require.NotRegexp(t, `[a-z][A-Z]|adaptive: |invalid limit|\b(Min|Max|Fixed|Window|Interval|Errors|Scale|When|Zone|Limit)\b|0\.\d{5}`, f.Message, policy)
		}
	}
	_, found := config.Build(parsed(t, strings.ReplaceAll(many(110, "", "x"), "degrade: x", "adaptive: {max: 5}")), chainDeps(t))
	require.Equal(t, []string{"policies[100].adaptive too_large"}, ids(found))
	for text, want := range map[string]string{
		"adaptive: {max: 5, cpu: 2}":                        "policies[0].adaptive.cpu",
		"adaptive: {max: 5, cpu: off}":                      "policies[0].adaptive.cpu",
		"adaptive: {max: 5, rtt: 2h}":                       "policies[0].adaptive.rtt",
		"adaptive: {max: 5, runnable: 0}":                   "policies[0].adaptive.runnable",
		"adaptive: {max: 5, law: hybird}":                   "policies[0].adaptive.law",
		"limit: 5/s, schedule: []":                          "policies[0].schedule",
		"limit: 5/s, schedule: [{scale: 2}]":                "policies[0].schedule[0].when",
		"limit: 5/s, schedule: [{when: Mon, scale: 1001}]":  "policies[0].schedule[0].scale",
		"limit: 5/s, schedule: [{when: Mon, scale: .inf}]":  "policies[0].schedule[0].scale",
		"limit: 5/s, schedule: [{when: Mon, scale: 1e2_0}]": "policies[0].schedule[0].scale",
		"limit: 5/s, schedule: [{when: Mon, scale: nan}]":   "policies[0].schedule[0].scale",
		"limit: 5/s, schedule: [{when: Mon, scale: '-1'}]":  "policies[0].schedule[0].scale",
	} {
		_, found := config.Parse([]byte("version: 1\npolicies: [{name: a, key: ip, " + text + "}]"))
		require.Len(t, found, 1, text)
		require.True(t, strings.HasPrefix(want, found[0].Path), "%s: %v", text, found)
	}
}

// The schedule comes before what the service bears, and the first rule that is on decides.
func TestScheduleArrives(t *testing.T) {
	cfg := built(t, chainDeps(t), `
version: 1
policies:
  - name: a
    key: ip
    limit: 100/s burst 200
    mode: local
    schedule:
      - {when: holiday, limit: 7/s}
      - {when: "Mon-Fri 09:00-18:00", zone: Asia/Shanghai, scale: 1.5}
      - {when: Sun, limit: deny_all}
    calendar: {holidays: ["2026-10-01..2026-10-07"], workdays: [2026-10-10]}
    adaptive: {target: rate, fixed: 50/s}
  - {name: b, key: ip, limit: 60/m, algorithm: sliding_window, cells: 10, schedule: [{when: 00:00-24:00, limit: 30/m}]}
`)
	p := cfg.Policies[0]
	require.Len(t, p.Adjust, 1)
	nominal := p.Limit.Current()
	for at, want := range map[string]limiter.Limit{
		"2026-10-05T02:00:00Z": limiter.PerSecond(7),
		"2026-10-10T02:00:00Z": limiter.PerSecond(150).WithBurst(300),
		"2026-10-09T02:00:00Z": limiter.PerSecond(150).WithBurst(300),
		"2026-10-09T11:00:00Z": nominal,
		"2026-10-11T12:00:00Z": limiter.DenyAll,
	} {
		now, err := time.Parse(time.RFC3339, at)
		require.NoError(t, err)
		l := p.Adjust[0].Adjust(now, nominal)
		require.Equal(t, want, l, at)
	}
	require.Equal(t, limiter.PerSecond(50).WithBurst(100), p.Adaptive.Adjust(time.Now(), nominal))
	require.NoError(t, p.Adaptive.(*adaptive.Controller).Close())
	b := cfg.Policies[1]
	l := b.Adjust[0].Adjust(time.Now(), b.Limit.Current())
	require.Equal(t, "30/m sliding_window cells 10", l.String(), "counted as the policy is")
}

// A document shows what moves its limits as it can be written again, and what differs between two.
func TestAdaptiveShown(t *testing.T) {
	text := "version: 1\npolicies:\n  - name: a\n    key:\n      - ip\n    limit: 1/d\n    schedule:\n      - when: Mon-Fri\n        zone: Asia/Shanghai\n        scale: 1.25\n      - when: Sat\n        limit: 5/d\n" +
		"    calendar:\n      holidays:\n        - 2026-10-01..2026-10-07\n    adaptive:\n      max: \"500\"\n      cpu: 75%\n      rtt: \"off\"\n      errors: \"off\"\n      runnable: 2.5\n"
	doc := parsed(t, text)
	require.Equal(t, text, string(doc.Redacted()))
	require.Empty(t, config.Diff(doc, parsed(t, string(doc.Redacted()))))
	other := parsed(t, "version: 1\npolicies: [{name: a, key: ip, limit: 1/d, schedule: [{when: Mon-Fri, zone: Asia/Shanghai, scale: 2}], adaptive: {max: 600, cpu: 0.75, rtt: 1s, errors: 5%}}]")
	var changes []string
	for _, c := range config.Diff(doc, other) {
		changes = append(changes, c.String())
	}
	require.Equal(t, []string{
		"policies.a.adaptive.errors: off → 5%",
		"policies.a.adaptive.max: 500 → 600",
		"policies.a.adaptive.rtt: off → 1s",
		"policies.a.adaptive.runnable: − 2.5",
		"policies.a.calendar.holidays: − 2026-10-01..2026-10-07",
		"policies.a.schedule: Mon-Fri, Sat → Mon-Fri",
		"policies.a.schedule[0].scale: 1.25 → 2",
		"policies.a.schedule[1].limit: − 5/d",
		"policies.a.schedule[1].when: − Sat",
	}, changes)
}
