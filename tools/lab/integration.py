"""``./test.sh integration --virtual SUITE``: the integration tests on a virtual node.

The node has systemd, cgroup v2, its Debian's own Python and the programs that the tests start. It
sees the checkout and the cache of downloads at the paths of this machine; what it writes there
stays in the node. One test runs at a time. The output and the report of each test are in
``build/integration-SUITE``.
"""

from __future__ import annotations

import argparse
import itertools
import shlex
import signal
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from time import sleep

from tools.env.containerd import programs
from tools.env.debian import cache_dir
from tools.env.kubectl import kubectl
from tools.env.machine_abilities import ADDRESS_TRANSLATION
from tools.env.process import CommandError
from tools.env.runc import current_runc
from tools.env.waiting import NotReadyError
from tools.lab.image import CHECKOUT, build, default_recipe
from tools.lab.kinds import UML, make_machine
from tools.lab.machine import Machine
from tools.lab.recipe import SITE, SUITES, Recipe
from tools.lab.requests import GuestError
from tools.lab.versions import versions_of
from tools.lock import up_requirements

TESTS = "tests/integration"
PACKAGES = (
    *("stress-ng", "docker-registry", "skopeo", "apache2-utils", "prometheus"),
    *("chromium-headless-shell", "e2fsprogs"),
)
"""Programs that the tests start, beyond those of any node."""
DAEMONS = ("containerd.service", "docker-registry.service", "prometheus.service")
"""Tests start their own."""
RESULTS = Path("/run/results")
"""The directory of results in the node."""
LACKING = ("two processors", "cpuset", "pressure stalls", "huge pages", "id-mapped tmpfs")
"""Abilities that user-mode Linux does not have (:mod:`tools.env.machine_abilities`)."""
LACKING_LATER = (ADDRESS_TRANSLATION,)
"""Abilities that that of Debian testing does not have either."""
_UNIT = "integration"
_PREPARE_S = 300.0
_ALIVE_S = 60
_SCRIPT = Path("tools/lab/integration.sh")


def integration_recipe(suite: str) -> Recipe:
    """The node of a suite, with the programs and the Python packages of the tests."""
    recipe = default_recipe(suite)
    extras = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    return replace(
        recipe,
        packages=(*recipe.packages, *PACKAGES),
        requirements=(
            *recipe.requirements,
            *foreign([*up_requirements(), *extras["tracing"], *extras["test"]]),
        ),
        masked=(*recipe.masked, *DAEMONS),
        size="8G",
    )


def foreign(requirements: Iterable[str]) -> list[str]:
    """Requirements besides the project's own extras, such as ``kubeletpy[tracing]``."""
    return [each for each in requirements if not each.startswith("kubeletpy")]


def lacking(suite: str, kernel: str) -> tuple[str, ...]:
    """Abilities that a node may lack; ``kernel`` is the suite of its kernel, if another one."""
    return (*LACKING, *LACKING_LATER) if (kernel or suite) == "testing" else LACKING


def unit_command(
    checkout: Path, cache: Path, arguments: Sequence[str], lacking: Sequence[str]
) -> list[str]:
    """The command in the node that runs pytest as a unit.

    ``lacking``: abilities that the node may lack.

    The unit counts what it uses, so that systemd leaves all controllers of the root on: cgroups
    that tests make there need them.
    """
    python = checkout / ".venv/bin/python"
    pytest = (python, "-m", "pytest", "-p", "tools.env.no_skips", "-p", "no:cacheprovider")
    # a bound of wall time means nothing where one processor does all
    options = (
        "-o",
        "timeout=1800",
        f"--junitxml={RESULTS}/report.xml",
        f"--lacking={','.join(lacking)}",
    )
    parts = shlex.join(map(str, [*pytest, *options, *arguments]))
    script = f"{parts} >{RESULTS}/output.log 2>&1; echo $? >{RESULTS}/status"
    environment = {
        "PATH": f"{python.parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONPATH": checkout,
        "PYTHONPYCACHEPREFIX": "/var/cache/pycache",
        "KUBELETPY_CACHE": cache,
        "HOME": "/root",
    }
    accounts = ("CPUAccounting", "IOAccounting", "MemoryAccounting", "TasksAccounting")
    return [
        *("systemd-run", f"--unit={_UNIT}", f"--working-directory={checkout}"),
        *(f"--property={name}=yes" for name in accounts),
        "--property=LimitNOFILE=1048576",
        *(f"--setenv={name}={value}" for name, value in environment.items()),
        *("sh", "-c", script),
    ]


