#!/usr/bin/env bash
# Writes what installs a release into a folder: the chart as an archive, and the bundles. They name the image by its digest.
# It needs bin/helm. SOURCE_DATE_EPOCH is the time of the files of the chart. IMAGE=local stands for an image that no registry has: it is called lock-operator, with the version as
# its tag, and has to be loaded into the nodes. Without a folder, the script only checks VERSION and IMAGE.
#
#   VERSION=v0.1.0 IMAGE=registry.example.com/lock-operator DIGEST=sha256:… hack/package.sh dist
set -euo pipefail

if [[ ! "${VERSION:-}" =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]]; then
  echo "release: VERSION is \"${VERSION:-}\"; it must be a semantic version with a v, as in VERSION=v0.1.0" >&2
  exit 1
fi
# A name without a registry would be one of Docker Hub.
if [ "${IMAGE:-}" != local ] && [[ ! "${IMAGE:-}" =~ ^([a-z0-9-]+(\.[a-z0-9-]+)+(:[0-9]+)?|[a-z0-9-]+:[0-9]+)(/[a-z0-9._-]+)+$ ]]; then
  echo "release: IMAGE is \"${IMAGE:-}\"; it must be where the image is pushed to, with the registry and without a tag," \
    "as in IMAGE=registry.example.com/lock-operator, or IMAGE=local for an image that is loaded into the nodes" >&2
  exit 1
fi
if [ $# = 0 ]; then exit; fi

mkdir -p "$1"
out="$(cd "$1" && pwd)"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
repository=lock-operator digest='' reference="lock-operator:$VERSION"
if [ "$IMAGE" != local ]; then
  if [[ ! "${DIGEST:-}" =~ ^sha256:[0-9a-f]{64}$ ]]; then
    echo "release: DIGEST is \"${DIGEST:-}\"; it must be that of the image" >&2
    exit 1
  fi
  repository="$IMAGE" digest="$DIGEST" reference="$IMAGE@$DIGEST"
fi

tree="$(mktemp -d)"
trap 'rm -rf "$tree"' EXIT
cp -R charts/lock-operator "$tree"
chart="$tree/lock-operator"
# replace FILE TEXT BY replaces a line, which has to be there.
replace() {
  grep -qxF -- "$2" "$1" || { echo "release: $1 has no line \"$2\"" >&2; exit 1; }
  awk -v line="$2" -v by="$3" '$0 == line { $0 = by } { print }' "$1" >"$tree/replaced"
  cat "$tree/replaced" >"$1"
}
replace "$chart/values.yaml" '  repository: lock-operator' "  repository: $repository"
replace "$chart/values.yaml" '  digest: ""' "  digest: \"$digest\""
row='| image.%s | string | `"%s"` | %s |'
replace "$chart/README.md" "$(printf "$row" repository lock-operator 'The image of the operator.')" \
  "$(printf "$row" repository "$repository" 'The image of the operator.')"
replace "$chart/README.md" "$(printf "$row" digest '' 'Its digest, such as `sha256:…`, in place of the tag.')" \
  "$(printf "$row" digest "$digest" 'Its digest, such as `sha256:…`, in place of the tag.')"
find "$chart" -exec touch -d "@${SOURCE_DATE_EPOCH:-0}" {} + # Helm passes it on.
bin/helm package "$chart" --version "${VERSION#v}" --app-version "$VERSION" --destination "$out" >/dev/null
go -C hack/chart run . -bundles "$out" -image "$reference"
