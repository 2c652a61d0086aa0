#!/usr/bin/env bash
# Builds the SDK with the oldest client-go that it works with, and runs its tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# docs/sdk.md names it. Older ones lack FieldsV1.GetRawBytes and content.IsPathSegmentName.
oldest=v0.36.0
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
cp go.mod go.sum "$folder"
for module in api apiextensions-apiserver apimachinery apiserver client-go component-base; do
  go mod edit -replace="k8s.io/$module=k8s.io/$module@$oldest" "$folder/go.mod"
done
go test -mod=mod -modfile="$folder/go.mod" ./lock ./lock/engine ./lock/lockhttp ./lock/locktest ./lock/objectlock ./facade/client
