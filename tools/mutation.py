"""Mutate the pure modules of packages with mutmut and run each package's unit tests against them.

python -m tools.mutation resources pods      # --jobs 2, --most-percent 10

Prints each mutation that the tests did not notice as a diff, and a line for each package. The exit
code is 1 where more than ``--most-percent`` of a package's mutations went unnoticed. mutmut runs in
a copy of the checkout, which is removed at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from tools.env.process import CommandError, run
from tools.pure_contract import declared, read_source

ROOT = Path(__file__).resolve().parents[1]
SOURCES, PROJECT = "kubeletpy", "pyproject.toml"
BESIDE = ("LICENSE", "README.md", "deploy", "docs", "test.sh", "tests", "tools", "up")
"""Files and folders that tests read."""
LEFT_OUT = (
    "kubeletpy/base/api/types.py",
    "kubeletpy/base/api/pod_fields.py",
    "kubeletpy/base/generated/",
    "kubeletpy/config/generated/",
    "kubeletpy/kubeapi/events/generated/",
    "kubeletpy/metrics/generated/",
    "kubeletpy/remote/generated/",
)
"""Generated types."""
MOST_PERCENT = 10.0
LONGEST_S = 4 * 3600.0
STATISTICS = "mutants/mutmut-cicd-stats.json"
UNNOTICED = ("survived", "no tests")


@cache
def pure_modules() -> dict[str, list[str]]:
    """Package -> files of its modules that declare themselves pure (tools/pure_contract.py)."""
    sources, files = {}, {}
    for file in (ROOT / SOURCES).rglob("*.py"):
        path = file.relative_to(ROOT)
        module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        files[module] = path.as_posix()
        sources[module] = read_source(file.read_text())
    found: dict[str, list[str]] = {}
    for name in sorted(files[module] for module in declared(sources)):
        if not name.startswith(LEFT_OUT):
            found.setdefault(Path(name).parts[1], []).append(name)
    return found


def packages() -> list[str]:
    """All packages with pure modules and unit tests of their own."""
    return sorted(each for each in pure_modules() if (ROOT / tests_of(each)).is_dir())


def tests_of(package: str) -> str:
    """The folder of a package's unit tests."""
    return f"tests/unit/{package}"


def settings(package: str) -> str:
    """mutmut's section of pyproject.toml."""
    values = {
        "source_paths": [SOURCES],
        "only_mutate": pure_modules()[package],
        "also_copy": BESIDE,
        "pytest_add_cli_args_test_selection": [tests_of(package)],
    }
    lines = [f"{key} = {json.dumps(value)}\n" for key, value in values.items()]
    return "".join(["\n[tool.mutmut]\n", *lines])


def unnoticed(results: str) -> Iterator[str]:
    """The mutations that no test noticed, from the lines of ``mutmut results``."""
    for line in results.splitlines():
        name, _, status = line.strip().rpartition(": ")
        if status in UNNOTICED:
            yield name


def try_package(package: str, jobs: int, most_percent: float) -> bool:
    """Mutate one package and print the findings; whether few enough went unnoticed.

    Raises CommandError when mutmut fails, for example because a test fails without mutations.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kpm-") as name:
        tree = Path(name) / "tree"
        tree.mkdir()
        for each in (SOURCES, PROJECT, *BESIDE):
            copy = shutil.copytree if (ROOT / each).is_dir() else shutil.copy
            copy(ROOT / each, tree / each)
        with (tree / PROJECT).open("a") as project:
            project.write(settings(package))
        # the tests import the packages of the copy, which mutmut puts first in the search path
        env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        env["TMPDIR"] = name

        def mutmut(*arguments: str) -> str:
            command = (sys.executable, "-m", "mutmut", *arguments)
            return run(*command, cwd=tree, env=env, timeout=LONGEST_S)

        mutmut("run", "--max-children", str(jobs))
        names = list(unnoticed(mutmut("results")))
        for each in names:
            print(mutmut("show", each))
        mutmut("export-cicd-stats")
        tried = int(json.loads((tree / STATISTICS).read_text())["total"])
    percent = 100 * len(names) / max(tried, 1)
    print(
        f"{package}: {len(names)} of {tried} mutations went unnoticed ({percent:.1f} %), "
        f"in {time.monotonic() - began:.0f} s",
        flush=True,
    )
    return percent <= most_percent


def main(arguments: Sequence[str]) -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutation",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("package", nargs="*", help="a package of kubeletpy/; none: all of them")
    parser.add_argument("--jobs", type=int, default=1, help="mutations tried at a time")
    parser.add_argument("--most-percent", type=float, default=MOST_PERCENT)
    supplied = parser.parse_args(arguments)
    for package in supplied.package:
        if package not in packages():
            parser.error(f"{package} is not one of: {', '.join(packages())}")
    chosen = supplied.package or packages()
    try:
        results = [try_package(each, supplied.jobs, supplied.most_percent) for each in chosen]
    except CommandError as error:
        print(error, file=sys.stderr)
        return 1
    return 0 if all(results) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
