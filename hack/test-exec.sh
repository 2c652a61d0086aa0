#!/usr/bin/env bash
# "go test -exec" runs each test program with this one, in the folder of its package.
#
# Suites of Ginkgo get the seed of $SEED, so that each run has the same order and draws the same choices, and write how long
# each spec took into $REPORTS/ginkgo. With $TAG, such as "timing", only the specs with this label run, and only the tests
# whose names begin with TestTiming; with "any", all; without, all specs that have neither label. That there are none fails.
# Ginkgo alone would end a suite after an hour. Here it does so, and cleans up, shortly before "make test" ends the program.
#
# The race detector cannot follow two processors at the timers of one bubble of
# testing/synctest: it ends the program with a failed check or a segmentation fault
# (golang/go#78156). So, with $BUBBLES_ON_ONE_PROCESSOR, tests with bubbles have one processor. It finds races by what
# happens before what, which one processor shows as well, but not in code that only runs when
# two processors meet; "make test" runs the chaos of lock/line on all processors, without the
# detector.
set -euo pipefail
if [ -n "${BUBBLES_ON_ONE_PROCESSOR:-}" ] && grep -q '"testing/synctest"' -- *_test.go 2>/dev/null; then export GOMAXPROCS=1; fi
if grep -qs '"github.com/onsi/ginkgo/v2"' -- *_test.go; then
  labels="${TAG:-!timing && !nightly}"
  set -- "$@" -ginkgo.seed="${SEED:-1}" -ginkgo.timeout=55m -ginkgo.fail-on-empty -ginkgo.label-filter="${labels#any}"
  if [ -n "${REPORTS:-}" ]; then
    mkdir -p "$REPORTS/ginkgo"
    set -- "$@" -ginkgo.json-report="$REPORTS/ginkgo/$(basename "$1" .test)-$(basename "$PWD")${TAG:+-$TAG}.json"
  fi
elif [ -n "${TAG:-}" ] && [ "$TAG" != any ]; then
  set -- "$@" -test.run="^Test${TAG^}"
fi
exec "$@"
