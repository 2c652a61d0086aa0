#!/usr/bin/env bash
# "go test -race" runs each test program with this one, in the folder of its package.
#
# The race detector cannot follow two processors at the timers of one bubble of
# testing/synctest: it ends the program with a failed check or a segmentation fault
# (golang/go#78156). So tests with bubbles have one processor. It finds races by what
# happens before what, which one processor shows as well, but not in code that only runs when
# two processors meet; "make test" runs the chaos of lock/line on all processors, without the
# detector.
set -euo pipefail
if grep -q '"testing/synctest"' -- *_test.go 2>/dev/null; then export GOMAXPROCS=1; fi
exec "$@"
