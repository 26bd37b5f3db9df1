#!/usr/bin/env bash
# Runs this example on three nodes that share this machine, and fetches its page.
#
# At a terminal it stays until Ctrl-C, so that there is something to try. Elsewhere it ends by itself, and its exit code
# says whether the page was served. Usage: demo.sh LONGSHORE
set -euo pipefail

longshore=$(realpath "${1:?usage: demo.sh LONGSHORE}")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
port=${HELLO_PORT:-8080}
data=$(mktemp -d)
PATH="$(dirname "$longshore"):$PATH"
up=(longshore up -f "$here/compose.yaml" --nodes 3 --data-dir "$data")

if [ -t 0 ] && [ -t 2 ]; then
  # The terminal belongs to `up`, which says where the page is and what to try.
  trap 'rm -rf "$data"' EXIT
  "${up[@]}" || exit $?
  exit 0
fi

said=$(mktemp)
"${up[@]}" >"$said" &
up_pid=$!
finish() {
  kill -INT "$up_pid" 2>/dev/null || true
  wait "$up_pid" || true
  rm -rf "$data" "$said"
}
trap finish EXIT
echo "== GET http://localhost:$port/"
longshore hello --fetch "http://localhost:$port/"
export LONGSHORE_SOCKET=$data/longshore.sock
for _ in $(seq 100); do
  [ "$(longshore status hello | awk '$1 == "hello" { print $2 }')" = active ] && break
  sleep 0.1
done
echo "== longshore status"
longshore status hello
echo "== longshore why hello-web-0"
longshore why hello-web-0
for _ in $(seq 100); do
  grep -q 'Try next' "$said" && break
  sleep 0.1
done
cat "$said"
