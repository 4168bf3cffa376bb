"""Images under the names in kubeadm's manifests, each with one program of the control plane.

kube-proxy's has this machine's iptables beside it, of the kind that user-mode Linux can use.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from tools.conformance.images import libraries
from tools.env.images import Image, pause_image
from tools.env.process import CommandError, run

ETCD, PROXY = "etcd", "kube-proxy"
COMPONENTS = (ETCD, "kube-apiserver", "kube-controller-manager", "kube-scheduler")
"""Those that are static pods."""
_PROGRAMS = {ETCD: "server"}
"""Component -> file name of the built program, where it is another."""
_IPTABLES = "xtables-legacy-multi"
_APPLETS = tuple(
    f"{program}{suffix}"
    for program in ("iptables", "ip6tables")
    for suffix in ("", "-save", "-restore")
)


def kubeadm_images(programs: Path, version: str) -> list[Image]:
    """The images of the control plane, kube-proxy and sandboxes, for ``version`` as "v1.37.2".

    Raises CommandError: iptables is not installed.
    """
    parts = "config", "images", "list", f"--kubernetes-version={version}"
    listed = run(programs / "kubeadm", *parts)
    names = {_component(name): name for name in listed.split()}
    images = [
        _image(names[each], each, programs / _PROGRAMS.get(each, each))
        for each in (*COMPONENTS, PROXY)
    ]
    return [*images, pause_image(names["pause"])]


def _component(name: str) -> str:
    """The last part of an image's name, without its tag."""
    return name.rpartition("/")[2].partition(":")[0]


def _image(name: str, component: str, program: Path) -> Image:
    files = {f"usr/local/bin/{component}": (0o755, program.read_bytes())}
    links = {}
    if component == PROXY:
        files |= _read(_iptables())
        links = {f"usr/sbin/{applet}": _IPTABLES for applet in _APPLETS}
    config = {"Env": ["PATH=/usr/local/bin:/usr/sbin"]}
    return Image(name, files, links, folders={"tmp": 0o1777, "run": 0o755}, config=config)


def _iptables() -> list[Path]:
    """The program, its extensions, and the libraries where it loads them."""
    found = shutil.which(_IPTABLES)
    if found is None:
        raise CommandError(f"{_IPTABLES} is not installed: apt-get install iptables")
    extensions = sorted(Path("/usr/lib").glob("*/xtables/*.so"))
    return [Path(found), *extensions, *map(Path, libraries(run("ldd", found).splitlines()))]


def _read(paths: Iterable[Path]) -> dict[str, tuple[int, bytes]]:
    return {str(path).lstrip("/"): (0o755, path.read_bytes()) for path in paths}
