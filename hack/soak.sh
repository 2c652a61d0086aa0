#!/usr/bin/env bash
# Breaks things under running clients until so many operations, and adds what was found, with the revision of the code, to the
# report in a folder. "make soak" sets the environment.
set -euo pipefail
mkdir -p "$1"
REPORT="$(cd "$1" && pwd)"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
REVISION="$(git rev-parse --short HEAD 2>/dev/null || true)"
export REPORT REVISION OPERATIONS="${OPERATIONS:-1000000}"
# shellcheck disable=SC2086 # flags
go test $TEST_FLAGS -tags=nightly -timeout=0 -v -run='^TestSoak$' ./test/robustness
