package adaptive

import (
	"bufio"
	"io"
	"math"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// groups reads control groups below a root; "" is the real one.
type groups struct{ root string }

const (
	mounted   = "/sys/fs/cgroup"
	mostBytes = 64 << 10 // no file of a control group is near that
	mostDepth = 64
)

// group is where the controllers of one level keep their files.
type group struct {
	cpu, acct, set string // folders; "" if there is none
	isV2           bool
}

// usage returns the account of the level with the tightest quota. Where no level has one, ok is false, and cores is the
// size of the cpuset, 0 if it is not known.
func (g *groups) usage() (u usage, ok bool) {
	tightest := math.Inf(1)
	for _, level := range g.levels() {
		if n := g.cpuset(level); n > 0 && u.cores == 0 { // the lowest level is the effective one
			u.cores = n
		}
		quota, has := g.quota(level)
		if !has || quota >= tightest {
			continue
		}
		busy, has := g.busy(level)
		if !has {
			continue
		}
		tightest, ok = quota, true
		u.busy, u.of = busy, level.acct
		u.periods, u.throttled = g.throttling(level)
	}
	if ok && (u.cores == 0 || tightest < u.cores) {
		u.cores = tightest
	}
	return u, ok
}

// levels returns the groups of this process that can be seen, the lowest first. A path that the kernel tells from outside of a
// container's view does not exist in it: then the parts of it that do, the root at last, are taken.
func (g *groups) levels() (levels []group) {
	paths := parseOwnGroups(g.text("/proc/self/cgroup"))
	if len(paths) == 0 {
		return nil
	}
	if g.exists(mounted + "/cgroup.controllers") {
		for p := range upwards(paths[""]) {
			if dir := path.Join(mounted, p); g.exists(dir + "/cpu.stat") {
				levels = append(levels, group{cpu: dir, acct: dir, set: dir, isV2: true})
			}
		}
		return levels
	}
	cpu, acct, set := g.mount("cpu", paths), g.mount("cpuacct", paths), g.mount("cpuset", paths)
	acctDir, setDir := "", ""
	for p := range upwards(paths["cpuacct"]) {
		if dir := path.Join(acct, p); acct != "" && g.exists(dir+"/cpuacct.usage") {
			acctDir = dir
			break
		}
	}
	for p := range upwards(paths["cpuset"]) {
		if dir := path.Join(set, p); set != "" && g.exists(dir+"/cpuset.cpus") {
			setDir = dir
			break
		}
	}
	for p := range upwards(paths["cpu"]) {
		dir := path.Join(cpu, p)
		if cpu == "" || !g.exists(dir+"/cpu.cfs_quota_us") {
			continue
		}
		level := group{cpu: dir, acct: acctDir, set: setDir}
		// The account of the same level, where the two controllers share their tree.
		if same := path.Join(acct, p); acct != "" && g.exists(same+"/cpuacct.usage") {
			level.acct = same
		}
		levels = append(levels, level)
	}
	return levels
}

// mount returns the folder of a v1 controller, which may be mounted together with others, in any order.
func (g *groups) mount(controller string, paths map[string]string) string {
	names := []string{controller}
	if joint := paths["+"+controller]; joint != "" && joint != controller {
		names = append(names, joint)
	}
	names = append(names, "cpu,cpuacct", "cpuacct,cpu")
	for _, name := range names {
		if !strings.Contains(","+name+",", ","+controller+",") {
			continue
		}
		if dir := path.Join(mounted, name); g.exists(dir) {
			return dir
		}
	}
	return ""
}

// parseOwnGroups reads /proc/self/cgroup: the path of each controller, "" for v2, and under "+name" the controllers name is
// mounted with.
func parseOwnGroups(text string) map[string]string {
	paths := map[string]string{}
	for line := range strings.Lines(text) {
		id, rest, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		names, p, ok2 := strings.Cut(rest, ":")
		if !ok || !ok2 || id == "" || !strings.HasPrefix(p, "/") {
			continue
		}
		p = path.Clean(p)
		if id == "0" && names == "" {
			paths[""] = p
			continue
		}
		for name := range strings.SplitSeq(names, ",") {
			if name == "cpu" || name == "cpuacct" || name == "cpuset" {
				paths[name], paths["+"+name] = p, names
			}
		}
	}
	return paths
}

// upwards yields a path, its parents and the root.
func upwards(p string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		p := path.Join("/", p)
		for range mostDepth {
			if !yield(p) || p == "/" {
				return
			}
			p = path.Dir(p)
		}
		yield("/")
	}
}

// quota returns how many processors a level may use.
func (g *groups) quota(l group) (float64, bool) {
	if l.isV2 {
		return parseQuota(strings.Fields(g.text(l.cpu + "/cpu.max")))
	}
	return parseQuota([]string{strings.TrimSpace(g.text(l.cpu + "/cpu.cfs_quota_us")), strings.TrimSpace(g.text(l.cpu + "/cpu.cfs_period_us"))})
}

// parseQuota reads a quota and its period in µs; "max" and −1 are none.
func parseQuota(fields []string) (float64, bool) {
	if len(fields) != 2 {
		return 0, false
	}
	quota, err := strconv.ParseInt(fields[0], 10, 64)
	period, err2 := strconv.ParseInt(fields[1], 10, 64)
	if err != nil || err2 != nil || quota <= 0 || period <= 0 {
		return 0, false
	}
	return float64(quota) / float64(period), true
}

func (g *groups) busy(l group) (time.Duration, bool) {
	if l.isV2 {
		micros, ok := field(g.text(l.acct+"/cpu.stat"), "usage_usec")
		return time.Duration(micros) * time.Microsecond, ok && micros <= math.MaxInt64/int64(time.Microsecond)
	}
	ns, err := strconv.ParseInt(strings.TrimSpace(g.text(l.acct+"/cpuacct.usage")), 10, 64)
	return time.Duration(ns), l.acct != "" && err == nil && ns >= 0
}

func (g *groups) throttling(l group) (periods, throttled int64) {
	text := g.text(l.cpu + "/cpu.stat")
	periods, ok := field(text, "nr_periods")
	throttled, ok2 := field(text, "nr_throttled")
	if !ok || !ok2 {
		return 0, 0
	}
	return periods, throttled
}

func (g *groups) cpuset(l group) float64 {
	if l.set == "" {
		return 0
	}
	for _, name := range [...]string{"/cpuset.cpus.effective", "/cpuset.effective_cpus", "/cpuset.cpus"} {
		if n := parseCPUs(strings.TrimSpace(g.text(l.set + name))); n > 0 {
			return float64(n)
		}
	}
	return 0
}

// field returns the whole number behind a name on a line of its own.
func field(text, name string) (int64, bool) {
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		if v, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
			return n, err == nil && n >= 0
		}
	}
	return 0, false
}

// parseCPUs counts the processors of a list such as "0-3,8"; 0 if it is none.
func parseCPUs(list string) (n int) {
	const most = 1 << 20
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		a, err := strconv.ParseUint(from, 10, 20)
		b, err2 := strconv.ParseUint(to, 10, 20)
		if err != nil || err2 != nil || b < a {
			return 0
		}
		if n += int(b-a) + 1; n > most {
			return 0
		}
	}
	return n
}

func (g *groups) exists(name string) bool {
	_, err := os.Stat(g.root + filepath.FromSlash(name))
	return err == nil
}

// text returns what a file holds, "" if it cannot be read.
func (g *groups) text(name string) string {
	f, err := os.Open(g.root + filepath.FromSlash(name))
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, mostBytes))
	if err != nil {
		return ""
	}
	return string(b)
}
