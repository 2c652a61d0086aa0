#!/usr/bin/env bash
# Prints the folders of this module that have tests, without those of the images, which have targets of their own: "unit" those
# that only compute, as packages: "bubbles" with testing/synctest, and "plain" without; "suites" those that wait, for a control
# plane or for processes of the command line. Those that take longest come first. "unraced" prints the tests that are left out
# with the race detector, as arguments.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [ "$1" = unraced ]; then
  mapfile -t files < <(git grep -lE '^//go:build !race$' -- '*_test.go' ':!test/robustness')
  echo "-run=^($(grep -hoE '^func Test[^(]+' "${files[@]}" | cut -c6- | paste -sd'|'))\$ $(dirname "${files[@]}" | sort -u | sed 's|^|./|' | paste -sd' ')"
  exit
fi
longest="test/jobs test/contract test/holders test/run test/clients test/runbooks test/install test/e2e test/guards test/process"
longest+=" test/robustness test/admission test/gitops test/cli/write test/line test/upgrade test/outage test/rest webhook lock/line facade/forrst controllers/jobgate facade/rest cli/supervise lock/engine facade/client lock/audit/auditlog"
go list -test -f '{{.ImportPath}} {{.Deps}}' ./... | awk -v kind="$1" -v module="$(go list -m)" -v longest="$longest" '
  BEGIN { count = split(longest, folders); for (i = 1; i <= count; i++) rank[folders[i]] = i }
  $1 ~ /\.test$/ {
    sub(/\.test$/, "", $1)
    folder = substr($1, length(module) + 2)
    isSuite = /sigs.k8s.io\/controller-runtime\/pkg\/envtest/ || folder == "test/run" || folder == "cli/supervise"
    of = isSuite ? "suites" : / testing\/synctest[ \]]/ ? "bubbles" : "plain"
    if (folder != "test/image" && folder != "test/installation" && (of == kind || kind == "unit" && !isSuite))
      print (folder in rank ? rank[folder] : count + 1), (isSuite ? "" : "./") folder
  }' | sort -n | cut -d' ' -f2
