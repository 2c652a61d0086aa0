#!/usr/bin/env bash
# Runs what takes too long for every change, one after the other, each with a log of its own. A failure
# does not keep the others from running. It prints a table at the end, also writes it to summary.md in the
# folder, and fails if anything failed. NIGHTLY names some of them.
#
#   NIGHTLY="witness bench" hack/nightly.sh bin/nightly
set -uo pipefail
mkdir -p "$1"
out="$(cd "$1" && pwd)"
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit

# A name, and what it runs, in the order of their use.
steps=(
  "elsewhere|make test-elsewhere"
  "witness|RUN_WITNESS_RUNS=\${RUN_WITNESS_RUNS:-1000} go test -count=1 -timeout=0 -run=^TestWitness$ ./test/run"
  "gitops|GITOPS_SYNCS=40 make test-one PKG=./test/gitops FOCUS='engine waits for the pods'"
  "renewals|RENEWED=10000 make test-one PKG=./test/renewal FOCUS='change of leader'"
  "scale|CLI_SCALE=1 go test -count=1 ./test/cli/scale"
  "peers|make peers-test"
  "line|make line-test"
  "release-test|make release-test"
  "bench|make bench"
  "bench-scale|make bench-scale"
  "breakages|make robustness-breakages"
  "robustness|make robustness DURATION=30m"
  "soak|make soak REPORT=$out/soak"
  "oldest-client-go|hack/oldest-client-go.sh"
  "oldest-kubernetes|make test K8S=1.34.4"
)
names="${steps[*]%%|*}"
wanted="${NIGHTLY:-$names}"
for name in $wanted; do
  if [[ " $names " != *" $name "* ]]; then
    echo "nightly: there is no $name; there are: $names" >&2
    exit 1
  fi
done
trap 'echo "nightly: interrupted" >&2; exit 130' INT TERM

failed=0
{
  echo "Nightly run of $(git rev-parse --short HEAD), begun at $(date --utc +%Y-%m-%dT%H:%MZ) on $(nproc) processors"
  echo
  echo "| step | result | minutes |"
  echo "| --- | --- | --- |"
} >"$out/summary.md"
for step in "${steps[@]}"; do
  name="${step%%|*}" command="${step#*|}"
  if [[ " $wanted " != *" $name "* ]]; then continue; fi
  echo "Running $name: $command"
  start=$SECONDS result=passed
  if ! bash -c "$command" >"$out/$name.log" 2>&1 </dev/null; then
    failed=1 result=failed
    echo "$name failed; the end of $out/$name.log:"
    tail -n 20 "$out/$name.log"
  fi
  echo "| $name | $result | $(awk -v seconds=$((SECONDS - start)) 'BEGIN { printf "%.1f", seconds / 60 }') |" >>"$out/summary.md"
done
cat "$out/summary.md"
exit $failed
