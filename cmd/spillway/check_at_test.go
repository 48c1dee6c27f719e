package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const moving = `version: 1
policies:
  - name: search
    key: ip
    limit: 600/m
    burst: 100
    plans: {from: plan, limits: {gold: 6000/m}}
    schedule:
      - {when: "Sat,Sun", zone: Asia/Shanghai, limit: 60/m}
      - {when: "Mon-Fri 09:00-18:00", zone: Asia/Shanghai, scale: 1.5}
    calendar: {holidays: ["2026-10-01..2026-10-07"], workdays: ["2026-10-10"]}
  - {name: load, key: global, adaptive: {min: 5, max: 500}}
  - {name: rate, key: ip, mode: local, limit: 100/s, schedule: [{when: "2026-10-10", limit: 50/s}], adaptive: {target: rate, min: 10/s}}
  - {name: plain, stage: identity, key: ip, limit: 5/s, in_flight: 4}
`

// A schedule and what moves by load are told with what policies mean.
const movingTable = `STAGE     POLICY  REQUESTS  BY      LIMIT                             AND
edge      search  all       ip      600/m burst 100                   schedule Sat,Sun in Asia/Shanghai: 60/m, else Mon-Fri 09:00-18:00 in Asia/Shanghai × 1.5; plans by plan (gold 6000/m, others the limit)
edge      load    all       global  adaptive 5 to 500 in flight
edge      rate    all       ip      100/s, adaptive 10/s to 100/s     local; schedule 2026-10-10: 50/s
identity  plain   all       ip      5/s, 4 in flight
`

// Of an instant it is told what the limits are and why.
func TestCheckAt(t *testing.T) {
	const rest = "edge      load    adaptive 5 to 500 in flight  adaptive: each process moves it by what it bears\n"
	const plain = "identity  plain   5/s, 4 in flight  as written\n"
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"none": {nil, ""},
		"a Saturday that is a workday, in a zone": {[]string{"-at", "2026-10-10 10:00", "-zone", "Asia/Shanghai"}, `
at 2026-10-10 10:00:00 +08:00, Saturday
STAGE     POLICY  LIMIT  WHY
edge      search  900/m burst 150  rule 2, "Mon-Fri 09:00-18:00", is on at 2026-10-10 10:00:00 CST (2026-10-10 Sat, a workday that counts as Friday): 600/m burst 100 × 1.5 = 900/m burst 150; those of plans and overrides likewise
` + rest + `edge      rate    50/s, adaptive 10/s to 100/s  rule 1, "2026-10-10", is on at 2026-10-10 02:00:00 UTC (2026-10-10 Sat): the limit is 50/s; adaptive: each process moves it by what it bears
` + plain},
		"a holiday, by its offset": {[]string{"-at", "2026-10-02T10:00:00+08:00"}, `
at 2026-10-02 10:00:00 +08:00, Friday
STAGE     POLICY  LIMIT  WHY
edge      search  60/m  rule 1, "Sat,Sun", is on at 2026-10-02 10:00:00 CST (2026-10-02 Fri, a holiday): the limit is 60/m; also in the place of plans and overrides
` + rest + `edge      rate    100/s, adaptive 10/s to 100/s  no rule is on: the limit is 100/s; it is 02:00:00 in UTC (2026-10-02 Fri); adaptive: each process moves it by what it bears
` + plain},
		"no rule, in another zone": {[]string{"-at", "2026-10-09T22:00:00+08:00", "-zone", "UTC"}, `
at 2026-10-09 14:00:00 +00:00, Friday
STAGE     POLICY  LIMIT  WHY
edge      search  600/m burst 100  no rule is on: the limit is 600/m burst 100; it is 22:00:00 in Asia/Shanghai (2026-10-09 Fri)
` + rest + `edge      rate    100/s, adaptive 10/s to 100/s  no rule is on: the limit is 100/s; it is 14:00:00 in UTC (2026-10-09 Fri); adaptive: each process moves it by what it bears
` + plain},
	} {
		code, out, errs := command(t, append(append([]string{"check", "-app"}, c.args...), document(t, moving))...)
		require.Equal(t, exitOK, code, "%s: %s%s", name, out, errs)
		require.Equal(t, squeeze(movingTable+c.want), squeeze(out), name)
	}
	code, out, _ := command(t, "check", "-at", "now", document(t, "version: 1\n"))
	require.Equal(t, exitOK, code)
	require.Equal(t, "no policies: everything passes\n", out)
	code, out, _ = command(t, "check", "-at", "now", document(t, "version: 1\npolicies: [{name: a, key: ip, limit: 1/x}]\n"))
	require.Equal(t, exitError, code)
	require.NotContains(t, out, "WHY", "what is wrong has no limits")
}

func TestCheckAtJSON(t *testing.T) {
	code, out, _ := command(t, "check", "-app", "-json", "-at", "2026-10-02 10:00", "-zone", "Asia/Shanghai", document(t, moving))
	require.Equal(t, exitOK, code)
	var r struct {
		OK     bool
		At     time.Time
		Limits []effective
	}
	require.NoError(t, json.Unmarshal([]byte(out), &r))
	require.True(t, r.OK)
	require.Equal(t, "2026-10-02T02:00:00Z", r.At.UTC().Format(time.RFC3339))
	require.Len(t, r.Limits, 4)
	require.Equal(t, "60/m", r.Limits[0].Limit)
	require.Equal(t, effective{Stage: "identity", Policy: "plain", Limit: "5/s, 4 in flight", Why: "as written"}, r.Limits[3])
	_, out, _ = command(t, "check", "-json", document(t, "version: 1\n"))
	require.NotContains(t, out, "limits")
	_, out, _ = command(t, "check", "-json", "-at", "now", document(t, "version: 1\n"))
	require.Contains(t, out, `"limits": []`)
}

// Instants are read as people write them.
func TestInstant(t *testing.T) {
	for _, c := range [][3]string{
		{"2026-10-01T09:30:00+08:00", "", "2026-10-01T09:30:00+08:00"},
		{"2026-10-01T01:30:00Z", "Asia/Shanghai", "2026-10-01T09:30:00+08:00"},
		{"2026-10-01 09:30", "Asia/Shanghai", "2026-10-01T09:30:00+08:00"},
		{"2026-10-01 09:30:15", "Asia/Shanghai", "2026-10-01T09:30:15+08:00"},
		{"2026-10-01T09:30", "UTC", "2026-10-01T09:30:00Z"},
		{"2026-10-01", "America/New_York", "2026-10-01T00:00:00-04:00"},
	} {
		got, err := instant(c[0], c[1])
		require.NoError(t, err)
		require.Equal(t, c[2], got.Format(time.RFC3339), c)
	}
	local, err := instant("2026-10-01 09:30", "")
	require.NoError(t, err)
	require.Equal(t, time.Date(2026, 10, 1, 9, 30, 0, 0, time.Local), local)
	for _, c := range [][2]string{{"tomorrow", ""}, {"2026-13-01", ""}, {"2026-10-01 25:00", "UTC"}, {"now", "Asia/Shangai"}, {"", "UTC"}} {
		_, err := instant(c[0], c[1])
		require.ErrorIs(t, err, errUsage, c)
		code, _, errs := command(t, "check", "-at", c[0], "-zone", c[1], "policies.yaml")
		require.Equal(t, exitUsage, code, c)
		require.Regexp(t, `^spillway: -(at|zone)`, errs)
	}
}
