"""Pods with claims of a CSI driver, seen from inside a real container."""

from __future__ import annotations

import subprocess

import pytest

from kubeletpy.base.api.types import JSON
from tests.integration.lifecycle.command import explained
from tests.integration.storage.cluster import Storage
from tests.integration.storage.driver import DriverProcess


def test_a_claim_is_mounted_kept_and_taken_down(
    storage: Storage, driver: DriverProcess, namespace: str
) -> None:
    handle = storage.csi_claim(driver, namespace, "data")
    mounts = [
        {"name": "data", "mountPath": "/data"},
        {"name": "data", "mountPath": "/sub", "subPath": "deep/er"},
        {"name": "data", "mountPath": "/fixed", "readOnly": True},
    ]
    storage.pod(
        namespace,
        "p",
        "data",
        container={"volumeMounts": mounts},
        securityContext={"fsGroup": 2345, "runAsUser": 1000},
    )
    storage.node.wait_running(namespace, "p")
    stated = storage.sh(namespace, "p", "echo one > /data/f; echo two > /sub/g; cat /fixed/f; id")
    assert stated == "one\nuid=1000 gid=0(root) groups=0(root),2345\n"
    assert storage.sh(namespace, "p", "stat -c '%a %g' /data; touch /fixed/h 2>&1 || true") == (
        "2775 2345\ntouch: /fixed/h: Read-only file system\n"
    )
    storage.end(namespace, "p")
    storage.wait_nothing_left()
    data = driver.data(handle)
    assert ((data / "f").read_text(), (data / "deep/er/g").read_text()) == ("one\n", "two\n")
    assert not [e for e in storage.node.events(namespace, "p") if e.startswith("Failed")]
    storage.pod(namespace, "again", "data")
    storage.node.wait_running(namespace, "again")
    assert storage.sh(namespace, "again", "cat /data/f") == "one\n"


def test_a_raw_device_of_a_claim(storage: Storage, driver: DriverProcess, namespace: str) -> None:
    storage.csi_claim(driver, namespace, "disk", volumeMode="Block")
    storage.pod(namespace, "p", "disk", devices=("disk",))
    storage.node.wait_running(namespace, "p")
    wrote = "printf hello | dd of=/dev/disk conv=notrunc 2>/dev/null; test -b /dev/disk && sync"
    assert storage.sh(namespace, "p", wrote) == ""
    storage.end(namespace, "p")
    storage.wait_nothing_left()
    storage.pod(namespace, "again", "disk", devices=("disk",))
    storage.node.wait_running(namespace, "again")
    assert storage.sh(namespace, "again", "dd if=/dev/disk bs=5 count=1 2>/dev/null") == "hello"


def test_a_volume_that_lives_as_long_as_its_pod(
    storage: Storage, driver: DriverProcess, namespace: str
) -> None:
    inline = storage.driver(
        "inline.csi.example.com",
        spec={"volumeLifecycleModes": ["Ephemeral"], "podInfoOnMount": True},
    )
    mounts = [{"name": "inline", "mountPath": "/v"}]
    volume = {"name": "inline", "csi": {"driver": inline.name}}
    storage.pod(namespace, "p", container={"volumeMounts": mounts}, volumes=[volume])
    storage.node.wait_running(namespace, "p")
    assert storage.sh(namespace, "p", "echo one > /v/f; cat /v/f") == "one\n"
    assert len(inline.handles()) == 1
    storage.end(namespace, "p")
    storage.wait_nothing_left()
    assert inline.handles() == []


def test_a_driver_without_stages_whose_volumes_are_attached(
    storage: Storage, namespace: str
) -> None:
    driver = storage.driver("plain.csi.example.com", spec={"attachRequired": True}, stage=False)
    handle = storage.csi_claim(driver, namespace, "data")
    storage.pod(namespace, "p", "data")
    storage.attach(driver, handle, f"pv-{namespace}-data")
    storage.node.wait_running(namespace, "p")
    assert [call for call in driver.calls() if call.startswith("NodeStage")] == []
    assert not [e for e in storage.node.events(namespace, "p") if e.startswith("FailedMount")]
    storage.end(namespace, "p")
    storage.wait_nothing_left()


@pytest.mark.parametrize("mode", ["Filesystem", "Block"])
def test_a_claim_in_use_grows(
    storage: Storage, driver: DriverProcess, namespace: str, mode: str
) -> None:
    storage.csi_claim(driver, namespace, "data", volumeMode=mode)
    storage.pod(namespace, "p", "data", devices=("data",) if mode == "Block" else ())
    storage.node.wait_running(namespace, "p")
    storage.grow(namespace, "data", "32Mi")

    def grown() -> bool:
        status = storage.claimed(namespace, "data")
        return bool(status["capacity"] == {"storage": "32Mi"})

    storage.node.until(grown, "the claim shows its new size", namespace, "p")
    status = storage.claimed(namespace, "data")
    assert {condition["type"] for condition in status["conditions"]} == {"Unused"}
    assert not status.get("allocatedResourceStatuses")
    assert storage.node.wait_event(namespace, "p", "FileSystemResizeSuccessful")
    storage.end(namespace, "p")
    assert [call.split()[0] for call in driver.calls()].count("NodeExpandVolume") >= 1


def test_explain_names_the_process_that_a_driver_is_refused_for(
    storage: Storage, driver: DriverProcess, namespace: str
) -> None:
    """The driver's unmount fails as busy: its error names no process."""
    storage.csi_claim(driver, namespace, "held")
    storage.pod(namespace, "held", "held")
    uid = storage.node.wait_running(namespace, "held")["metadata"]["uid"]
    volumes = storage.node.root_dir / f"pods/{uid}/volumes/kubernetes.io~csi"
    (target,) = volumes.glob("*/mount")
    with subprocess.Popen(["sleep", "1000"], cwd=target) as holder:
        try:
            storage.node.api.delete("pods", namespace, "held", grace=1)
            parts = f"it is in use by process {holder.pid} (sleep)"

            def names_holder() -> bool:
                return parts in storage.explain(namespace, "held")

            storage.node.until(names_holder, parts, namespace, "held")

            def why() -> JSON:
                """During an attempt, explain shows only that it is under way."""
                stated = explained(storage.node, namespace, "held")
                return stated if stated["cause"] == "volume-in-use" else {}

            stated = storage.node.until(why, "the cause", namespace, "held")
            assert f"NodeUnpublishVolume of driver {driver.name}" in stated["verdict"]
        finally:
            holder.kill()
    storage.node.wait_removed(namespace, "held")
    storage.wait_nothing_left()
