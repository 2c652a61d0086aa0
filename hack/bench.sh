#!/usr/bin/env bash
# Runs the benchmarks with the flags. $AGAINST names a commit to compare with, which is built in a folder of its own.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ -n "${AGAINST:-}" ]; then
  tree="$PWD/bin/against/$AGAINST"
  if [ ! -x "$tree/bin/lock-operator" ]; then
    mkdir -p "$tree"
    git archive "$AGAINST" | tar -x -C "$tree"
    make --no-print-directory -C "$tree" build
  fi
  set -- -against="$tree" "$@"
fi
exec bin/bench "$@"
