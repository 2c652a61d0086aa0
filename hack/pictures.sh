#!/usr/bin/env bash
# Draws the pictures of the documents: "readme", "page" and "plots". "make pictures" sets the environment.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
images="$PWD/docs/images"
for what in "$@"; do
  case "$what" in
    readme) SCREENSHOTS=1 go test $TEST_FLAGS ./test/e2e -ginkgo.focus="pictures of README" ;;
    page) SCREENSHOTS="$images" go test -C test/browser $TEST_FLAGS -run='^TestPictures$' ./ui ;;
    # They show the times at which they were drawn, so they differ each time.
    plots) PLOTS="$images/observability" go test -C test/observability $TEST_FLAGS -tags=nightly -run=OnACluster ./... ;;
    *) echo "pictures: there is no $what" >&2; exit 1 ;;
  esac
done
