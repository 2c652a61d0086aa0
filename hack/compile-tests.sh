#!/usr/bin/env bash
# Compiles what the tests of "make test" link, so that no compiler runs beside tests that wait for something: with $RACE, the
# flag of the race detector or nothing, this module's packages but those of the folders in the first argument; without it
# these, and the modules in the folders that follow.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ -z "${RACE:-}" ]; then echo "No C compiler: the tests run without the race detector"; fi
read -ra outside <<<"${1//test\//./test/}"
shift
compile() { go list -test -export -deps -f '' "$@" >/dev/null; }
mapfile -t suites < <(hack/test-packages.sh suites | sed 's|^|./|' | grep -vxF "$(printf '%s\n' "${outside[@]}")")
# shellcheck disable=SC2046,SC2086 # flags and lists
compile ${RACE:-} "${suites[@]}" $(hack/test-packages.sh unit)
compile "${outside[@]}"
for module in "$@"; do (cd "$module" && compile ./...); done
