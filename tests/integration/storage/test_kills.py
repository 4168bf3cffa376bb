"""The agent is killed while a driver works for it, and a driver while it works for the agent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kubeletpy.kubeapi.errors import NotFound
from tests.integration.node.seen import container_status
from tests.integration.storage.cluster import Storage
from tests.integration.storage.driver import DriverProcess

LONG_S = 30.0


@contextmanager
def killed_in(
    storage: Storage, driver: DriverProcess, method: str, handle: str, when: str
) -> Iterator[None]:
    """Kill -9 the agent while a call is under way for what the block has begun.

    ``when``: ``before`` or ``after`` the driver has done its work.
    """
    call, seen = f"{method} {handle}", driver.calls().count(f"{method} {handle}")
    driver.fail(**{method: {when: LONG_S, "times": 1}})
    yield
    storage.node.until(lambda: driver.calls().count(call) > seen, f"{method} under way")
    storage.restart_agent()
    driver.fail()


@pytest.mark.parametrize("mode", ["Filesystem", "Block"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_agent_loses_nothing_and_leaves_nothing(
    storage: Storage, driver: DriverProcess, namespace: str, mode: str, when: str
) -> None:
    handle = storage.csi_claim(driver, namespace, "data", volumeMode=mode)
    devices = ("data",) if mode == "Block" else ()
    with killed_in(storage, driver, "NodeStageVolume", handle, when):
        storage.pod(namespace, "p", "data", devices=devices)
    storage.node.wait_running(namespace, "p")
    storage.end(namespace, "p")
    storage.wait_nothing_left()

    with killed_in(storage, driver, "NodePublishVolume", handle, when):
        storage.pod(namespace, "q", "data", devices=devices)
    started = container_status(storage.node.wait_running(namespace, "q"))["containerID"]
    if mode == "Filesystem":
        storage.sh(namespace, "q", "echo kept > /data/f")
    storage.restart_agent()
    assert container_status(storage.node.pod(namespace, "q"))["containerID"] == started
    uses = "cat /data/f" if mode == "Filesystem" else "dd if=/dev/data count=1 2>/dev/null | wc -c"
    assert storage.sh(namespace, "q", uses) in ("kept\n", "512\n")

    with killed_in(storage, driver, "NodeUnpublishVolume", handle, when):
        storage.node.api.delete("pods", namespace, "q", grace=1)
    storage.node.wait_removed(namespace, "q")
    storage.wait_nothing_left()
    if mode == "Filesystem":
        assert (driver.data(handle) / "f").read_text() == "kept\n"


def test_a_pod_that_was_deleted_while_no_agent_ran(
    storage: Storage, driver: DriverProcess, namespace: str
) -> None:
    storage.csi_claim(driver, namespace, "data")
    storage.csi_claim(driver, namespace, "disk", volumeMode="Block")
    storage.pod(namespace, "p", "data", "disk", devices=("disk",))
    storage.node.wait_running(namespace, "p")
    storage.node.kill()
    storage.node.api.delete("pods", namespace, "p", grace=0)
    for name in ("data", "disk"):
        remove(storage, "persistentvolumes", "", f"pv-{namespace}-{name}")
        remove(storage, "persistentvolumeclaims", namespace, name)
    storage.start_agent()
    storage.wait_nothing_left()


def remove(storage: Storage, kind: str, namespace: str, name: str) -> None:
    """Delete an object, whatever keeps it."""
    storage.let_go(kind, namespace, name)
    try:
        storage.node.api.delete(kind, namespace, name)
    except NotFound:
        return
