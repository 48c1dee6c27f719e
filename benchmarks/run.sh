#!/usr/bin/env bash
# run.sh [STEP...]: builds the harness, runs the steps one after the other (never at once: they would disturb each other)
# and writes raw results and the page into $OUT (default: out). Steps: admit hot keys million http heap bound cleanup
# wrk redis fleet rediswrk growth rediscost redismem. QUICK=1 is a short run that only shows that everything works. Other settings: R_STEP=n rounds of a step, such as
# R_HOT=20; PORT.
set -euo pipefail
OUT=$(realpath -m "${OUT:-$(dirname "$0")/out}")
cd "$(dirname "$0")"
export GOWORK=off # the versions of this module, whatever the workspace asks for

steps=${*:-admit hot keys million http heap bound cleanup wrk redis fleet rediswrk growth rediscost redismem}
if [ -n "${QUICK:-}" ]; then
  rounds=1 keys=20000 ttl=500ms seconds=1 bench=2000x run=20ms rediskeys=1000 fleet=300ms cost=200ms most=10000 decisions=20000 short=-test.short
else
  rounds= keys=1000000 ttl=4s seconds=2 bench= run=300ms rediskeys=10000 fleet=3s cost=2s most=10000000 decisions=2000000 short=
fi
rounds_of() { # STEP DEFAULT
  local name=R_${1^^}
  echo "${!name:-${rounds:-$2}}"
}

bin=$OUT/bin
mkdir -p "$bin"
rm -f "$OUT"/*.txt "$OUT"/*.tsv
go test -c -o "$bin/bench.test" .
go build -o "$bin/" ./cmd/...

load() { cut -d' ' -f1-3 /proc/loadavg; }
{
  printf 'date\t%s\n' "$(date -u +%Y-%m-%d)"
  printf 'command\t`%s`\n' "${COMMAND:-benchmarks/run.sh $steps}"
  printf 'commit\t%s\n' "$(git rev-parse --short=12 HEAD 2>/dev/null)$(git diff --quiet HEAD 2>/dev/null || echo ', changed')"
  printf 'machine\t%s, %s processors, %s\n' "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1)" "$(nproc)" \
    "$(awk '/MemTotal/{printf "%.0f GiB", $2/1048576}' /proc/meminfo)"
  printf 'kernel\t%s\n' "$(uname -sr)"
  printf 'go\t%s\n' "$(go env GOVERSION GOOS GOARCH | paste -sd' ')"
  ! command -v redis-server >/dev/null || printf 'redis\t%s\n' "$(redis-server --version | cut -d' ' -f1-3)"
  printf 'modules\t%s\n' "$(go list -m -f '{{if not (or .Indirect .Main)}}{{.Path}}{{end}}' all | paste -sd' ')"
  printf 'quick\t%s\n' "${QUICK:-}"
} >"$OUT/setup.txt"
loads=$(load)

has() { # COMMAND
  command -v "$1" >/dev/null || { echo "$1 is not installed: step left out" >&2; return 1; }
}

go_bench() { # FILE ROUNDS PATTERN BENCHTIME
  : >"$OUT/$1.txt"
  for _ in $(seq "$2"); do
    "$bin/bench.test" -test.run '^$' -test.bench "$3" -test.benchtime "${bench:-$4}" $short >>"$OUT/$1.txt"
  done
}

for step in $steps; do
  echo "$(date +%T) $step, load $(load)"
  case $step in
    admit)   "$bin/admit" -rounds "$(rounds_of admit 3)" >"$OUT/admit.tsv" ;;
    hot)     go_bench hot "$(rounds_of hot 8)" '^BenchmarkMem$/^hot' 200000x ;;
    keys)    go_bench keys "$(rounds_of keys 5)" '^BenchmarkMem$/^100k' 400000x ;;
    million) go_bench million "$(rounds_of million 5)" '^BenchmarkMem$/^1M' 400000x ;;
    http)    go_bench http "$(rounds_of http 8)" '^BenchmarkHTTP$' 50000x ;;
    heap)    "$bin/heap" -n "$keys" -rounds "$(rounds_of heap 3)" >"$OUT/heap.tsv" ;;
    bound)   "$bin/heap" -bound -n "$((keys / 4))" -rounds "$(rounds_of bound 2)" >"$OUT/bound.tsv" ;;
    cleanup) "$bin/cleanup" -n "$keys" -ttl "$ttl" -rounds "$(rounds_of cleanup 2)" >"$OUT/cleanup.tsv" ;;
    wrk)
      if has wrk; then
        BIN=$bin ./wrk.sh "$(rounds_of wrk 5)" "$seconds" >"$OUT/wrk.tsv"
      fi ;;
    redis)
      if has redis-server; then
        "$bin/redisload" -d "$run" -keys "$rediskeys" -rounds "$(rounds_of redis 8)" >"$OUT/redis.tsv"
        go_bench redis "$(rounds_of redisallocs 3)" '^BenchmarkRedis$' 5000x
      fi ;;
    fleet)
      if has redis-server; then
        "$bin/fleet" -d "$fleet" -rounds "$(rounds_of fleet 3)" >"$OUT/fleet.tsv"
      fi ;;
    rediswrk)
      if has redis-server && has wrk; then
        BIN=$bin ./wrk.sh "$(rounds_of rediswrk 8)" "$seconds" redis >"$OUT/rediswrk.tsv"
      fi ;;
    growth)  "$bin/growth" -n "$most" -decisions "$decisions" -rounds "$(rounds_of growth 1)" >"$OUT/growth.tsv" ;;
    rediscost)
      if has redis-server; then
        "$bin/rediscost" -d "$cost" -rounds "$(rounds_of rediscost 3)" >"$OUT/rediscost.tsv"
      fi ;;
    redismem)
      if has redis-server; then
        "$bin/redismem" -keys "$((keys / 10))" -rounds "$(rounds_of redismem 1)" >"$OUT/redismem.tsv"
      fi ;;
    *) echo "no step is called $step" >&2; exit 2 ;;
  esac
done
printf 'load\t%s before, %s after (the runs themselves included)\n' "$loads" "$(load)" >>"$OUT/setup.txt"
"$bin/summarize" "$OUT" >"$OUT/benchmarks.md"
echo "$(date +%T) done: $OUT/benchmarks.md"
