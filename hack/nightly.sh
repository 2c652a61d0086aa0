#!/usr/bin/env bash
# Runs what takes too long for every change, one after the other, each with a log of its own. A failure does not keep the
# others from running. It prints a table at the end, also writes it to summary.md in the folder, and fails if anything failed.
# NIGHTLY names some of the steps. SEED repeats a night: otherwise a seed is drawn, and printed. A seed that fails becomes a
# case with that seed in the ordinary tests.
#
#   NIGHTLY="witness bench" hack/nightly.sh bin/nightly
#   hack/nightly.sh bin/nightly v0.1.0    # the steps that are about files that have changed since, as .ci/run does
set -uo pipefail
mkdir -p "$1"
out="$(cd "$1" && pwd)"
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
nightly() { echo "make test-nightly PKGS='$*'"; }

# A name, the files that it is about if a change of them asks for it at once, and what it runs, in the order of their use.
steps=(
  "gitops|^go\.mod|^api/|^config/(crd|admission-policy|webhook)/|^lock/jobs/|^controllers/jobgate/|^test/gitops/#$(nightly ./test/gitops)"
  "page|^web/|^facade/ui/|^test/browser/ui/#$(nightly ./test/browser/ui)"
  "line|^lock/(engine|line)/|^facade/peers/#export LINE_KILLS=\${LINE_KILLS:-5} LINE_CROWD=500 LINE_ROLLED=200 LINE_HELD=100 LINE_HELD_SECONDS=30; $(nightly ./test/line)"
  "contract|^lock/(engine|servertime)/|^facade/client/#TAG= make test-one PKG=./test/contract FOCUS=."
  "liveness|#make robustness DURATION=40s"
  "install-variants|^charts/|^config/|^certificates/|^controllers/issuer/|^installation/|^test/install(ation)?/#ROTATIONS=3 make test-one PKG=./test/install FOCUS='issues its own certificates' && make install-test INSTALLATIONS=."
  "upgrade|^charts/|^config/|^test/upgrade/#$(nightly ./test/upgrade)"
  "chart|^charts/|^config/|^hack/chart/|^test/chart/#$(nightly ./test/chart)"
  "platforms|^Dockerfile|^\.dockerignore|^hack/image\.sh#make image && $(nightly ./test/image)"
  "seeds|#make test-units && LINE_SEED=\$SEED go test -count=1 -run=Chaos ./lock/line"
  "suites|#make image && export GITOPS_SYNCS=40; $(nightly)"
  "races|#make test RACED=%"
  "timing|#make timing"
  "elsewhere|#export OPERATOR_NAMESPACE=platform-locks OPERATOR_NAME_PREFIX=team- TAG=; make test-one PKG=./test/e2e FOCUS=. && make test-one PKG=./test/jobs FOCUS=."
  "pairs|#export PAIR_ROUNDS=50; make test-one PKG=./lock/locktest FOCUS='two calls at once' && make test-one PKG=./test/contract FOCUS='[Tt]wo calls at once' && make test-one PKG=./test/rest FOCUS='Two calls at once' && RACE= TESTFLAGS=-timeout=60m make test-one PKG=./test/cli/write FOCUS='Two commands at once'"
  "held|^facade/(locks|rest)/hold#export LINE_HELD=300 LINE_HELD_SECONDS=60; RACE= make test-one PKG=./test/line FOCUS='keep them while all replicas are replaced'"
  "sets|#CROSSING_SETS=1 make test-one PKG=./test/rest FOCUS='never one to two'"
  "witness|#RUN_WITNESS_RUNS=\${RUN_WITNESS_RUNS:-1000} go test -count=1 -timeout=0 -run=^TestWitness$ ./test/run"
  "renewals|#RENEWED=10000 make test-one PKG=./test/holders FOCUS='change of the leader that renews'"
  "peers|#make peers-test"
  "release-test|#make release-test"
  "bench|#make bench"
  "bench-scale|#make bench-scale"
  "breakages|#make robustness-breakages"
  "robustness|#make robustness DURATION=30m"
  "soak|#make soak REPORT=$out/soak"
  "oldest-client-go|^go\.mod#hack/oldest-client-go.sh"
  "oldest-kubernetes|#make test K8S=1.34.4"
)
names=""
chosen=""
# Tests and documents that every run judges are judged there.
changed=""
if [ $# -gt 1 ]; then
  changed="$(git diff --name-only "$2" HEAD)" || exit
  changed="$(grep -E '_nightly_test\.go$' <<<"$changed"; grep -vE '(_test\.go|\.md)$' <<<"$changed")"
fi
for step in "${steps[@]}"; do
  name="${step%%|*}" about="${step#*|}"
  about="${about%%#*}" names+=" $name"
  # The patterns of a step are joined by "|", and each of them is matched with the path of each changed file.
  if [ $# -gt 1 ] && [ -n "$about" ] && grep -qE "$about" <<<"$changed"; then chosen+=" $name"; fi
done
if [ $# -gt 1 ] && [ -z "$chosen" ]; then
  echo "nightly: no step is about what has changed since $2"
  exit 0
fi
wanted="${NIGHTLY:-${chosen:-$names}}"
for name in $wanted; do
  if [[ " $names " != *" $name "* ]]; then
    echo "nightly: there is no $name; there are:$names" >&2
    exit 1
  fi
done
trap 'echo "nightly: interrupted" >&2; exit 130' INT TERM
if [ $# = 1 ]; then SEED="${NIGHTLY_SEED:-$((RANDOM * 32768 + RANDOM + 1))}"; fi
export SEED="${SEED:-1}" RAPID_SEED="${SEED:-1}"

failed=0
{
  echo "Nightly run of $(git rev-parse --short HEAD) with SEED=$SEED, begun at $(date --utc +%Y-%m-%dT%H:%MZ) on $(nproc) processors"
  echo
  echo "| step | result | minutes |"
  echo "| --- | --- | --- |"
} >"$out/summary.md"
for step in "${steps[@]}"; do
  name="${step%%|*}" command="${step#*#}"
  if [[ " $wanted " != *" $name "* ]]; then continue; fi
  echo "Running $name with SEED=$SEED: $command"
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
