#!/bin/sh
# Install with commands and run the program, in a mount namespace (trials.py):
#
#   unshare --mount tools/release/trial.sh INSTALLATION USE
#
# Nothing is left of what they write to /usr, /etc and /var.
set -eu
exec 2>&1

cp /etc/resolv.conf "$HOME" # in a container it is a mount, which the overlay hides
mkdir "$HOME/system" && mount -t tmpfs tmpfs "$HOME/system"
for folder in usr etc var; do
    upper="$HOME/system/$folder/upper" work="$HOME/system/$folder/work"
    mkdir -p "$upper" "$work"
    mount -t overlay overlay -o "lowerdir=/$folder,upperdir=$upper,workdir=$work" "/$folder"
done
rm -f /etc/resolv.conf && cp "$HOME/resolv.conf" /etc
echo 'APT::Get::Assume-Yes "true"; APT::Install-Recommends "false";' >/etc/apt/apt.conf.d/trial

if command -v kubeletpy; then exit 1; fi
eval "$1"
kubeletpy up --help
eval "$2"
kubeletpy --version
