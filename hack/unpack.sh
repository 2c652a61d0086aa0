#!/usr/bin/env bash
# Unpacks a package of Debian, and those that it depends on and this machine lacks, into a folder. It
# needs no root, installs nothing and starts no service:
#
#   hack/unpack.sh bin/prometheus prometheus
set -euo pipefail

target="$1" name="$2"
if ! command -v apt-get >/dev/null; then
  echo "unpack: this machine has no apt-get, so $name cannot be unpacked into $target" >&2
  exit 1
fi
mkdir -p "$(dirname "$target")"
# For apt-get a relative path begins at the root of the file system.
folder="$(cd "$(dirname "$target")" && pwd)/$(basename "$target")"
temporary="$(mktemp -d "$(dirname "$folder")/unpack.XXXXXX")"
trap 'rm -rf "$temporary"' EXIT
mkdir -p "$temporary"/{lists,archives}/partial "$temporary/unpacked"

# With lists and a cache of its own: those of the machine may be old, and are root's.
apt() {
  apt-get -qq -o Acquire::Retries=3 -o Debug::NoLocking=1 -o Dir::State::lists="$temporary/lists" -o Dir::Cache="$temporary" \
    -o APT::Sandbox::User="$(id -un)" "$@"
}
apt update
apt install --download-only --yes --no-install-recommends --reinstall "$name"
for package in "$temporary"/archives/*.deb; do
  dpkg -x "$package" "$temporary/unpacked"
done
# Examples among the documentation are Go modules, which a walk of this one would find.
rm -rf "$folder" "$temporary/unpacked/usr/share/doc"
mv "$temporary/unpacked" "$folder"
