"""Fuzz targets with libFuzzer and the coverage of Python code (atheris), each in its own process.

``python -m tests.fuzz [--seconds 60] [--jobs 2] [--keep] [TARGET …]`` runs every target for that
many seconds. Inputs of finds are written below build/fuzz and printed; the exit code is then 1.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import io
import os
import re
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import atheris

from tests.fuzz.corpus import keep, kept
from tests.fuzz.target import MAX_LEN, TARGETS, Target

FINDS = Path("build/fuzz")
HANG_S = 30
MEMORY_MIB = 2048


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="duration of each target")
    parser.add_argument("--jobs", type=int, default=2, help="targets in parallel")
    parser.add_argument("--keep", action="store_true", help="put new inputs into the corpus")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="targets to run (all)")
    options = parser.parse_args()
    with (
        contextlib.redirect_stderr(io.StringIO()),  # it names each module
        atheris.instrument_imports(include=["kubeletpy", "kubeletpy_up"]),
    ):
        importlib.import_module("tests.fuzz.subjects")
    unknown = [name for name in options.targets if name not in TARGETS]
    if unknown or options.seconds < 1:
        parser.error(f"no such target: {unknown[0]}" if unknown else "--seconds takes 1 or more")
    FINDS.mkdir(parents=True, exist_ok=True)
    chosen = [TARGETS[name] for name in options.targets] or list(TARGETS.values())
    waiting = list(chosen)
    running: dict[int, Target] = {}
    bad: list[str] = []
    while waiting or running:
        while waiting and len(running) < options.jobs:
            target = waiting.pop(0)
            running[_fork(partial(_fuzz, target, options.seconds, options.keep))] = target
        child, status = os.wait()
        if (ended := running.pop(child, None)) is not None and status:
            bad.append(ended.name)
    print(f"{len(chosen)} targets, {options.seconds} s each; finds: {', '.join(bad) or 'none'}")
    sys.exit(bool(bad))


def _fork(work: Callable[[], int]) -> int:
    """Fork a process that exits with the result of a function, and return its pid.

    Code stays instrumented in it.
    """
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        code = work()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _fuzz(target: Target, seconds: int, is_kept: bool) -> int:
    """Fuzz a target; returns 1 if something was found."""
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(name) / "corpus"
        folder.mkdir()
        for number, one in enumerate(kept(target)):
            (folder / f"kept-{number}").write_bytes(one)
        parts = Path(name) / "words"
        parts.write_text("".join(f'"{_escaped(word)}"\n' for word in target.parts or (b"0",)))
        code, stated = _run(
            target,
            Path(name) / "said",
            f"-max_total_time={seconds}",
            f"-artifact_prefix={FINDS}/{target.name}-",
            f"-dict={parts}",
            str(folder),
        )
        runs = re.search(r"number_of_executed_units: (\d+)", stated)
        covered = re.findall(r"cov: (\d+)", stated) or ["0"]
        print(
            f"{target.name:24} {'FIND' if code else 'ok':5}"
            f"{runs[1] if runs else '?':>9} inputs, {covered[-1]:>5} places reached",
            flush=True,
        )
        if code:
            print("\n".join(stated.splitlines()[-40:]), flush=True)
        elif is_kept:
            # libFuzzer adds what reaches something new, and replaces it by what is smaller
            keep(target, [each.read_bytes() for each in folder.iterdir()])
        return int(bool(code))


def _run(target: Target, stated: Path, *arguments: str) -> tuple[int, str]:
    """Run libFuzzer, which ends its process; returns its exit code and its output."""

    def run() -> int:
        with stated.open("wb") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        limits = (f"-max_len={MAX_LEN}", f"-timeout={HANG_S}", f"-rss_limit_mb={MEMORY_MIB}")
        own = [sys.argv[0], *limits, "-print_final_stats=1", *arguments]
        atheris.Setup(own, partial(_tried, target))
        atheris.Fuzz()
        return 0

    child = _fork(run)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), stated.read_text(errors="replace")


def _tried(target: Target, data: bytes) -> None:
    """Keep the input of a find: libFuzzer's own way to do so is for the end of its process."""
    try:
        target(data)
    except BaseException:
        (FINDS / f"{target.name}-{hashlib.sha1(data).hexdigest()}").write_bytes(data)
        raise


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    main()
