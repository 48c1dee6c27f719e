#!/usr/bin/env bash
# wrk.sh ROUNDS SECONDS: requests per second of every handler over the loopback interface, interleaved. The server is on
# core 0 with GOMAXPROCS=1, wrk on core 1. Prints round, name, requests/s and the server's CPU time per request.
# BIN: folder of the built commands.
set -euo pipefail
rounds=$1 seconds=$2 port=${PORT:-18980}
ticks=$(getconf CLK_TCK)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null' EXIT

cpu() { awk '{print $14 + $15}' "/proc/$server/stat"; }
load() { taskset -c 1 wrk -t1 -c32 -d"$1s" "http://127.0.0.1:$port/"; }

printf 'round\tname\trequests_per_s\tcpu_us\n'
for round in $(seq 0 $((rounds - 1))); do
  for name in $("$BIN/mwserver" -list); do
    GOMAXPROCS=1 taskset -c 0 "$BIN/mwserver" -mw "$name" -addr "127.0.0.1:$port" &
    server=$!
    for _ in $(seq 100); do
      (: </dev/tcp/127.0.0.1/"$port") 2>/dev/null && break
      sleep 0.05
    done
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
