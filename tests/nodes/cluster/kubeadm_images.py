"""Images of the control plane, each with one program, under the names in kubeadm's manifests."""

from __future__ import annotations

from pathlib import Path

from tools.env.images import Image, pause_image
from tools.env.process import run

ETCD = "etcd"
_PROGRAMS = {ETCD: "server"}
"""Component -> file name of the built program, where it is another."""
COMPONENTS = (ETCD, "kube-apiserver", "kube-controller-manager", "kube-scheduler")


def control_plane_images(programs: Path, version: str) -> list[Image]:
    """The images of the four components and of sandboxes, for ``version`` as "v1.37.2"."""
    listed = run(
        programs / "kubeadm", "config", "images", "list", f"--kubernetes-version={version}"
    )
    names = {_component(name): name for name in listed.split()}
    return [
        *(_image(names[each], each, programs / _PROGRAMS.get(each, each)) for each in COMPONENTS),
        pause_image(names["pause"]),
    ]


def _component(name: str) -> str:
    """The last part of an image's name, without its tag."""
    return name.rpartition("/")[2].partition(":")[0]


def _image(name: str, component: str, program: Path) -> Image:
    files = {f"usr/local/bin/{component}": (0o755, program.read_bytes())}
    config = {"Env": ["PATH=/usr/local/bin"]}
    return Image(name, files, folders={"tmp": 0o1777}, config=config)
