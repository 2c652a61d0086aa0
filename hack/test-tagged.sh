#!/usr/bin/env bash
# Runs the tests with a build tag or a label, "timing" or "nightly", of all folders that have some but test/robustness, which has
# targets of its own, or of those that are named: one
# package after the other, and without the race detector. "make timing" and "make nightly" set the environment.
#
#   hack/test-tagged.sh timing ./test/line ./test/browser/ui
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export TAG="$1" REPORTS="$REPORTS/$1"
shift
if [ $# = 0 ]; then
  mapfile -t folders < <(git grep -lE "^//go:build $TAG$|Label\(\"$TAG\"\)" -- '*_test.go' ':!test/robustness' | xargs -r -n1 dirname | sort -u)
  set -- "${folders[@]/#/./}"
fi

# The module of a folder is the nearest folder with a go.mod file.
declare -A packages
for folder in "$@"; do
  module="$folder"
  until [ -e "$module/go.mod" ]; do module="$(dirname "$module")"; done
  packages[$module]+=" ./$(realpath --relative-to="$module" "$folder")"
done
result=0
for module in "${!packages[@]}"; do
  log="$(basename "$(realpath "$module")").json"
  # shellcheck disable=SC2086 # the packages of the module, and the flags
  bin/gotest -log="$REPORTS/$log" -C "$module" -- -tags="$TAG" -p=1 $TEST_FLAGS -timeout=60m ${packages[$module]} || result=1
done
exit "$result"
