"""Debian packages without installing them: fetched and checked by apt, unpacked beside the system.

The archive's address is the one this machine's own apt is configured with; apt's key ring, proxy
and hash checks apply. The installed packages and apt's own state are never touched, except by
`install`, which is plain `apt-get install`.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tools.env.process import CommandError, run

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def cache_dir() -> Path:
    """Where downloads are kept: $KUBELETPY_CACHE or .cache/ of the checkout, without links.

    A virtual node mounts directories of it at the same paths, where a link would lead nowhere.
    """
    default = Path(__file__).resolve().parents[2] / ".cache"
    path = Path(os.environ.get("KUBELETPY_CACHE") or default)
    path.mkdir(parents=True, exist_ok=True)
    return path.resolve()


def unpacked(
    package: str, suite: str, cache: Path | None = None, *, architecture: str = ""
) -> Path:
    """The root of `package` of `suite` ("testing", "bookworm", …), fetched once and unpacked.

    It is for this machine's processor unless another one is named, as "arm64".

    Raises CommandError if the archive cannot be reached or does not have it.
    """
    name = f"{suite}-{architecture}" if architecture else suite
    home = (cache or cache_dir()) / "debian" / name
    root = home / package
    home.mkdir(parents=True, exist_ok=True)
    with locked(home / ".lock"):
        if not root.is_dir():
            archive = _download(package, suite, home, architecture)
            fresh = home / f".{package}.unpacking"
            shutil.rmtree(fresh, ignore_errors=True)
            run("dpkg-deb", "--extract", archive, fresh)
            archive.unlink()
            fresh.rename(root)
    return root


def missing(packages: Sequence[str]) -> list[str]:
    """Those of `packages` that are not installed."""
    return [name for name in packages if not _installed(name)]


def install(packages: Sequence[str]) -> list[str]:
    """Install what is missing of `packages`; returns that. Never removes or upgrades anything."""
    todo = missing(packages)
    if todo:
        options = ["--yes", "--no-install-recommends", "--no-upgrade", "--no-remove"]
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        try:
            run("apt-get", "install", *options, *todo, timeout=900, env=env)
        except CommandError:
            run("apt-get", "update", timeout=600)
            run("apt-get", "install", *options, *todo, timeout=900, env=env)
    return todo


def release() -> str:
    """The code name of the Debian release that runs here, such as "bookworm"."""
    for line in Path("/etc/os-release").read_text().splitlines():
        if line.startswith("VERSION_CODENAME="):
            return line.partition("=")[2].strip('"')
    raise CommandError("/etc/os-release names no release: Debian is needed")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a directory, or on a file that is made; waits for it."""
    mode = os.O_RDONLY if path.is_dir() else os.O_WRONLY | os.O_CREAT
    handle = os.open(path, mode | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _installed(package: str) -> bool:
    try:
        status = run("dpkg-query", "--show", "--showformat", "${db:Status-Status}", package)
    except CommandError:
        return False
    return status == "installed"


def _download(package: str, suite: str, home: Path, architecture: str) -> Path:
    """The .deb file of a package, by a private apt state with this suite only."""
    state = home / ".apt"
    for part in ("lists/partial", "cache/archives/partial"):
        (state / part).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    (state / "suite.sources").write_text(
        f"Types: deb\nURIs: {_archive()}\nSuites: {suite}\nComponents: main\nSigned-By: {KEYRING}\n"
    )
    options: dict[str, str | Path] = {
        "Dir::Etc::sourcelist": state / "suite.sources",
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": state / "lists",
        "Dir::State::status": state / "status",
        "Dir::Cache": state / "cache",
        "APT::Sandbox::User": "root",
    }
    if architecture:
        options |= {"APT::Architecture": architecture, "APT::Architectures": architecture}
    apt = ["apt-get", "--quiet", *(f"--option={name}={value}" for name, value in options.items())]
    for old in home.glob(f"{package}_*.deb"):
        old.unlink()
    try:
        run(*apt, "download", package, timeout=600, cwd=home)
    except CommandError:
        run(*apt, "update", timeout=600)
        run(*apt, "download", package, timeout=600, cwd=home)
    return next(home.glob(f"{package}_*.deb"))


def _archive() -> str:
    """The address of the Debian archive that this machine's apt uses for its own release."""
    try:
        rows = run(
            "apt-get", "indextargets", "--format", "$(IDENTIFIER) $(COMPONENT) $(RELEASE) $(SITE)"
        )
    except CommandError as error:
        raise CommandError(f"apt does not work here: {error}") from error
    desired = {release(), "stable", "oldstable"}
    for row in rows.splitlines():
        identifier, component, suite, site = row.split(" ", 3)
        if identifier == "Packages" and component == "main" and suite in desired:
            return site
    raise CommandError("apt's sources have no Debian archive with the component main")
