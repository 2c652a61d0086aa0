#!/usr/bin/env bash
# Fails if generated files, the page or go.mod files are out of date, a platform of kubectl-lock does not compile, or a licence
# is not allowed. It tells all of these, not only the first.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
failed=0
fail() {
  echo "verify: $1" >&2
  failed=1
}
before="$(mktemp -d)"
trap 'rm -rf "$before"' EXIT

# A comparison with what was there before, unlike one with the last commit, also works among changes that are not committed yet.
generated=(api config charts docs/alerts.md docs/cli-reference.md docs/flags.md docs/metrics.md)
cp -R "${generated[@]}" "$before"
hack/generate.sh || fail "hack/generate.sh fails"
for tree in "${generated[@]}"; do
  git --no-pager diff --no-index --exit-code "$before/${tree##*/}" "$tree" || fail "$tree was out of date; it is up to date now, commit it"
done

# The page is checked in, so that only who changes it needs npm.
(cd web && npm run --silent check && OUT="$before/page" npm run --silent build) || fail "the page does not build"
diff -rq "$before/page" facade/ui/assets || fail 'facade/ui/assets is not what web/ makes; run "make page"'

for module in $MODULES; do
  go mod tidy -C "$module" -diff || fail "run \"go mod tidy\" in $module"
done
for platform in $CLI_PLATFORMS; do
  go -C hack/release run ./krew/typecheck -C "$PWD" -platform "$platform" ./cli/... ./cmd/kubectl-lock || fail "kubectl-lock does not compile for $platform"
done
go -C hack/release build -o "$PWD/bin/supplychain" ./supplychain || fail "hack/release/supplychain does not build"
bin/supplychain -module "$PWD" -page "$PWD/web" "$PWD/bin/lock-operator" || fail "the operator links a module whose licence is not allowed"
bin/supplychain -module "$PWD" "$PWD/bin/kubectl-lock" || fail "kubectl-lock links a module whose licence is not allowed"
exit $failed
