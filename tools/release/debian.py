"""The Debian package: the bundle's packages below /usr/lib/kubeletpy, and deploy's unit.

The dependencies are inside, so that neither pip nor a virtual environment is needed; it depends on
the Python that their extension modules were built for. dpkg manages every file but the bytecode,
which postinst writes and prerm removes.
"""

from __future__ import annotations

import gzip
import os
import shutil
import sys
from pathlib import Path

from kubeletpy.cli.deploy_files import PROGRAM
from tools.release.bundle import PYTHON, oldest_glibc
from tools.release.command import run

LIBRARY = "usr/lib/kubeletpy"
LAUNCHER = """\
#!/usr/bin/python3 -sP
import sys

sys.path.insert(0, "/{library}")
from {module} import main

sys.exit(main())
"""
PROGRAMS = {"kubeletpy": "kubeletpy.cli.main", "kubectl-why": "kubeletpy.cli.why"}
"""Program in /usr/bin -> module with its ``main``. ``kubelet`` would take the kubelet's place."""
CONTROL = """\
Package: kubeletpy
Version: {version}
Architecture: {architecture}
Maintainer: The kubeletpy maintainers
Installed-Size: {kilobytes}
Depends: python3 (>= {python}), python3 (<< {next_python}), libc6 (>= {glibc}), libstdc++6
Recommends: containerd | cri-o, iptables, mount
Section: admin
Priority: optional
Description: Kubernetes node agent in Python
 kubeletpy does the kubelet's job: it watches the pods bound to its node, runs
 them through a container runtime, and reports their status to the API server.
 .
 The package contains its Python dependencies and the embedded Kubernetes API
 of `kubeletpy up`. The service is not enabled before it is configured.
"""
COPYRIGHT = """\
kubeletpy is licensed under the Apache License, version 2.0:
/usr/share/common-licenses/Apache-2.0

The Python packages in /{library} have their own licenses, in the
folders NAME-VERSION.dist-info there.
"""
SCRIPTS = {
    "postinst": """\
#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
python3 -m compileall -q /{library} >/dev/null || true
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    # pods keep running while the agent is replaced
    [ -z "$2" ] || systemctl try-restart kubeletpy.service
fi
""",
    "prerm": """\
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl stop kubeletpy.service
fi
find /{library} -name __pycache__ -type d -prune -exec rm -rf {{}} +
""",
    "postrm": """\
#!/bin/sh
set -e
[ ! -d /run/systemd/system ] || systemctl daemon-reload
""",
}
SHARE = "share"
"""Folder of the commit with completions and manual pages, if there is one; goes below /usr."""


def write_package(source: Path, packages: Path, out: Path, number: str, epoch: int) -> Path:
    """Build the package from a commit's files and the bundle's packages; returns its path."""
    tree = out / ".deb"
    library = tree / LIBRARY
    shutil.copytree(packages, library)
    for name, module in PROGRAMS.items():
        text = LAUNCHER.format(library=LIBRARY, module=module)
        _write(tree / "usr" / "bin" / name, text, mode=0o755)
    unit = (source / "deploy" / "kubeletpy.service").read_text()
    _write(
        tree / "usr/lib/systemd/system/kubeletpy.service",
        unit.replace(PROGRAM, "/usr/bin/kubeletpy"),
    )
    documents = tree / "usr/share/doc/kubeletpy"
    _write(documents / "copyright", COPYRIGHT.format(library=LIBRARY))
    _compressed(documents / "changelog.gz", (source / "CHANGELOG.md").read_bytes())
    if (source / SHARE).is_dir():
        shutil.copytree(source / SHARE, tree / "usr" / "share", dirs_exist_ok=True)
        zsh = tree / "usr" / "share" / "zsh"
        (zsh / "site-functions").rename(zsh / "vendor-completions")  # Debian's folder for packages
    for page in (tree / "usr/share/man").glob("man*/*"):
        _compressed(page.with_name(page.name + ".gz"), page.read_bytes())
        page.unlink()

    full = f"{number}-1+cp{PYTHON.replace('.', '')}"
    architecture = run("dpkg", "--print-architecture", cwd=out).strip()
    control = CONTROL.format(
        version=full,
        architecture=architecture,
        kilobytes=sum(path.stat().st_size for path in tree.rglob("*") if path.is_file()) // 1024,
        python=PYTHON,
        next_python=f"3.{sys.version_info.minor + 1}",
        glibc=oldest_glibc(packages),
    )
    _write(tree / "DEBIAN" / "control", control)
    for name, text in SCRIPTS.items():
        _write(tree / "DEBIAN" / name, text.format(library=LIBRARY), mode=0o755)
    _settle(tree, epoch)
    package = out / f"kubeletpy_{full}_{architecture}.deb"
    # gzip: what xz writes depends on the number of processors
    run(
        *("dpkg-deb", "--root-owner-group", "-Zgzip", "--build", tree, package),
        cwd=out,
        env={"SOURCE_DATE_EPOCH": str(epoch)},
    )
    shutil.rmtree(tree)
    return package


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def _compressed(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content, mtime=0))


def _settle(tree: Path, epoch: int) -> None:
    """Set the same time and the usual modes on all files."""
    for path in (tree, *tree.rglob("*")):
        executable = path.is_dir() or path.stat().st_mode & 0o100
        path.chmod(0o755 if executable else 0o644)
        os.utime(path, (epoch, epoch))
