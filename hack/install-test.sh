#!/usr/bin/env bash
# Installs the chart with Helm, runs its pods in containers, and tests that: "make install-test". The test has a network of
# its own, in which no address is taken, and which ends with it. TAGS=nightly adds the variants of an installation.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
go test -c -vet=off -tags="${TAGS:-}" -o bin/test/ ./test/e2e ./test/installation
go -C test/chart run ./definitions >bin/test/definitions
cd test/installation
# shellcheck disable=SC2016 # the inner shell expands
exec unshare --net --mount -- sh -c 'ip link set lo up && mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && exec "$0" "$@"' \
  ../../bin/test/installation.test -test.v -test.timeout="${TEST_TIMEOUT:-15m}"
