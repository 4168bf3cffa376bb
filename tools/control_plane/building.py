"""Builds the programs of a control plane from the Go module k8s.io/kubernetes, once for a version.

The Go module proxy has the source. The staging modules of the release have a replacement each,
because the module's own go.mod points them into its source tree.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from tools.env.debian import cache_dir, locked
from tools.env.process import run

MODULE = "k8s.io/kubernetes"
PROGRAMS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
BUILD_S = 3600.0
"""For one program: the first takes minutes from an empty build cache, on a busy machine many."""
_STAGING = re.compile(r"^\s*(?:replace\s+)?(k8s\.io/[a-z0-9-]+) => \./staging/", re.MULTILINE)


def programs(version: str, wanted: Sequence[str] = PROGRAMS) -> Path:
    """The directory of the programs of a release ("1.37.2"); builds those that are missing.

    Raises CommandError: Go is not installed, the proxy does not have the release, or it does not
    build.
    """
    home = cache_dir() / "control-plane" / version
    home.mkdir(parents=True, exist_ok=True)
    with locked(home / ".lock"):
        for name in wanted:
            if not (home / name).is_file():
                _build(version, name, home)
    return home


def _build(version: str, name: str, home: Path) -> None:
    source = home / "source"
    if not (source / "go.sum").is_file():
        _prepare(version, source, os.environ | {"GOFLAGS": "-mod=mod"})
    fresh = home / f".{name}"
    run(
        "go",
        "build",
        "-o",
        fresh,
        "-ldflags",
        linker_flags(version),
        f"{MODULE}/cmd/{name}",
        timeout=BUILD_S,
        cwd=source,
        env=os.environ | {"CGO_ENABLED": "0"},
    )
    fresh.rename(home / name)


def _prepare(version: str, source: Path, env: dict[str, str]) -> None:
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir()
    found = json.loads(
        run("go", "mod", "download", "-json", f"{MODULE}@v{version}", timeout=600, env=env)
    )
    (source / "go.mod").write_text(go_module(version, Path(found["GoMod"]).read_text()))
    imports = "".join(f'\t_ "{MODULE}/cmd/{name}"\n' for name in PROGRAMS)
    (source / "programs.go").write_text(
        f"//go:build tools\n\npackage controlplane\n\nimport (\n{imports})\n"
    )
    run("go", "mod", "tidy", timeout=600, cwd=source, env=env)


def go_module(version: str, of_kubernetes: str) -> str:
    """The go.mod of a module that builds a release; ``of_kubernetes`` is the release's own."""
    language = re.search(r"^go (\S+)$", of_kubernetes, re.MULTILINE)
    assert language is not None, "every go.mod names its language version"
    staging = f"v0.{version.partition('.')[2]}"
    lines = [
        "module kubeletpy.local/controlplane",
        f"go {language[1]}",
        f"require {MODULE} v{version}",
        *(
            f"replace {each} => {each} {staging}"
            for each in sorted(set(_STAGING.findall(of_kubernetes)))
        ),
    ]
    return "\n".join(lines) + "\n"


def linker_flags(version: str) -> str:
    """What makes a program report its release."""
    major, minor, _ = version.split(".")
    package = "k8s.io/component-base/version"
    values = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    return " ".join(["-s -w", *(f"-X {package}.{name}={value}" for name, value in values.items())])
