package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const twoRounds = `goos: linux
BenchmarkMem/hot-serial/floor:cas-1var-2     200000  40.0 ns/op  40.0 cpu-ns/op  0 B/op  0 allocs/op
BenchmarkMem/hot-serial/spillway-2           200000  60.0 ns/op  60.0 cpu-ns/op  0 B/op  0 allocs/op
BenchmarkMem/hot-serial/sethvargo-2          200000  50.0 ns/op  50.0 cpu-ns/op  0 B/op  0 allocs/op
goos: linux
BenchmarkMem/hot-serial/floor:cas-1var-2     200000  80.0 ns/op  80.0 cpu-ns/op  0 B/op  0 allocs/op
BenchmarkMem/hot-serial/spillway-2           200000  136.0 ns/op  136.0 cpu-ns/op  0 B/op  0 allocs/op
BenchmarkMem/hot-serial/sethvargo-2          200000  100.0 ns/op  100.0 cpu-ns/op  0 B/op  0 allocs/op
BenchmarkHTTP/allow/std/none-2               50000  10.0 ns/op  10.0 cpu-ns/op  0 B/op  0 allocs/op
BenchmarkHTTP/allow/std/floor-headers-2      50000  110.0 ns/op  110.0 cpu-ns/op  48 B/op  2 allocs/op
BenchmarkHTTP/allow/std/spillway-2           50000  260.0 ns/op  260.0 cpu-ns/op  48 B/op  3 allocs/op
`

const oneCleanup = "round\tname\tquiet_max_us\tclean_max_us\tleft_bytes_per_key\tfilled_bytes_per_key\n" +
	"0\tspillway\t2000\t3000\t0\t40.5\n"

const redisRounds = "round\tname\tdecisions_per_s\tp50_us\tp99_us\tredis_cpu_us\tclient_cpu_us\tallocs\twrong\terrors\n" +
	"0\tspread-c64/floor:evalsha\t40000\t900\t2000\t10\t10\t10\t0\t0\n" +
	"0\tspread-c64/redis_rate\t30000\t1000\t3000\t20\t30\t20\t0\t0\n" +
	"0\tspread-c64/spillway\t90000\t300\t1200\t5\t6\t4\t0\t0\n" +
	"0\tspread-c64/spillway-unshared\t36000\t900\t2500\t15\t25\t12\t0\t0\n" +
	"0\tspread-c64/valkeylimiter\t180000\t200\t600\t5\t6\t1\t0\t0\n" +
	"1\tspread-c64/floor:evalsha\t20000\t900\t2000\t10\t10\t10\t0\t0\n" +
	"1\tspread-c64/redis_rate\t20000\t1000\t3000\t20\t30\t20\t0\t0\n" +
	"1\tspread-c64/spillway\t80000\t300\t1200\t5\t6\t4\t0\t0\n" +
	"1\tspread-c64/spillway-unshared\t18000\t900\t2500\t15\t25\t12\t0\t0\n" +
	"1\twarm-c64/redis_rate\t20000\t1000\t3000\t20\t30\t20\t0\t0\n" +
	"1\twarm-c64/spillway-leased\t600000\t7.5\t30\t0.2\t1\t0\t0\t0\n"

const fleetRounds = "round\tname\tasked\tadmitted\tuse\tover\ttrips_per_1000\tredis_cpu_us\terrors\n" +
	"0\teven-x2/spillway-leased\t12000\t7900\t0.99\t0\t33\t2\t0\n" +
	"0\teven-x2/hash\t12000\t8800\t1.1\t1500\t30\t1\t0\n"

func results2(t *testing.T) *results {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "hot.txt"), []byte(twoRounds), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cleanup.tsv"), []byte(oneCleanup), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "redis.tsv"), []byte(redisRounds), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "fleet.tsv"), []byte(fleetRounds), 0o600))
	r, err := load(dir)
	require.NoError(t, err)
	return r
}

func TestRatiosAreTakenInsideRounds(t *testing.T) {
	r := results2(t)
	require.Equal(t, 2, r.rounds("hot-serial"))
	x, ok := ratio("hot-serial", ours, casFloor, "cpu-ns/op")(r)
	require.True(t, ok)
	require.InDelta(t, (1.5+1.7)/2, x, 1e-9)
	x, ok = ratio("http allow std", ours, httpFloor, "added")(r)
	require.True(t, ok)
	require.InDelta(t, 2.5, x, 1e-9)
	_, ok = ratio("1M-uniform-parallel", ours, mapFloor, "cpu-ns/op")(r)
	require.False(t, ok, "not measured")
}

