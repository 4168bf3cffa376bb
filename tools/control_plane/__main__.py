"""Start and remove a control plane by hand: `python -m tools.control_plane --help`."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from tools.control_plane.building import obstacle, programs
from tools.control_plane.plane import ControlPlane
from tools.control_plane.releases import NEWEST, release
from tools.env.process import CommandError
from tools.env.waiting import NotReadyError


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m tools.control_plane", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="build the programs and print their directory")
    serve = commands.add_parser("serve", help="run a control plane until Ctrl-C")
    check = commands.add_parser(
        "check", help="print why the programs cannot be built here, and exit with code 3 then"
    )
    for each in (build, serve, check):
        each.add_argument(
            "--kubernetes", type=release, default=NEWEST, help="the release, such as v%(default)s"
        )
    serve.add_argument("--dir", type=Path, required=True, help="new directory for its files")
    serve.add_argument("--programs", type=Path, help="built programs; default: build --kubernetes")
    serve.add_argument("--node", action="append", default=[], help="write a node's kubeconfig")
    serve.add_argument(
        "--no-controllers", action="store_true", help="start only etcd and the API server"
    )
    serve.add_argument(
        "--without-history",
        action="store_true",
        help="refuse versions from before the start as too old, as tests/contract expects",
    )
    supplied = parser.parse_args()
    try:
        if supplied.command == "build":
            print(programs(supplied.kubernetes))
        elif supplied.command == "check":
            if (why := obstacle(supplied.kubernetes)) is not None:
                print(why)
                return 3
        else:
            _serve(supplied)
    except (CommandError, NotReadyError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _serve(supplied: argparse.Namespace) -> None:
    plane = ControlPlane(
        supplied.dir.absolute(), supplied.programs or programs(supplied.kubernetes)
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if supplied.without_history:
            plane.start_without_history()
        else:
            plane.start(controllers=not supplied.no_controllers)
        print(f"admin {plane.admin}")
        for name in supplied.node:
            print(f"{name} {plane.node_kubeconfig(name)}")
        sys.stdout.flush()
        signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        plane.stop()


if __name__ == "__main__":
    sys.exit(main())
