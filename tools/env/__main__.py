"""Start and remove parts of the environment by hand: `python -m tools.env --help`."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from tools.env import containerd, kubectl
from tools.env.images import busybox_image
from tools.env.process import CommandError
from tools.env.registry import Registry, default_directory
from tools.env.waiting import NotReadyError


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m tools.env", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    start = commands.add_parser("containerd", help="start a private containerd in the background")
    start.add_argument("--version", type=int, choices=(1, 2), default=1)
    start.add_argument(
        "--dir", type=Path, required=True, help="short absolute path; the directory is kept"
    )
    remove = commands.add_parser("remove", help="remove a private containerd and all it ran")
    remove.add_argument("--dir", type=Path, required=True)
    remove.add_argument("--version", type=int, choices=(1, 2), default=1)
    fetch = commands.add_parser("kubectl", help="print the path of the old or the new kubectl")
    fetch.add_argument("which", choices=("old", "new"))
    serve = commands.add_parser("registry", help="run a registry with busybox until Ctrl-C")
    serve.add_argument("--password", action="store_true", help="require user and password")
    arguments = parser.parse_args()
    try:
        run_command(arguments)
    except (CommandError, NotReadyError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def run_command(arguments: argparse.Namespace) -> None:
    """Run the command of the command line."""
    if arguments.command == "containerd":
        instance = instance_of(arguments)
        instance.start()
        instance.import_images()
        print(f"endpoint {instance.endpoint}\nlog      {instance.log}\npid      {instance.pid}")
    elif arguments.command == "remove":
        for line in instance_of(arguments).remove():
            print(f"still there: {line}")
    elif arguments.command == "kubectl":
        print(kubectl.kubectl(arguments.which).program)
    else:
        serve_registry(authenticated=arguments.password)


def instance_of(arguments: argparse.Namespace) -> containerd.Containerd:
    """The containerd that --dir and --version name."""
    return containerd.Containerd(arguments.dir.absolute(), containerd.programs(arguments.version))


def serve_registry(*, authenticated: bool) -> None:
    """Run a registry in the background of this program until it is interrupted."""
    registry = Registry(default_directory(), authenticated=authenticated)
    registry.start()
    print(f"image {registry.push(busybox_image(), 'busybox:1')}")
    if authenticated:
        print(f"user {registry.user} password {registry.password}")
    signal.sigwait({signal.SIGINT, signal.SIGTERM})
    registry.remove()


if __name__ == "__main__":
    raise SystemExit(main())
