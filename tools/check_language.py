"""Check prose with vale: no package may have more finds of a rule than tools/language_baseline.csv.

python tools/check_language.py               # exits 1 where a package has more of them than before
python tools/check_language.py PART …        # prints each find of a package, a folder or a file
python tools/check_language.py --write       # lowers the baseline to what is there now

`.vale.ini` and `tools/vale/styles` have the rules. Pages, the README, comments, docstrings and
messages of all modules are read, those of tests and tools included; code in backticks is not. vale
is built from the Go modules that `tools/vale/go.sum` pins, into `.cache/vale/VERSION`. On a machine
without a fitting Go the check is not made, which is an error only in CI. A build or a check that
fails or takes too long is always an error. All files take 13 s of CPU, one page takes a second.
"""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tools.control_plane.building import fits
from tools.env.debian import cache_dir, locked
from tools.env.process import CommandError, run

ROOT = Path(__file__).resolve().parent.parent
BASELINE = Path("tools/language_baseline.csv")
SAMPLE = Path("tools/vale/sample.py")
"""Exactly these finds have to be made."""
_MODULE = ROOT / "tools" / "vale"
_BUILD_S = 1800.0
"""For an empty build cache on a busy machine; alone on two processors it takes some 90 s."""
_ENV = {
    "CGO_ENABLED": "1",  # vale's parsers of programming languages are C
    "CGO_CFLAGS": "-O0",
    "GOFLAGS": "-mod=readonly",
    "GOGC": "400",
    "GOTOOLCHAIN": "local",
}
_CHECK_S = 300.0
"""For all files on a busy machine: at a load of 9 on two processors it takes 40 s."""
Count = Mapping[tuple[str, str], int]
"""Finds, by package and rule."""


class CannotBuild(CommandError):
    """The machine lacks a program that vale is built with."""


def vale() -> Path:
    """The program, which is built once. Raises CommandError."""
    module = (_MODULE / "go.mod").read_text(encoding="utf-8")
    version = re.search(r"^require (github\.com/vale-cli/vale/v3) v(\S+)$", module, re.MULTILINE)
    language = re.search(r"^go (\S+)$", module, re.MULTILINE)
    assert version is not None and language is not None, "tools/vale/go.mod names both"
    home = cache_dir() / "vale" / version[2]
    home.mkdir(parents=True, exist_ok=True)
    with locked(home / ".lock"):
        if not (home / "vale").is_file():
            for program in ("go", "gcc"):
                if shutil.which(program) is None:
                    raise CannotBuild(f"{program} is not installed")
            env = {**os.environ, **_ENV}
            if not fits(found := run("go", "env", "GOVERSION", env=env).strip(), language[1]):
                raise CannotBuild(f"vale needs Go {language[1]}, and this machine has {found}")
            print(f"building vale {version[2]}, which takes some minutes", file=sys.stderr)
            began, fresh = time.monotonic(), home / "fresh"
            flags = ("-trimpath", "-ldflags=-s -w", "-gcflags=all=-l", "-o", fresh)
            command = f"{version[1]}/cmd/vale"
            run("go", "build", *flags, command, timeout=_BUILD_S, cwd=_MODULE, env=env)
            fresh.rename(home / "vale")
            print(f"built it in {time.monotonic() - began:.0f} s", file=sys.stderr)
    return home / "vale"


def files() -> list[Path]:
    """The files that are checked, relative to the repository."""
    pages = {ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "up/README.md"}
    pages |= {*ROOT.glob("docs/*.md"), *ROOT.glob("docs/runbooks/*.md")}
    modules = {
        each
        for folder in ("bench", "examples", "kubeletpy", "tests", "tools", "up")
        for each in (ROOT / folder).rglob("*.py")
        if not {"generated", "build"} & set(each.parts)
    }
    return sorted(each.relative_to(ROOT) for each in pages | modules)


def package(path: Path) -> str:
    """The package that a file counts for: docs, or a folder of modules such as kubeletpy/pods."""
    if path.suffix == ".md":
        return "docs"
    return "/".join(path.parts[:2]) if len(path.parts) > 2 else path.parts[0]


def chosen(parts: Sequence[str]) -> list[Path]:
    """The files of packages, folders and files; of all if none is named.

    Raises LookupError: a name has no file.
    """
    every, found = files(), set[Path]()
    for part in parts:
        here = {path for path in every if package(path) == part or path.is_relative_to(part)}
        if not here:
            raise LookupError(f"no package or file has the name {part}")
        found |= here
    return sorted(found) or every


def problems(counts: Count, baseline: Count) -> list[str]:
    """A line for each package and rule with more finds than before."""
    found = [
        f"{name}: {count} finds of the rule {rule}, {baseline.get((name, rule), 0)} before: "
        f"run python tools/check_language.py {name}"
        for (name, rule), count in counts.items()
        if count > baseline.get((name, rule), 0)
    ]
    for (name, rule), count in baseline.items():
        if name == package(SAMPLE) and counts.get((name, rule), 0) < count:
            found.append(f"{SAMPLE}: vale does not make each of the {count} finds of {rule}")
    return found


def lowered(counts: Count, baseline: Count) -> str:
    """The text of the new baseline; only a rule that it did not have may get more than before."""
    known = {rule for _, rule in baseline}
    rows = [
        f"{name},{rule},{min(count, baseline.get((name, rule), 0)) if rule in known else count}"
        for (name, rule), count in sorted(counts.items())
        if rule not in known or (name, rule) in baseline
    ]
    return "\n".join(["package,rule,finds", *rows, ""])


def main(arguments: Sequence[str]) -> int:
    """Entry point."""
    parts = [each for each in arguments if each != "--write"]
    try:
        paths = chosen(parts)
    except LookupError as error:
        print(error, file=sys.stderr)
        return 2
    try:
        program = vale()
        with suppress(PermissionError):  # only the build may wait for idle processors
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        options = ("--no-global", "--no-exit", "--output=JSON")
        answer = run(program, *options, *paths, timeout=_CHECK_S, cwd=ROOT)
    except CommandError as error:
        excused = isinstance(error, CannotBuild) and not os.environ.get("CI")
        print(f"prose is not checked: {error}", file=sys.stdout if excused else sys.stderr)
        return 0 if excused else 1
    found = [(Path(name), each) for name, alerts in json.loads(answer).items() for each in alerts]
    for path, each in found if parts else ():
        print(f"{path}:{each['Line']}: {each['Message']}")
    if parts:
        return 1 if found else 0
    counts = Counter(
        (package(path), each["Check"].removeprefix("kubeletpy.")) for path, each in found
    )
    with (ROOT / BASELINE).open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        baseline = {(row["package"], row["rule"]): int(row["finds"]) for row in rows}
    if arguments:
        (ROOT / BASELINE).write_text(lowered(counts, baseline), encoding="utf-8")
        return 0
    more = problems(counts, baseline)
    for problem in more:
        print(problem, file=sys.stderr)
    return 1 if more else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
