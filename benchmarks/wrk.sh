#!/usr/bin/env bash
# wrk.sh ROUNDS SECONDS [redis]: requests per second of every handler over the loopback interface, interleaved. The
# server is on core 0 with GOMAXPROCS=1, wrk on core 1. Prints round, name, requests/s and the server's CPU time per
# request. With "redis" it is the handlers whose limiter is on Redis, on a server of its own that may use both cores.
# BIN: folder of the built commands. PORT: of the handlers; that of Redis is the next one.
set -euo pipefail
rounds=$1 seconds=$2 port=${PORT:-18980}
ticks=$(getconf CLK_TCK)
server= redis_server= redis=()
trap 'for p in $server $redis_server; do kill "$p" 2>/dev/null || true; done' EXIT

answers() { # PORT
  for _ in $(seq 100); do
    (: <"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return
    sleep 0.05
  done
  echo "wrk.sh: nothing answers on port $1" >&2
  exit 1
}
if [ "${3:-}" = redis ]; then
  redis-server --port $((port + 1)) --bind 127.0.0.1 --save '' --appendonly no >/dev/null &
  redis_server=$!
  redis=(-redis "127.0.0.1:$((port + 1))")
  answers $((port + 1))
fi

cpu() { awk '{print $14 + $15}' "/proc/$server/stat"; }
load() { taskset -c 1 wrk -t1 -c32 -d"$1s" "http://127.0.0.1:$port/"; }

printf 'round\tname\trequests_per_s\tcpu_us\n'
for round in $(seq 0 $((rounds - 1))); do
  for name in $("$BIN/mwserver" "${redis[@]}" -list); do
    GOMAXPROCS=1 taskset -c 0 "$BIN/mwserver" -mw "$name" -addr "127.0.0.1:$port" "${redis[@]}" &
    server=$!
    answers "$port"
    load 1 >/dev/null
    before=$(cpu)
    out=$(load "$seconds")
    after=$(cpu)
    if grep -q 'Non-2xx' <<<"$out"; then
      echo "wrk.sh: $name refused requests" >&2
      exit 1
    fi
    requests=$(awk '/requests in/{print $1}' <<<"$out")
    printf '%s\t%s\t%s\t%s\n' "$round" "$name" "$(awk '/Requests\/sec/{print $2}' <<<"$out")" \
      "$(awk -v t=$((after - before)) -v n="$requests" -v k="$ticks" 'BEGIN{printf "%.3f", t / k * 1e6 / n}')"
    kill "$server"
    wait "$server" 2>/dev/null || true
    server=
  done
done