func TestVerdicts(t *testing.T) {
	r := results2(t)
	want := map[int][]string{
		1:  {"met", "not measured", "met, stretch too"},
		7:  {"not measured"},
		8:  {"met", "met"},
		12: {"met", "**missed**"},
		14: {"not measured", "met", "not measured"},
		16: {"met", "met"},
		17: {"met", "not measured"},
		19: {"met", "**missed**", "met"},
		21: {"met", "not measured", "not measured"},
		22: {"**missed**", "not measured", "not measured"},
	}
	for _, target := range targets {
		for i, b := range target.bounds {
			if target.number >= 1 && want[target.number] != nil {
				_, result := b.verdict(r)
				require.Equal(t, want[target.number][i], result, "target %d, %s", target.number, b.what)
			}
		}
	}
	_, result := bound{must: none, stretch: 0.7, measure: ratio("hot-serial", ours, casFloor, "cpu-ns/op")}.verdict(r)
	require.Equal(t, "stretch not reached", result)
	_, result = bound{must: 0.5, stretch: 2, atLeast: true, measure: ratio("hot-serial", ours, casFloor, "cpu-ns/op")}.verdict(r)
	require.Equal(t, "met", result)
}

func TestLosses(t *testing.T) {
	r := results2(t)
	got := losses(r)
	require.Len(t, got, 3, "CPU only: floors and the bare framework are no peers, and nobody allocates less")
	require.Equal(t, "decisions/s", got[1].what)
	require.Equal(t, "99 % of the delays, µs", got[2].what)
	require.Equal(t, "valkeylimiter", got[2].peer)
	require.Equal(t, "sethvargo", got[0].peer)
	require.InDelta(t, (1.2+1.36)/2, got[0].ratio, 1e-9)

	require.False(t, comparison{noise: 0.1}.lost(105, 100, 1.05), "noise")
	require.True(t, comparison{}.lost(3, 2, 1.5), "an allocation more")
	require.False(t, comparison{slack: 5}.lost(4, 1, 4), "slack")
	require.True(t, comparison{noise: 0.05, atLeast: true}.lost(90, 100, 0.9))
	require.False(t, comparison{noise: 0.05, atLeast: true}.lost(110, 100, 1.1))
}

func TestPage(t *testing.T) {
	var b strings.Builder
	page{w: &b, r: results2(t)}.render()
	text := b.String()
	require.Contains(t, text, "| 1 | hot key, serial, full result | CPU, ratio to the CAS floor | ≤ 1.7 | ≤ 1.3 | 1.6 | met |")
	require.Contains(t, text, "| hot-serial | CPU ns | 98 | sethvargo | 75 | 1.28 |  |")
	require.Contains(t, text, "Targets missed:\n\n- 12, Redis, a trip for each decision")
	require.Contains(t, text, "### hot-serial\n\n2 rounds.")
	require.Contains(t, text, "### spread-c64\n\n10,000 keys, nothing is denied. 2 rounds.\n\n| | decisions/s | to redis_rate |")
	require.Contains(t, text, "\n| **spillway** | 85000 | 3.5 | 3.12 | 300 | 1200 | 5 | 0.25 | 6 | 4 | 0 | 0 |")
	require.Contains(t, text, "64 goroutines: decisions/s: share of rounds above redis_rate\n- 19, Leases, warm keys, 64 goroutines: delay, median, µs\n- 22, middleware, allowed, three headers")
	require.Contains(t, text, "### even-x2\n\n1 round.\n\n| | requests | passed |")
	require.Contains(t, text, "\n| **spillway-leased** | 12000 | 7900 | 0.99 | 0 | 33 | 2 | 0 | leases of what is asked for |\n| hash | 12000 | 8800 |")
	require.NotContains(t, text, "NaN")
	require.NotContains(t, text, "%!")
}

func TestNumber(t *testing.T) {
	for x, want := range map[float64]string{0: "0", -0.001: "0", 1.5: "1.5", 1.256: "1.26", 12.34: "12.3", 100: "100", 98765.4: "98765", -3: "-3"} {
		require.Equal(t, want, number(x))
	}
}

func TestEmptyFolder(t *testing.T) {
	_, err := load(t.TempDir())
	require.ErrorContains(t, err, "no results")
}
