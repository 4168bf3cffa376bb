"""Facts about a machine and its login user, found by trials, and the programs of a node.

Programs that are not installed are fetched by apt, which needs no root for that, and unpacked into
the user's cache. Blocking.
"""

from __future__ import annotations

import errno
import json
import os
import platform
import pwd
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from kubeletpy.agent.rootless import images, namespaces, possible
from kubeletpy.base.structs import Struct, replace
from kubeletpy.volumes.files.disk import MS_REC, mount, unmount

SCOPE = (
    *("systemd-run", "--user", "--scope", "--quiet", "--collect"),
    *("--property=Delegate=yes", "--"),
)
"""Starts a command in a cgroup that is delegated to the user."""
CGROUPS = Path("/sys/fs/cgroup")
_SYSTEM = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_PLUGINS = ("/usr/lib/cni", "/opt/cni/bin")
PACKAGES: Mapping[str, str] = {
    "containerd": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "bridge": "containernetworking-plugins",
    "iptables": "iptables",
    possible.NetworkKind.PASTA: "passt",
    "busybox": "busybox-static",
}
"""Program -> the Debian package that has it."""
_OPTIONAL = ("newuidmap", "newgidmap", "crun", possible.NetworkKind.SLIRP, *possible.MASQUERADING)
_APT_S = 300
_TRIAL_S = 30
_MS_PRIVATE = 1 << 18


class Directories(Struct, frozen=True):
    """Where a login user has programs and state.

    Attributes:
        state: of the node, removed by ``kubeletpy down``.
        cache: of fetched programs, which stays.
    """

    state: Path
    cache: Path


def default_directories(environment: Mapping[str, str]) -> Directories:
    """The directories of the XDG base directory specification."""
    home = Path(environment.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir)
    data = Path(environment.get("XDG_DATA_HOME") or home / ".local" / "share")
    cache = Path(environment.get("XDG_CACHE_HOME") or home / ".cache")
    return Directories(data / "kubeletpy", cache / "kubeletpy" / "programs")