def prepare(machine: Machine, results: Path) -> None:
    """Mount this machine's directories and make the environment. Raises GuestError."""
    checkout, cache = CHECKOUT, cache_dir()
    for directory in (checkout, cache):
        machine.mount_host(directory, f"/run/host{directory}")
    machine.mount_host(results, str(RESULTS))
    script = f"/run/host{checkout}/{_SCRIPT}"
    parts = ("bash", "-e", script, str(checkout), str(cache), SITE)
    done = machine.run(*parts, timeout=_PREPARE_S)
    if done.status:
        raise GuestError(f"the node was not prepared: {done.output}")


def run_tests(
    machine: Machine, results: Path, arguments: Sequence[str], lacking: Sequence[str]
) -> int:
    """Run pytest in the node, print its output, and return its exit code. Raises GuestError."""
    output, status = results / "output.log", results / "status"
    for old in (output, status):
        old.unlink(missing_ok=True)
    done = machine.run(*unit_command(CHECKOUT, cache_dir(), arguments, lacking))
    if done.status:
        raise GuestError(f"pytest was not started: {done.output}")
    reported = 0
    seconds = itertools.count()
    while True:
        ended = status.exists() and status.read_text().strip()
        if output.exists():
            with output.open(errors="replace") as file:
                file.seek(reported)
                sys.stdout.write(file.read())
                sys.stdout.flush()
                reported = file.tell()
        if ended:
            return int(ended)
        if next(seconds) % _ALIVE_S == 0:
            machine.run("true", timeout=_PREPARE_S)
        sleep(1)


def _fetch_programs() -> None:
    """Put programs of other Debian releases into the cache: the node has no archive."""
    for name in ("old", "new"):
        kubectl(name)
    for generation in (1, 2):
        programs(generation)
    current_runc()


def main() -> int:
    """Boot a node, and run the tests in it; the exit code is that of pytest."""
    made = argparse.ArgumentParser(
        prog="./test.sh integration --virtual",
        description=__doc__,
        epilog="Further arguments are those of pytest.",
    )
    made.add_argument("suite", choices=SUITES, help="its Debian")
    made.add_argument("--kernel", choices=SUITES, default="", help="the Debian of its kernel")
    made.add_argument("--memory", type=int, default=4096, help="memory in MiB (4096)")
    supplied, arguments = made.parse_known_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # it cuts the power at its end
    if not any(each.startswith(TESTS) for each in arguments):
        arguments.append(TESTS)
    results = CHECKOUT / "build" / f"integration-{supplied.suite}"
    results.mkdir(parents=True, exist_ok=True)
    try:
        _fetch_programs()
        disk = build(integration_recipe(supplied.suite))
        with tempfile.TemporaryDirectory(prefix="lab-") as directory:
            machine = make_machine(
                UML,
                supplied.suite,
                disk,
                Path(directory),
                memory_mib=supplied.memory,
                kernel=supplied.kernel,
            )
            machine.boot()
            try:
                prepare(machine, results)
                print(", ".join(f"{k} {v}" for k, v in versions_of(machine).items()), flush=True)
                may_lack = lacking(supplied.suite, supplied.kernel)
                return run_tests(machine, results, arguments, may_lack)
            finally:
                machine.cut_power()
    except (CommandError, NotReadyError, GuestError) as error:
        print(f"integration: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    raise SystemExit(main())
