#!/usr/bin/env bash
# Builds kubectl-lock for the platforms of $CLI_PLATFORMS into bin/cli, as of $VERSION if it is set.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
for platform in $CLI_PLATFORMS; do
  export GOOS="${platform%/*}" GOARCH="${platform#*/}"
  suffix=
  [ "$GOOS" != windows ] || suffix=.exe
  echo "Building kubectl-lock for $platform"
  CGO_ENABLED=0 GOGC="${GOGC:-400}" go build -trimpath -gcflags=all=-dwarf=false -ldflags="-s -w${VERSION:+ -X main.linkedVersion=$VERSION}" \
    -o "bin/cli/kubectl-lock-$GOOS-$GOARCH$suffix" ./cmd/kubectl-lock
done
