#!/usr/bin/env bash
# Installs those of Debian's packages whose commands this machine lacks. Each argument is a
# package with a command of the same name, or PACKAGE:COMMAND, as in
#
#   hack/debian.sh buildah podman prometheus:promtool
#
# It needs root only if a command is missing, and starts no services.
set -euo pipefail

missing=()
for argument in "$@"; do
  package="${argument%%:*}" command="${argument##*:}"
  # Users other than root may lack the folders of system programs in their PATH.
  PATH="$PATH:/usr/sbin:/sbin" command -v "$command" >/dev/null || missing+=("$package")
done
if [ ${#missing[@]} = 0 ]; then exit; fi

if ! command -v apt-get >/dev/null; then
  echo "debian: this machine has no apt-get; install ${missing[*]} in its own way" >&2
  exit 1
fi
if [ "$(id -u)" != 0 ]; then
  echo "debian: only root can install packages; run this first: sudo apt-get install --no-install-recommends ${missing[*]}" >&2
  exit 1
fi

echo "Installing Debian's ${missing[*]}"
# Two of these scripts at once would contend for the lists of packages.
exec 9>/run/lock-operator-packages
flock 9
# Debian asks this program whether an installed service may start.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
apt() {
  local output
  output="$(apt-get -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 "$@" 2>&1)" || { echo "$output" >&2; exit 1; }
}
apt update
apt install --yes --no-install-recommends "${missing[@]}"
