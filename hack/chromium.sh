#!/usr/bin/env bash
# Unpacks Debian's headless Chromium, and the libraries that this machine lacks, into a folder,
# and makes the program headless-shell there. It needs no root and installs nothing.
set -euo pipefail

if ! command -v apt-get >/dev/null; then
  echo "chromium: this machine has no apt-get; let CHROMIUM name a Chromium, as in make browser-test CHROMIUM=/usr/bin/chromium" >&2
  exit 1
fi
# The folder comes into being with the program in it, or not at all.
rm -rf "$1.new" "$1"
"$(dirname "$0")/unpack.sh" "$1.new" chromium-headless-shell
cat >"$1.new/headless-shell" <<'PROGRAM'
#!/bin/sh
here="$(cd "$(dirname "$0")" && pwd)"
libraries="$(echo "$here"/usr/lib/*-linux-gnu)"
LD_LIBRARY_PATH="$libraries:$libraries/pulseaudio" exec "$here/usr/lib/chromium/chromium-headless-shell" "$@"
PROGRAM
chmod +x "$1.new/headless-shell"
mv "$1.new" "$1"
