#!/usr/bin/env bash
# Compiles what the tests of "make test" link, so that no compiler runs beside tests that wait for something: with $RACE, the
# flag of the race detector or nothing, this module's units and the folders of the first argument; without it those of the
# second, and the modules in the folders that follow.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ -z "${RACE:-}" ]; then echo "No C compiler: the tests run without the race detector"; fi
read -ra raced <<<"$1"
read -ra plain <<<"$2"
shift 2
compile() { go list -test -export -deps -f '' "$@" >/dev/null; }
# shellcheck disable=SC2046 # a list
compile ${RACE:+"$RACE"} "${raced[@]/#/./}" $(hack/test-packages.sh unit)
compile "${plain[@]/#/./}"
for module in "$@"; do (cd "$module" && compile ./...); done
