"""Shows the differences between two Kubernetes versions as rows ready for the fact tables.

    python -m tools.version_diff 1.36.3 1.37.2
    python -m tools.version_diff 1.37.2 1.38.0 --write    # enters them into the tables

Each row is CSV: the subject, its name, its value in the old version, its value in the new one. An
empty value means that the version does not have it. Modules come from ``go mod download``.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from tools.rulebook import tables as rulebook
from tools.version_diff import tables
from tools.version_diff.gates import differences, gates
from tools.version_diff.members import go_members, proto_members
from tools.version_diff.metrics import flags, metrics
from tools.version_diff.tables import Difference

GATES = (
    ("kubernetes", "pkg/features/kube_features.go"),
    ("component-base", "logs/api/v1/kube_features.go"),
    ("component-base", "metrics/features/kube_features.go"),
    ("client-go", "features/known_features.go"),
)
"""Where gates are registered that a kubelet accepts."""
PROTOS = (("cri-api", ""), ("kubelet", ""))
METRICS = (
    ("kubernetes", "pkg/kubelet"),
    ("kubernetes", "pkg/volume"),
    ("kubernetes", "pkg/credentialprovider"),
    ("component-base", "metrics/prometheus"),
    ("apiserver", "pkg/authentication"),
    ("apiserver", "pkg/authorization"),
    ("client-go", "util"),
)
"""Where metrics of a kubelet are registered."""
FLAGS = ("kubernetes", "cmd/kubelet/app/options")
CONFIGURATION = ("kubelet", "config/v1beta1/types.go")


def _go(*arguments: str) -> str:
    done = subprocess.run(["go", *arguments], capture_output=True, text=True, check=False, cwd="/")
    return done.stdout


class Sources:
    """The Go modules of one version."""

    def __init__(self, version: str) -> None:
        self.version = version
        self.minor = int(version.split(".")[1])
        self._folders: dict[str, Path] = {}

    def folder(self, module: str) -> Path:
        """The module's directory in the cache, downloaded when it is not there."""
        if module not in self._folders:
            number = self.version if module == "kubernetes" else f"0{self.version[1:]}"
            name = f"k8s.io/{module}@v{number}"
            # Go refuses a module that needs a newer Go, but its files are in the cache then.
            answer = _go("mod", "download", "-json", name)
            folder = Path(_go("env", "GOMODCACHE").strip()) / name
            if not folder.is_dir():
                sys.exit(f"{name} is not in the cache: {json.loads(answer).get('Error')}")
            self._folders[module] = folder
        return self._folders[module]

    def gates(self) -> dict[str, str]:
        paths = (self.folder(module) / name for module, name in GATES)
        return gates((path.read_text() for path in paths if path.exists()), self.minor)

    def protos(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for module, below in PROTOS:
            folder = self.folder(module)
            for path in sorted((folder / below).rglob("*.proto")):
                at = path.relative_to(folder).parent
                members = proto_members(path.read_text())
                found |= {f"{module}/{at} {name}": kind for name, kind in members.items()}
        return found

    def metrics(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for module, below in METRICS:
            for folder in sorted({file.parent for file in self._go_files(module, below)}):
                texts = (file.read_text() for file in self._go_files(module, folder, "*.go"))
                found |= metrics(texts)
        return found

    def flags(self) -> dict[str, str]:
        return flags(file.read_text() for file in self._go_files(*FLAGS))

    def _go_files(self, module: str, below: str | Path, pattern: str = "**/*.go") -> list[Path]:
        found = sorted((self.folder(module) / below).glob(pattern))
        return [file for file in found if not file.name.endswith("_test.go")]

    def gates_read(self) -> frozenset[str]:
        """The gates that the sources of the kubelet name."""
        files = [*self._go_files("kubernetes", "pkg/kubelet"), *self._go_files(*FLAGS)]
        named = (re.findall(r"\bfeatures\.([A-Z]\w+)", file.read_text()) for file in files)
        return frozenset(name for names in named for name in names)

    def configuration(self) -> dict[str, str]:
        module, name = CONFIGURATION
        return go_members((self.folder(module) / name).read_text())


def main(arguments: list[str] | None = None) -> int:
    """Entry point; see the module docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", help="a release, such as 1.36.3")
    parser.add_argument("new", help="a release, such as 1.37.2")
    parser.add_argument("--write", action="store_true", help="enter the rows into the tables")
    supplied = parser.parse_args(arguments)
    old, new = Sources(supplied.old), Sources(supplied.new)
    rows = csv.writer(sys.stdout, lineterminator="\n")
    rows.writerow(("about", "name", supplied.old, supplied.new))
    found = {}
    for about in ("gates", "configuration", "flags", "metrics", "protos"):
        found[about] = differences(getattr(old, about)(), getattr(new, about)())
        rows.writerows((about, *row) for row in found[about])
    if supplied.write:
        prerelease = supplied.new.partition("-")[2]
        column = f"1.{new.minor}-{prerelease}".removesuffix("-")
        write(f"1.{old.minor}", column, found, new.gates_read())
    return 0


def write(
    old: str, new: str, found: Mapping[str, Sequence[Difference]], read: Collection[str]
) -> None:
    """Enter differences into the fact tables."""
    change: dict[str, Callable[[tables.Rows], tables.Rows]] = {
        "features.csv": lambda rows: tables.with_gates(rows, old, new, found["gates"], read),
        "versions.csv": lambda rows: tables.with_column(rows, old, new),
        "declared-features.csv": lambda rows: tables.with_column(rows, old, new),
        "config.csv": lambda rows: tables.with_fields(rows, new, found["configuration"]),
        "flags.csv": lambda rows: tables.with_flags(rows, old, new, found["flags"]),
        "metrics.csv": lambda rows: tables.with_metrics(rows, old, new, found["metrics"]),
    }
    for name, changed in change.items():
        before = [{key: cell or "" for key, cell in row.items()} for row in rulebook.rows(name)]
        after = changed(before)
        with (rulebook.REFERENCE / name).open("w", newline="") as file:
            writer = csv.DictWriter(file, list(after[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(after)


if __name__ == "__main__":
    sys.exit(main())