def environment_of(cache: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of programs that may be fetched ones; what is installed comes first."""
    library = f"{platform.machine()}-linux-gnu"
    own = [str(cache / path.lstrip("/")) for path in (*_SYSTEM, *_PLUGINS)]
    path = [*environment.get("PATH", "").split(os.pathsep), *_SYSTEM, *_PLUGINS, *own]
    made = {**environment, "PATH": os.pathsep.join(dict.fromkeys(filter(None, path)))}
    for name in ("NOTIFY_SOCKET", "XDG_RUNTIME_DIR"):
        made.pop(name, None)
    if cache.is_dir():
        libraries = [str(cache / folder / library) for folder in ("usr/lib", "lib")]
        made["LD_LIBRARY_PATH"] = os.pathsep.join(libraries)
        if (modules := cache / "usr/lib" / library / "xtables").is_dir():
            made["XTABLES_LIBDIR"] = str(modules)
    return made


def find_programs(environment: Mapping[str, str]) -> dict[str, str]:
    """Name -> path of the programs of a node that are here."""
    names = (*PACKAGES, *_OPTIONAL)
    found = {name: shutil.which(name, path=environment["PATH"]) for name in names}
    present = {name: path for name, path in found.items() if path is not None}
    if "busybox" in present and not images.is_static(Path(present["busybox"])):
        del present["busybox"]
    return present


def fetch(packages: Sequence[str], cache: Path) -> str:
    """Fetch Debian packages, with those that they need and that are not installed, and unpack them.

    Returns why that failed, or an empty text.
    """
    apt, archives = shutil.which("apt-get"), cache.with_name("archives")
    if apt is None or shutil.which("dpkg-deb") is None:
        return "there is no apt-get here"
    try:
        archives.mkdir(parents=True, exist_ok=True)
        planned = _output([apt, "--simulate", "--no-install-recommends", "install", *packages])
        names = [line.split()[1] for line in planned.splitlines() if line.startswith("Inst ")]
        _output([apt, "download", *names], archives)
        for archive in archives.glob("*.deb"):
            _output(["dpkg-deb", "--extract", str(archive), str(cache)])
        _link_alternatives(cache)
    except (OSError, subprocess.SubprocessError) as error:
        text = getattr(error, "stderr", "") or str(error)
        return str(text).strip().splitlines()[-1]
    finally:
        shutil.rmtree(archives, ignore_errors=True)
    return ""


def _output(line: Sequence[str], directory: Path | None = None) -> str:
    done = subprocess.run(
        line,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_APT_S,
        check=True,
        env={**os.environ, "LC_ALL": "C"},
    )
    return done.stdout


def _link_alternatives(cache: Path) -> None:
    """An unpacked iptables lacks the link of that name, which its installation makes."""
    link, target = cache / "usr/sbin/iptables", cache / "usr/sbin/iptables-nft"
    if target.exists() and not os.path.lexists(link):
        link.symlink_to(target.name)


def read_facts(
    state: Path, environment: Mapping[str, str], programs: Mapping[str, str]
) -> possible.Facts:
    """The facts; a directory and namespaces are made for a moment."""
    user, uid = pwd.getpwuid(os.getuid()).pw_name, os.getuid()
    facts = possible.Facts(user, uid, str(state), platform.machine(), programs=programs)
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        (state / "trial").mkdir(exist_ok=True)
    except OSError as error:
        return replace(facts, state_error=error.strerror or str(error))
    try:
        tried = _tried(lambda: _trial(state / "trial", environment, programs))
    finally:
        shutil.rmtree(state / "trial", ignore_errors=True)
    ranges = [
        possible.parse_subordinate(_text(f"/etc/{name}"), user, uid)
        for name in ("subuid", "subgid")
    ]
    group = own_cgroup()
    return replace(
        facts,
        switches={name: _text(f"/proc/sys/{name.replace('.', '/')}") for name in possible.SWITCHES},
        ids=(ranges[0], ranges[1]) if ranges[0] and ranges[1] else None,
        maps_ids="newuidmap" in programs and "newgidmap" in programs,
        tun=os.access("/dev/net/tun", os.R_OK | os.W_OK),
        cgroup_v2=(CGROUPS / "cgroup.controllers").exists(),
        controllers=_text(str(group / "cgroup.controllers")).split() if group else (),
        **tried,
    )


def own_cgroup() -> Path | None:
    """The cgroup of this process, if it is delegated to the user; with cgroup v2 only."""
    rows = _text("/proc/self/cgroup").splitlines()
    path = next((row.removeprefix("0::") for row in rows if row.startswith("0::")), "")
    group = CGROUPS / path.lstrip("/")
    writable = path and os.access(group / "cgroup.procs", os.W_OK) and os.access(group, os.W_OK)
    return group if writable and (CGROUPS / "cgroup.controllers").exists() else None


def may_get_cgroup() -> bool:
    """Whether the user's systemd starts a scope, which has a delegated cgroup with version 2."""
    if shutil.which(SCOPE[0]) is None or not (CGROUPS / "cgroup.controllers").exists():
        return False
    with suppress(OSError, subprocess.SubprocessError):
        os.environ.setdefault("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")  # su leaves it out
        done = subprocess.run([*SCOPE, "true"], capture_output=True, timeout=_TRIAL_S, check=False)
        return done.returncode == 0
    return False


def _tried(trial: Callable[[], Mapping[str, object]]) -> dict[str, Any]:
    """The result of a trial in a process of its own, which may enter namespaces."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, json.dumps(trial()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        text = answer.read()
    os.waitpid(child, 0)
    found: dict[str, Any] = json.loads(text or '{"refused": "namespaces"}')
    return found


def _trial(
    directory: Path, environment: Mapping[str, str], programs: Mapping[str, str]
) -> dict[str, object]:
    uid, gid, what = os.getuid(), os.getgid(), "user namespaces"
    profile = namespaces.enforced_profile()
    try:
        namespaces.unshare(namespaces.NEWUSER)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
        what = "namespaces"
        namespaces.unshare(
            namespaces.NEWNS
            | namespaces.NEWPID
            | namespaces.NEWNET
            | namespaces.NEWIPC
            | namespaces.NEWUTS
            | namespaces.NEWCGROUP
        )
        what = "mounts"
        mount("none", "/", flags=_MS_PRIVATE | MS_REC)
        for name in ("lower", "upper", "work", "memory", "all"):
            (directory / name).mkdir()
        mount("tmpfs", str(directory / "memory"), "tmpfs")
    except OSError as error:
        # a missing right and seccomp are EPERM
        by_profile = profile if error.errno == errno.EACCES else ""
        return {"refused": f"{what} ({error.strerror})", "profile": by_profile}
    overlay = f"lowerdir={directory}/lower,upperdir={directory}/upper,workdir={directory}/work"
    layers = False
    with suppress(OSError):
        mount("overlay", str(directory / "all"), "overlay", data=overlay)
        layers = True
        unmount(str(directory / "all"))
    # only root, as here, may remove the directory that overlayfs makes
    shutil.rmtree(directory / "work", ignore_errors=True)
    return {"overlay": layers, "masquerade": _masquerading(environment, programs)}


def _masquerading(environment: Mapping[str, str], programs: Mapping[str, str]) -> str:
    for name in possible.MASQUERADING:
        if program := programs.get(name):
            with suppress(OSError, subprocess.SubprocessError):
                done = subprocess.run(
                    [program, "-t", "nat", "-S"],
                    env={**environment, "XTABLES_LOCKFILE": "/dev/null"},
                    capture_output=True,
                    timeout=_TRIAL_S,
                    check=False,
                )
                if done.returncode == 0:
                    return name
    return ""


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""
