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
# This linter is a program for Node.js. Where there is none, the tests alone check the document.
if command -v npx >/dev/null; then
  REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true npx --yes @redocly/cli@2.77.0 lint facade/rest/openapi.yaml || failed=1
else
  echo "lint: no npx, so facade/rest/openapi.yaml is not linted"
fi
for module in $WITH_CODE; do
  (cd "$module" && "$root/bin/golangci-lint" run) || failed=1
done
exit $failed
