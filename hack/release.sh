#!/usr/bin/env bash
# Makes everything that a release has into a folder, from the last commit: programs, images, chart,
# bundles, manifest of krew, bill of materials, notes and checksums. The same commit and version give
# the same bytes. It needs what "make image" needs.
#
#   VERSION=v0.1.0 hack/release.sh dist
set -euo pipefail
mkdir -p "$1"
out="$(cd "$1" && pwd)"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ ! "${VERSION:-}" =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]]; then
  echo "release: VERSION is \"${VERSION:-}\"; it must be a semantic version with a v, as in VERSION=v0.1.0" >&2
  exit 1
fi
if [ -n "$(git status --porcelain)" ]; then
  echo "release: there are changes that are not committed; a release is made from a commit" >&2
  exit 1
fi
export VERSION SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)"
rm -rf "${out:?}"/*

make --no-print-directory image krew bin/helm
for image in lock-operator kubectl-lock; do
  cp "bin/image/$image.tar" "$out/$image-$VERSION-image.tar"
  cp "bin/image/$image.digest" "$out/$image-$VERSION-image.digest"
done
cp bin/krew/* "$out"
for platform in ${PLATFORMS:-linux/amd64 linux/arm64}; do
  CGO_ENABLED=0 GOOS="${platform%/*}" GOARCH="${platform#*/}" go build -trimpath -ldflags="-s -w -X main.linkedVersion=$VERSION" \
    -o "$out/lock-operator-$VERSION-${platform/\//-}" ./cmd/lock-operator
done
first="$(find "$out" -name "lock-operator-$VERSION-linux-*" | sort | head -n 1)"
go -C hack/supplychain run . -module "$PWD" -page "$PWD/web" -sbom "$out/lock-operator-$VERSION.cdx.json" "$first"

# An archive has the time of the commit, which Helm passes on.
tree="$(mktemp -d)"
trap 'rm -rf "$tree"' EXIT
git archive HEAD charts/lock-operator | tar -x -C "$tree"
bin/helm package "$tree/charts/lock-operator" --version "${VERSION#v}" --app-version "$VERSION" --destination "$out" >/dev/null
go -C hack/chart run . -bundles "$out" -image "lock-operator:$VERSION"

last="$(git describe --tags --abbrev=0 --match 'v*' HEAD^ 2>/dev/null || true)"
{
  echo "# lock-operator $VERSION"
  echo
  echo "To install or upgrade, see docs/install.md. The digests of the images:"
  echo
  for image in lock-operator kubectl-lock; do echo "- $image: $(cat "$out/$image-$VERSION-image.digest")"; done
  echo
  echo "## Changes${last:+ since $last}"
  echo
  git log --no-merges --format='- %s' "${last:+$last..}HEAD"
} >"$out/notes.md"
(cd "$out" && sha256sum -- * >../checksums.tmp && mv ../checksums.tmp checksums.txt)
echo "$out holds lock-operator $VERSION"
