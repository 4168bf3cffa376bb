"""``python -m tools.lab``: boot a virtual node and run the commands of standard input in it.

Each line is a command of one shell, so ``cd`` and ``export`` last; at a terminal there is a prompt,
and Ctrl-D switches the node off. The checkout is at /checkout in the node, with the Python packages
that it needs in /opt/site.
"""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tools.env.process import CommandError
from tools.env.waiting import NotReadyError
from tools.lab.image import CHECKOUT, build, default_recipe
from tools.lab.kinds import KINDS, UML, architecture_of, make_machine
from tools.lab.machine import Machine
from tools.lab.recipe import SUITES
from tools.lab.requests import GuestError, shell_line


def main() -> int:
    """Boot, run what is typed, and switch the node off at the end of the input."""
    made = argparse.ArgumentParser(prog="python -m tools.lab", description=__doc__)
    made.add_argument("--machine", choices=KINDS, default=UML, help="what runs the node (uml)")
    made.add_argument("--suite", choices=SUITES, default="bookworm", help="its Debian (bookworm)")
    made.add_argument("--kernel", choices=SUITES, default="", help="the Debian of its kernel")
    made.add_argument("--memory", type=int, default=2048, help="memory in MiB (2048)")
    made.add_argument(
        "--timeout", type=float, default=600.0, help="timeout of a command, in seconds (600)"
    )
    supplied = made.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it cuts the power at its end
    try:
        disk = build(default_recipe(supplied.suite, architecture_of(supplied.machine)))
        with tempfile.TemporaryDirectory(prefix="lab-") as directory:
            node = make_machine(
                supplied.machine,
                supplied.suite,
                disk,
                Path(directory),
                memory_mib=supplied.memory,
                shares=[CHECKOUT],
                kernel=supplied.kernel,
            )
            try:
                begin = time.monotonic()
                node.boot()
                node.mount_host(CHECKOUT, "/checkout")
                print(f"booted in {time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)
                return _commands(node, supplied.timeout)
            finally:
                node.cut_power()
    except (CommandError, NotReadyError, GuestError) as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1


def _commands(node: Machine, timeout: float) -> int:
    for line in _lines():
        try:
            done = node.run("bash", "-c", shell_line(line), timeout=timeout)
        except GuestError as error:
            print(f"lab: {error}", file=sys.stderr)
            continue
        sys.stdout.write(done.output)
        if done.status:
            print(f"exit code {done.status}", file=sys.stderr)
        sys.stdout.flush()
    return 0


def _lines() -> Iterator[str]:
    """Lines of standard input; at a terminal with a prompt and a history."""
    if not sys.stdin.isatty():
        yield from sys.stdin
        return
    importlib.import_module("readline")  # input() then has a history
    while True:
        try:
            yield input("node# ")
        except (EOFError, KeyboardInterrupt):
            return


if __name__ == "__main__":
    raise SystemExit(main())
