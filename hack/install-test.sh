#!/usr/bin/env bash
# Installs the chart with Helm, runs its pods in containers, and tests that: "make install-test". The test has a network of
# its own, in which no address is taken, and which ends with it. INSTALLATIONS is a pattern for more than the default values,
# such as "." for all; one that matches no test fails: also high availability, certificates of cert-manager, every optional part, the end-to-end suite,
# and a release that cannot be uninstalled at once.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
go test -c -vet=off -o bin/test/ ./test/e2e ./test/installation
go -C test/chart run ./definitions >bin/test/definitions
cd test/installation
# shellcheck disable=SC2016 # the inner shell expands
exec unshare --net --mount -- sh -c 'ip link set lo up && mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns && exec "$0" "$@"' \
  ../../bin/test/installation.test -test.v -test.timeout=60m -test.run="^TestInstallation\$/${INSTALLATIONS:-^default values\$}"
