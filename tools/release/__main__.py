"""Build the files of a release: ``python -m tools.release --out dist`` (docs/releasing.md).

Builds the commit, never the checkout's files: source distributions, wheels, a zipapp, a Debian
package, an SBOM and SHA256SUMS. ``--check`` builds everything twice, in directories with different
names, and compares the bytes. ``--try`` installs what was built in each way of docs/installing.md.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import tempfile
from pathlib import Path

from tools.release import bundle, debian, sources, trials
from tools.release.command import ReleaseError, run

SUMS = "SHA256SUMS"


def build(commit: str, out: Path) -> None:
    """Build everything into an empty directory. Raises ReleaseError."""
    epoch = sources.commit_time(commit)
    with tempfile.TemporaryDirectory(prefix="kubeletpy-release-") as name:
        source, environment = Path(name) / "source", Path(name) / "environment"
        sources.export(commit, source)
        number = sources.version(source)
        sources.build_distributions(source, out, epoch)
        lock = source / "requirements" / "run.txt"
        packages = bundle.install(sorted(out.glob("*.whl")), lock, environment)
        bundle.write_zipapp(packages, out / f"kubeletpy-{number}-{bundle.TAG}.pyz", epoch)
        sbom = out / f"kubeletpy-{number}-{bundle.TAG}.cdx.json"
        bundle.write_sbom(environment, source / "pyproject.toml", sbom, epoch)
        debian.write_package(source, packages, out, number, epoch)
    (out / SUMS).write_text(checksums(out))


def checksums(directory: Path) -> str:
    """The files of a directory in the form of sha256sum."""
    paths = sorted(path for path in directory.iterdir() if path.name != SUMS)
    lines = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in paths)
    return "".join(lines)


def differences(first: Path, second: Path) -> list[str]:
    """Names of files that are not the same in two directories."""
    left, right = (set((each / SUMS).read_text().splitlines()) for each in (first, second))
    return sorted({line.split()[1] for line in left ^ right})


def main() -> int:
    """Run a command line; returns the exit code: 1 when a step failed or two builds differ."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    parser.add_argument("commit", nargs="?", default="HEAD", help="the commit to build (HEAD)")
    parser.add_argument(
        "--out", type=Path, default=Path("dist"), help="empty or new directory (dist)"
    )
    parser.add_argument("--check", action="store_true", help="build twice and compare")
    parser.add_argument(
        "--try", action="store_true", dest="attempt", help="install in each way, as root"
    )
    supplied = parser.parse_args()
    out: Path = supplied.out.absolute()
    os.umask(0o022)
    try:
        commit = run(
            "git", "rev-parse", f"{supplied.commit}^{{commit}}", cwd=sources.CHECKOUT
        ).strip()
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise ReleaseError(f"{out} is not empty")
        build(commit, out)
        if supplied.check:
            with tempfile.TemporaryDirectory(prefix="again-") as again:
                build(commit, Path(again))
                if found := differences(out, Path(again)):
                    raise ReleaseError(f"a second build differs in {', '.join(found)}")
            print("built twice with the same bytes")
        if supplied.attempt:
            with tempfile.TemporaryDirectory(prefix="trials-") as name:
                sources.export(commit, Path(name) / "source")
                trials.try_all(Path(name) / "source", out, Path(name))
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print((out / SUMS).read_text(), end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
