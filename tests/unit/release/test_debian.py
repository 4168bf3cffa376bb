"""The Debian package: dpkg's own tools read it, and its launcher runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools.release.bundle import PYTHON
from tools.release.debian import LIBRARY, write_package

ROOT = Path(__file__).resolve().parents[3]
EPOCH = 1_800_000_000


def _package(directory: Path) -> Path:
    """A package of this checkout's deploy/, with a program that prints its arguments."""
    source, packages = directory / "source", directory / "packages"
    for name in ("deploy/kubeletpy.service", "CHANGELOG.md"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((ROOT / name).read_bytes())
    for name in ("man/man1/kubeletpy.1", "zsh/site-functions/_kubeletpy"):
        (source / "share" / name).parent.mkdir(parents=True, exist_ok=True)
        (source / "share" / name).write_text(name)
    (packages / "kubeletpy" / "cli").mkdir(parents=True)
    for name in ("__init__.py", "cli/__init__.py"):
        (packages / "kubeletpy" / name).touch()
    (packages / "kubeletpy" / "cli" / "main.py").write_text(
        "import sys\ndef main():\n    print(sys.argv[1:], sys.path[0])\n    return 3\n"
    )
    (directory / "out").mkdir()
    return write_package(source, packages, directory / "out", "0.1.0", EPOCH)


def _output(*command: str | Path) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_it_holds_the_program_its_unit_and_its_pages(tmp_path: Path) -> None:
    package, root = _package(tmp_path), tmp_path / "root"
    assert "+cp" in package.name
    _output("dpkg-deb", "--extract", package, root)
    found = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    assert found == {
        f"{LIBRARY}/kubeletpy/__init__.py",
        f"{LIBRARY}/kubeletpy/cli/__init__.py",
        f"{LIBRARY}/kubeletpy/cli/main.py",
        "usr/bin/kubectl-why",
        "usr/bin/kubeletpy",
        "usr/lib/systemd/system/kubeletpy.service",
        "usr/share/doc/kubeletpy/changelog.gz",
        "usr/share/doc/kubeletpy/copyright",
        "usr/share/man/man1/kubeletpy.1.gz",
        "usr/share/zsh/vendor-completions/_kubeletpy",
    }
    unit = (root / "usr/lib/systemd/system/kubeletpy.service").read_text()
    assert "ExecStart=/usr/bin/kubeletpy run " in unit
    depends = _output("dpkg-deb", "--field", package, "Depends")
    assert f"python3 (>= {PYTHON}), python3 (<< 3." in depends


def test_scripts_are_valid_shell(tmp_path: Path) -> None:
    package, control = _package(tmp_path), tmp_path / "control"
    _output("dpkg-deb", "--control", package, control)
    scripts = sorted(path.name for path in control.iterdir() if path.name != "control")
    assert scripts == ["postinst", "postrm", "prerm"]
    for name in scripts:
        _output("sh", "-n", control / name)


def test_the_launcher_imports_from_the_packages_folder(tmp_path: Path) -> None:
    package, root = _package(tmp_path), tmp_path / "root"
    _output("dpkg-deb", "--extract", package, root)
    launcher = root / "usr" / "bin" / "kubeletpy"
    assert launcher.read_text().startswith("#!/usr/bin/python3 -sP\n")
    moved = launcher.read_text().replace(f"/{LIBRARY}", str(root / LIBRARY))
    done = subprocess.run(
        [sys.executable, "-sP", "-c", moved, "run", "-v"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, f"['run', '-v'] {root / LIBRARY}\n")


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "another-name").mkdir()
    first, second = _package(tmp_path / "first"), _package(tmp_path / "another-name")
    assert first.read_bytes() == second.read_bytes()
