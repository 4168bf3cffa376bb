#!/usr/bin/env bash
# Start a Kubernetes node with its own API on this machine, and nothing else needed.
#
#   ./up.sh [ARGUMENTS of kubeletpy up]   install what is missing, start (again); Ctrl-C stops the
#                                         agent and leaves the containers running
#   ./up.sh --rootless [ARGUMENTS]        the same as a login user, without root (docs/rootless.md)
#   ./up.sh down                          remove the node with its pods, images and files; packages of
#                                         Debian stay, and .venv and .cache of this checkout
#
# ARGUMENTS: --port, --kubelet-port and --healthz-port PORT, --kubelet-address IP,
# --node-name NAME, --config FILE, -v N;
# `.venv/bin/kubeletpy up --help` explains them once .venv exists
#
# KUBELETPY_HOME     where the node's state is kept (/var/lib/kubeletpy, or without root
#                    ~/.local/share/kubeletpy)
# KUBELETPY_RUNTIME  auto (the containerd that runs, else our own), private, or unix:///path; its cgroup
#                    driver is found by a trial, our own has systemd's where systemd runs
set -euo pipefail

checkout=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)

case "${1:-}" in
-h | --help)
    sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$checkout/up.sh"
    exit 0
    ;;
esac
root=yes
if [ "$(id -u)" -ne 0 ]; then
    case " $* " in
    " down " | *" --rootless "*) root= ;;
    *)
        echo "up.sh: containers need root: run it as root, with sudo, or with --rootless" >&2
        exit 1
        ;;
    esac
fi

trap 'echo && echo "up.sh: interrupted; run it again to go on" >&2 && exit 130' INT TERM
source "$checkout/tools/env/venv.sh"
python_environment "$checkout" "" "[1/5] Python environment"
if [ -z "$root" ]; then
    [ "$1" = down ] || set -- up "$@"
    exec "$checkout/.venv/bin/kubeletpy" "$@" ${KUBELETPY_HOME:+--state-dir "$KUBELETPY_HOME"}
fi
cd /
# signals are handled before the imports, in which they would end with a traceback
PYTHONPATH="$checkout" exec "$checkout/.venv/bin/python" -c '
import sys
from kubeletpy.cli.endings import end_in_order

def command():
    from tools.env.up import main
    return main(sys.argv[1:])

sys.exit(end_in_order(command))
' "$@"
