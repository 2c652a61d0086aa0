#!/usr/bin/env bash
# Makes a release twice, in two clones, and compares. The images are for one platform, since each takes minutes.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
for copy in one two; do
  git clone --quiet --local . "$folder/$copy"
  mkdir "$folder/$copy/bin"
  cp bin/helm "$folder/$copy/bin/"
  make --no-print-directory -C "$folder/$copy" release VERSION=v0.0.1 IMAGE=registry.example.com/lock-operator PLATFORMS=linux/amd64
done
diff "$folder/one/dist/checksums.txt" "$folder/two/dist/checksums.txt"
cd "$folder/one/dist"
sha256sum --check --quiet checksums.txt
ls -l
