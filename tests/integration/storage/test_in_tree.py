"""Claims of what the agent mounts itself: directories, disks and exports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubeletpy.base.api.types import JSON
from kubeletpy.base.host import machine
from tests.integration.storage.cluster import Storage

DISK_BYTES = 64 << 20
MOUNT_NFS_S = 150.0
"""More than the two minutes for which mount.nfs tries a server. Source: nfs(5), retry."""


@pytest.fixture
def make_disk(storage: Storage) -> Iterator[Callable[[str], str]]:
    """Call it with a name: an empty disk of the node; its device."""
    images: list[Path] = []

    def make(name: str) -> str:
        image = storage.node.directory / f"{name}.img"
        with image.open("wb") as file:
            file.truncate(DISK_BYTES)
        images.append(image)
        return machine.attach(str(image))

    yield make
    for image in images:
        device = machine.loop_device_of(str(image))
        if device is not None:
            machine.detach(device)


def here(storage: Storage, path: str, **more: str) -> JSON:
    """A local volume of this node."""
    values = {"key": "kubernetes.io/hostname", "operator": "In", "values": [storage.node.name]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [values]}]}
    return {"local": {"path": path, **more}, "nodeAffinity": {"required": terms}}


def test_directories_of_the_node(storage: Storage, namespace: str) -> None:
    local, host = storage.node.directory / "local", storage.node.directory / "host"
    for directory in (local, host):
        directory.mkdir()
    storage.claim(namespace, "local", here(storage, str(local)))
    storage.claim(namespace, "host", {"hostPath": {"path": str(host), "type": "Directory"}})
    storage.pod(namespace, "p", "local", "host", securityContext={"fsGroup": 2345})
    storage.node.wait_running(namespace, "p")
    storage.sh(namespace, "p", "echo one > /local/f; echo two > /host/f")
    storage.restart_agent()
    assert storage.sh(namespace, "p", "cat /local/f /host/f; stat -c %g /local") == (
        "one\ntwo\n2345\n"
    )
    storage.end(namespace, "p")
    storage.wait_nothing_left()
    assert ((local / "f").read_text(), (host / "f").read_text()) == ("one\n", "two\n")


def test_a_disk_is_formatted_once_and_shared_by_pods(
    storage: Storage, namespace: str, make_disk: Callable[[str], str]
) -> None:
    device = make_disk("ext4")
    storage.claim(namespace, "disk", here(storage, device, fsType="ext4"))
    for name in ("p", "q"):
        storage.pod(namespace, name, "disk")
        storage.node.wait_running(namespace, name)
    storage.sh(namespace, "p", "grep -q ' /disk ext4 ' /proc/mounts && echo kept > /disk/f")
    assert storage.sh(namespace, "q", "cat /disk/f") == "kept\n"
    storage.end(namespace, "p")
    storage.restart_agent()
    assert storage.sh(namespace, "q", "cat /disk/f") == "kept\n"
    storage.end(namespace, "q")
    storage.wait_nothing_left()
    storage.pod(namespace, "again", "disk")
    storage.node.wait_running(namespace, "again")
    assert storage.sh(namespace, "again", "cat /disk/f") == "kept\n"
    storage.end(namespace, "again")
    storage.wait_nothing_left()


def test_a_raw_disk_of_the_node(
    storage: Storage, namespace: str, make_disk: Callable[[str], str]
) -> None:
    storage.claim(namespace, "disk", here(storage, make_disk("raw")), volumeMode="Block")
    storage.pod(namespace, "p", "disk", devices=("disk",))
    storage.node.wait_running(namespace, "p")
    storage.sh(namespace, "p", "printf hello | dd of=/dev/disk conv=notrunc 2>/dev/null; sync")
    storage.restart_agent()
    assert storage.sh(namespace, "p", "dd if=/dev/disk bs=5 count=1 2>/dev/null") == "hello"
    storage.end(namespace, "p")
    storage.wait_nothing_left()


def test_an_export_of_a_dead_server_holds_up_nobody_else(storage: Storage, namespace: str) -> None:
    """A kernel may even lack NFS: the mount fails at once, or takes long."""
    good = storage.node.directory / "good"
    good.mkdir()
    storage.claim(namespace, "dead", {"nfs": {"server": "127.0.0.1", "path": "/export"}})
    storage.claim(namespace, "good", here(storage, str(good)))
    storage.pod(namespace, "waits", "dead")
    storage.node.until(
        lambda: "127.0.0.1:/export" in storage.explain(namespace, "waits"),
        "explain names the export",
        namespace,
        "waits",
    )
    storage.pod(namespace, "good", "good")
    storage.node.wait_running(namespace, "good")
    storage.end(namespace, "good")
    storage.end(namespace, "waits", timeout=MOUNT_NFS_S)
    storage.wait_nothing_left()
