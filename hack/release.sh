#!/usr/bin/env bash
# Makes everything that a release has into a folder, from the last commit: programs, images, chart,
# bundles, manifest of krew, bills of materials, notes and checksums. The same commit and version give
# the same bytes. It needs what "make image" needs.
#
#   VERSION=v0.1.0 IMAGE=registry.example.com/lock-operator hack/release.sh dist
set -euo pipefail
mkdir -p "$1"
out="$(cd "$1" && pwd)"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

hack/package.sh
if [ -n "$(git status --porcelain)" ]; then
  echo "release: there are changes that are not committed; a release is made from a commit" >&2
  exit 1
fi
export VERSION IMAGE SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)"
rm -rf "${out:?}"/* bin/cli # Each program there gets a bill of materials.

make --no-print-directory image krew bin/helm
for image in lock-operator kubectl-lock; do
  cp "bin/image/$image.tar" "$out/$image-$VERSION-image.tar"
  cp "bin/image/$image.digest" "$out/$image-$VERSION-image.digest"
done
cp bin/krew/* "$out"
(cd clients/typescript && npm version --silent --no-git-tag-version --allow-same-version "$VERSION" >/dev/null &&
  npm ci --silent --ignore-scripts --no-audit --no-fund && npm pack --silent --pack-destination "$out" >/dev/null && git checkout --quiet package.json package-lock.json)
for platform in ${PLATFORMS:-linux/amd64 linux/arm64}; do
  CGO_ENABLED=0 GOOS="${platform%/*}" GOARCH="${platform#*/}" go build -trimpath -ldflags="-s -w -X main.linkedVersion=$VERSION" \
    -o "$out/lock-operator-$VERSION-${platform/\//-}" ./cmd/lock-operator
done

# A bill for each program and platform: what is linked in differs by platform.
go -C hack/release build -o "$PWD/bin/supplychain" ./supplychain
for program in "$out/lock-operator-$VERSION"-linux-*; do
  bin/supplychain -module . -page web -sbom "$program.cdx.json" "$program"
done
for program in bin/cli/kubectl-lock-*; do
  platform="$(basename "${program%.exe}")"
  bin/supplychain -module . -sbom "$out/kubectl-lock-$VERSION-${platform#kubectl-lock-}.cdx.json" "$program"
done

DIGEST="$(cat bin/image/lock-operator.digest)" hack/package.sh "$out"

# What CHANGELOG.md says of the version, or of what is not released yet where a release is only tried.
changes() { awk -v title="## [$1]" 'index($0, "## [") == 1 { isWanted = index($0, title) == 1; next } isWanted' CHANGELOG.md; }
{
  echo "# lock-operator $VERSION"
  echo
  echo "To install or upgrade, see docs/install.md. The chart and the bundles name the image" \
    "$([ "$IMAGE" = local ] && echo "lock-operator:$VERSION" || echo "$IMAGE@$(cat bin/image/lock-operator.digest)")."
  echo "The digests of the images:"
  echo
  for image in lock-operator kubectl-lock; do echo "- $image: $(cat "$out/$image-$VERSION-image.digest")"; done
  echo
  echo "## Changes"
  if [ -n "$(changes "${VERSION#v}")" ]; then changes "${VERSION#v}"; else changes Unreleased; fi
} >"$out/notes.md"
(cd "$out" && sha256sum -- * >../checksums.tmp && mv ../checksums.tmp checksums.txt)
echo "$out holds lock-operator $VERSION"
