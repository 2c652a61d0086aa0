#!/usr/bin/env bash
# Prints the packages of this module that have tests: "unit" those whose tests need no control plane, "suites" the others but
# those of the folders that follow. The suite of the contract is the longest, so it comes first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
kind="$1"
shift
go list -test -f '{{.ImportPath}} {{.Deps}}' ./... | awk -v kind="$kind" -v module="$(go list -m)" -v without="$* ./test/image ./test/installation" '
  BEGIN { count = split(without, folders, " "); for (i = 1; i <= count; i++) { sub(/^\./, module, folders[i]); left[folders[i]] = 1 } }
  $1 ~ /\.test$/ {
    isSuite = /sigs.k8s.io\/controller-runtime\/pkg\/envtest/
    sub(/\.test$/, "", $1)
    if (isSuite == (kind == "suites") && !($1 in left)) print ($1 ~ /test\/contract$/ ? 0 : 1), $1
  }' | sort | cut -d' ' -f2
