#!/usr/bin/env bash
# Builds the images of the Dockerfile into a folder, as OCI archives with an image for each
# platform, without a registry: the base images are stand-ins that are made here. It needs
# root and Debian's buildah and busybox-static.
#
#   hack/image.sh bin/image
set -euo pipefail
out="$1"
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PLATFORMS="${PLATFORMS:-linux/amd64 linux/arm64}"
VERSION="${VERSION:-v0.0.0}"
REVISION="${REVISION:-$(git rev-parse HEAD)}"
targets="lock-operator kubectl-lock"
SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"
created="$(date --utc --date="@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)"

# A store of its own, which is short of nothing and shared with no other build.
store="$(mktemp -d)"
trap 'rm -rf "$store"' EXIT
buildah() { command buildah --root "$store/root" --runroot "$store/run" --storage-driver "${STORAGE_DRIVER:-overlay}" "$@"; }
bud() { buildah bud --quiet --isolation chroot --pull-never --timestamp "$SOURCE_DATE_EPOCH" "$@" >/dev/null; }

# In place of the image of Go: a shell. Go itself and its caches are mounted.
mkdir -p "$store/build/bin" "$store/runtime/etc/ssl/certs"
install -d -m 1777 "$store/build/tmp" "$store/runtime/tmp"
cp "$(command -v busybox)" "$store/build/bin/sh"
# In place of the image to run on: what a static program may look for.
echo 'nonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin' >"$store/runtime/etc/passwd"
echo 'nonroot:x:65532:' >"$store/runtime/etc/group"
cp /etc/ssl/certs/ca-certificates.crt "$store/runtime/etc/ssl/certs/"

# With the machine's settings of a proxy. The build in the image has GOPROXY=off.
go mod download

mkdir -p "$out"
for platform in $PLATFORMS; do
  # This buildah looks for each base image as one of the target's platform, so even the shell,
  # which runs here, is said to be for it.
  bud --tag localhost/build --platform "$platform" --file - "$store/build" <<'DOCKERFILE'
FROM scratch
COPY . /
ENV PATH=/usr/local/go/bin:/bin GOPATH=/go GOCACHE=/cache GOTOOLCHAIN=local GOPROXY=off GOFLAGS=-buildvcs=false
DOCKERFILE
  bud --tag localhost/runtime --platform "$platform" --file - "$store/runtime" <<'DOCKERFILE'
FROM scratch
COPY . /
DOCKERFILE
  for target in $targets; do
    echo "Building the image $target for $platform"
    bud --tag "localhost/$target-${platform#*/}" --target "$target" --platform "$platform" \
      --build-arg BUILD_IMAGE=localhost/build --build-arg RUNTIME_IMAGE=localhost/runtime \
      --build-arg VERSION="$VERSION" --build-arg REVISION="$REVISION" --build-arg CREATED="$created" \
      --volume "$(go env GOROOT):/usr/local/go:ro" --volume "$(go env GOMODCACHE):/go/pkg/mod" \
      --volume "$(go env GOCACHE):/cache" .
  done
done

for target in $targets; do
  buildah manifest create "localhost/$target" >/dev/null
  for platform in $PLATFORMS; do
    buildah manifest add "localhost/$target" "localhost/$target-${platform#*/}" >/dev/null
  done
  layout="$store/$target"
  buildah manifest push --quiet --all --digestfile "$out/$target.digest" "localhost/$target" "oci:$layout:$target:$VERSION"
  # The same bytes from the same images.
  tar --create --file "$out/$target.tar" --directory "$layout" --sort=name --mtime="@$SOURCE_DATE_EPOCH" \
    --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX --format=ustar .
  echo "$out/$target.tar holds $target:$VERSION, $(cat "$out/$target.digest")"
done
