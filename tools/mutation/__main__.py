"""Sample mutations of the pure modules and run the unit tests of their package against each.

``python -m tools.mutation [--count 100] [--seed N] [--jobs 2] [--only PATH] [--list]``. Survivors
are printed as diffs; more than 5 of 100 that are not in ``equivalent.toml`` are a failure. A run
draws a seed and prints it. ``--only`` tries every mutation of one module or folder, or ``--count``
of them.

Everything happens in a copy of the tree, which goes when the run ends, however it ends. Tests write
where tests write: to a folder for temporary files, here one of their own.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import contextlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tools.mutation import trial
from tools.mutation.equivalent import Equivalents
from tools.mutation.modules import PACKAGE, package_of, pure_modules, tests_for
from tools.mutation.mutations import Mutation, mutations
from tools.mutation.package_trials import PackageTrials

ALLOWED = 0.05
"""Of the sample may survive."""
COPIED = ("docs", "kubeletpy", "tests", "tools", "up", "pyproject.toml", "README.md", "test.sh")
SHOWN = 8000
"""Characters of the end of a log."""
_ENCLOSED = "KUBELETPY_MUTATION_DIR"


class RedPackageError(Exception):
    """A package's tests fail as they are, so that they can't tell anything about a mutation."""


def main() -> int:
    """0 when few enough survive."""
    arguments = _arguments()
    directory = os.environ.get(_ENCLOSED)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if directory is None:
        return _enclose(Path(__file__).parents[2])
    os.chdir(Path(directory) / "tree")
    return _run(arguments, Path.cwd())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description=__doc__)
    parser.add_argument(
        "--count", type=int, help="how many mutations to try (100; all with --only)"
    )
    parser.add_argument("--seed", type=int, help="of the sample (drawn and printed)")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once")
    parser.add_argument("--only", metavar="PATH", help="all mutations of this module or folder")
    parser.add_argument("--list", action="store_true", help="print the sample, run nothing")
    return parser.parse_args()


def _enclose(tree: Path) -> int:
    """Run the program once more, on a copy, where only the copy's folder can be written."""
    with tempfile.TemporaryDirectory(prefix="kpm-") as name:
        directory = Path(name)
        for each in COPIED:
            source = tree / each
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source, directory / "tree" / each, ignore=ignored)
            else:
                shutil.copy(source, directory / "tree" / each)
        (directory / "t").mkdir()
        copy = directory / "tree"
        environment = os.environ | {
            _ENCLOSED: name,
            "TMPDIR": str(directory / "t"),
            "PYTHONPATH": f"{copy}{os.pathsep}{copy / 'up'}",
        }
        command = [sys.executable, "-m", "tools.mutation", *sys.argv[1:]]
        with subprocess.Popen(
            command, cwd=copy, env=environment, start_new_session=True
        ) as process:
            try:
                return process.wait()
            finally:
                # a run that is asked to end does not wait for the packages that are being tried
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def _run(arguments: argparse.Namespace, tree: Path) -> int:
    sources = {path: (tree / path).read_text() for path in pure_modules(tree)}
    everything = [m for path, source in sources.items() for m in mutations(path, source)]
    equivalents = Equivalents.read(tree / "tools" / "mutation" / "equivalent.toml")
    if stale := equivalents.unknown(everything, sources):
        print("equivalent.toml names mutations that there are not:", *stale, sep="\n  ")
        return 1
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(10**6)
    candidates = [m for m in everything if m.path.startswith(arguments.only or PACKAGE)]
    count = arguments.count or (len(candidates) if arguments.only else 100)
    sample = random.Random(seed).sample(candidates, min(count, len(candidates)))
    modules = len({m.path for m in candidates})
    print(f"{len(sample)} of {len(candidates)} mutations of {modules} modules, --seed {seed}")
    sample = [m for m in sample if not equivalents.has(m, sources[m.path])]
    sample.sort(key=lambda m: (m.path, m.start))
    if arguments.list:
        for mutation in sample:
            print(mutation.diff(sources[mutation.path]))
        return 0
    begin = time.monotonic()
    survivors: list[Mutation] = []
    untried: list[str] = []
    trial.preload()
    packages: dict[str, list[Mutation]] = collections.defaultdict(list)
    for mutation in sample:
        packages[package_of(mutation.path)].append(mutation)
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(arguments.jobs, mp_context=context) as pool:
        tried = {
            pool.submit(_survivors_of_package, package, found, sources, tree): package
            for package, found in packages.items()
        }
        for done in concurrent.futures.as_completed(tried):
            package = tried[done]
            try:
                found = done.result()
            except RedPackageError as error:
                untried.append(package)
                print(f"{package}: {error}", flush=True)
                continue
            survivors += found
            print(f"{package}: {len(found)} of {len(packages[package])} survive", flush=True)
            for mutation in found:
                print(f"\n{mutation.path}:{mutation.line} {mutation.function}")
                print(mutation.diff(sources[mutation.path]) + "\n", flush=True)
    seconds = time.monotonic() - begin
    total = sum(len(found) for package, found in packages.items() if package not in untried)
    print(f"{len(survivors)} of {total} survive ({seconds:.0f} s)")
    if untried:
        print(f"{len(sample) - total} were not tried, in {', '.join(sorted(untried))}")
    return int(bool(untried) or len(survivors) > ALLOWED * len(sample))


def _survivors_of_package(
    package: str, sample: list[Mutation], sources: dict[str, str], tree: Path
) -> list[Mutation]:
    """Those of one package that no test notices.

    Raises RedPackageError when more than a few of its tests are red without a mutation."""
    log = tree.parent / "t" / f"log-{package}"
    tests = {m.path: tests_for(m.path, tree, sources) for m in sample}
    killed, left_out = _killed_in_place(package, PackageTrials(sample, sources, tests), log)
    return [
        mutation
        for mutation, done in zip(sample, killed, strict=True)
        if not done
        and _survives(mutation, sources[mutation.path], tests[mutation.path], left_out, tree)
    ]


def _killed_in_place(name: str, package: PackageTrials, log: Path) -> tuple[list[bool], list[str]]:
    """For each mutation whether a test noticed it, and the tests that can't tell."""
    tests = sorted({test for each in package.tests.values() for test in each})
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            trial.redirect(log)
            pytest.main([*trial.ARGUMENTS, *tests], plugins=[package])
            said = [package.clean, package.killed, package.red, package.left_out]
            os.write(writer, json.dumps(said).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    clean, killed, red, left_out = json.loads(text or "[false, [], [], []]")
    if not clean or len(killed) != len(package.mutations):
        shown = log.read_text(errors="replace")[-SHOWN:]
        raise RedPackageError(f"its tests are red or end without a mutation:\n{shown}")
    if red:
        print(f"{name}: left out, red without a mutation: {', '.join(red)}", flush=True)
    return list(killed), list(left_out)


def _survives(
    mutation: Mutation, source: str, tests: list[str], left_out: list[str], tree: Path
) -> bool:
    """No test notices it when the mutated module is loaded from scratch, too."""
    module = trial.module_of(mutation.path)
    finder = trial.Mutated(tree / mutation.path, module, mutation.apply(source))
    return trial.passes(tests, left_out, finder, tree.parent / "t" / f"log-{os.getpid()}")


if __name__ == "__main__":
    sys.exit(main())
