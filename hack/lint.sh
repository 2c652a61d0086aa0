#!/usr/bin/env bash
# Runs golangci-lint in the modules of $WITH_CODE, and lints the OpenAPI document and the workflows. It tells what all of them
# find, not only the first.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
root="$PWD" failed=0

bin/actionlint || failed=1
# A tag can be moved to other code; a digest cannot.
if grep -rnE '^[^#]*uses: ' .github/workflows | grep -vE 'uses: (\./|[^@ ]+@[0-9a-f]{40}( |$))'; then
  echo "lint: pin these actions by the digest of a commit" >&2
  failed=1
fi
if grep -rnE '^[^#]*image: ' .github/workflows | grep -vE 'image: [^ ]+@sha256:[0-9a-f]{64}( |$)'; then
  echo "lint: pin these images by their digest" >&2
  failed=1
fi
REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true web/node_modules/.bin/redocly lint facade/rest/openapi.yaml || failed=1
for module in $WITH_CODE; do
  (cd "$module" && "$root/bin/golangci-lint" run) || failed=1
done
exit $failed
