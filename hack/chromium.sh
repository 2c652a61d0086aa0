#!/usr/bin/env bash
# Unpacks Debian's headless Chromium, and the libraries that this machine lacks, into a folder,
# and makes the program headless-shell there. It needs no root and installs nothing.
set -euo pipefail

if ! command -v apt-get >/dev/null; then
  echo "chromium: this machine has no apt-get; let CHROMIUM name a Chromium, as in make browser-test CHROMIUM=/usr/bin/chromium" >&2
  exit 1
fi
mkdir -p "$(dirname "$1")"
# For apt-get a relative path begins at the root of the file system.
folder="$(cd "$(dirname "$1")" && pwd)/$(basename "$1")"
temporary="$(mktemp -d "$(dirname "$folder")/chromium.XXXXXX")"
trap 'rm -rf "$temporary"' EXIT
mkdir -p "$temporary"/{lists,archives}/partial "$temporary/unpacked"

# With lists and a cache of its own: those of the machine may be old, and are root's.
apt() {
  apt-get -qq -o Acquire::Retries=3 -o Debug::NoLocking=1 -o Dir::State::lists="$temporary/lists" -o Dir::Cache="$temporary" \
    -o APT::Sandbox::User="$(id -un)" "$@"
}
apt update
apt install --download-only --yes --no-install-recommends chromium-headless-shell
for package in "$temporary"/archives/*.deb; do
  dpkg -x "$package" "$temporary/unpacked"
done

cat >"$temporary/unpacked/headless-shell" <<'PROGRAM'
#!/bin/sh
here="$(cd "$(dirname "$0")" && pwd)"
libraries="$(echo "$here"/usr/lib/*-linux-gnu)"
LD_LIBRARY_PATH="$libraries:$libraries/pulseaudio" exec "$here/usr/lib/chromium/chromium-headless-shell" "$@"
PROGRAM
chmod +x "$temporary/unpacked/headless-shell"
rm -rf "$folder"
mv "$temporary/unpacked" "$folder"
