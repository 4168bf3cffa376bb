"""Directories for claims: created, kept and removed; nothing else is touched."""

# ruff: noqa: ASYNC240 - directories are what it is about

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from kubeletpy_up.controllers import local_provisioner
from kubeletpy_up.controllers import local_volumes as local
from kubeletpy_up.controllers.binder import Binder
from kubeletpy_up.controllers.local_provisioner import LocalProvisioner
from kubeletpy_up.controllers.reconciler import RETRY_S
from kubeletpy_up.controllers.scheduler import Scheduler
from kubeletpy_up.controllers.volume_protection import VolumeProtection
from kubeletpy_up.kinds.storage import CLAIMS, CLASSES, VOLUMES
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import ADMIN
from tests.kit.embedded import make_registry, node
from tests.kit.virtual_time import LoopClock, on_virtual_time

JSON = dict[str, Any]
UID = "01234567-89ab-cdef-0123-456789abcdef"
_CLASS: JSON = {"metadata": {"name": "now"}, "provisioner": local.PROVISIONER}


def _started(directory: Path) -> Registry:
    registry = make_registry(clock=LoopClock())
    registry.create(ADMIN, "nodes", node())
    for made in (Binder(registry), VolumeProtection(registry), Scheduler(registry)):
        made.start()
    LocalProvisioner(registry, directory, "n1").start()
    return registry


async def _done() -> None:
    """Waits for threads too: virtual time does not advance for them."""
    await asyncio.sleep(1)


def _claim(**spec: Any) -> JSON:
    requested = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "now",
        **spec,
    }
    about = {"name": "c", "namespace": "default", "uid": UID, "resourceVersion": "1"}
    return {"metadata": about, "spec": requested}


async def _provisioned(registry: Registry, **more: Any) -> JSON:
    """Returns the volume of a new claim whose class binds at once."""
    registry.create(ADMIN, CLASSES, {**_CLASS, **more})
    body = {"metadata": {"name": "c"}, "spec": _claim()["spec"]}
    registry.create(ADMIN, CLAIMS, body, "default")
    await _done()
    found = registry.find(CLAIMS, "default", "c")
    assert found is not None
    volume = registry.find(VOLUMES, "", found["spec"]["volumeName"])
    assert volume is not None
    return volume


@on_virtual_time
async def test_a_claim_gets_a_directory_that_is_removed_with_it(tmp_path: Path) -> None:
    registry = _started(tmp_path / "volumes")
    volume = await _provisioned(registry)
    path = Path(volume["spec"]["local"]["path"])
    assert path.parent == tmp_path / "volumes"
    assert [p.stat().st_mode & 0o777 for p in (path.parent, path)] == [0o700, 0o777]
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("not mine")
    (path / "link").symlink_to(outside)
    (path / "deep").mkdir()
    (path / "deep" / "up").symlink_to("../../..")
    registry.delete(ADMIN, CLAIMS, "c", "default")
    await _done()
    assert not path.exists()
    assert registry.find(VOLUMES, "", volume["metadata"]["name"]) is None
    assert (outside / "file").read_text() == "not mine"


@on_virtual_time
async def test_a_directory_is_removed_even_if_its_volume_was_deleted_first(tmp_path: Path) -> None:
    registry = _started(tmp_path)
    volume = await _provisioned(registry)
    name, path = volume["metadata"]["name"], Path(volume["spec"]["local"]["path"])
    registry.delete(ADMIN, VOLUMES, name)
    await _done()
    assert path.is_dir()
    registry.delete(ADMIN, CLAIMS, "c", "default")
    await _done()
    assert registry.find(VOLUMES, "", name) is None
    assert not path.exists()


@on_virtual_time
async def test_a_retained_volume_keeps_its_directory(tmp_path: Path) -> None:
    registry = _started(tmp_path)
    volume = await _provisioned(registry, reclaimPolicy="Retain")
    registry.delete(ADMIN, CLAIMS, "c", "default")
    await _done()
    released = registry.find(VOLUMES, "", volume["metadata"]["name"])
    assert released is not None
    assert released["status"]["phase"] == "Released"
    assert Path(volume["spec"]["local"]["path"]).is_dir()
    registry.delete(ADMIN, VOLUMES, volume["metadata"]["name"])
    await _done()
    assert registry.find(VOLUMES, "", volume["metadata"]["name"]) is None
    assert Path(volume["spec"]["local"]["path"]).is_dir()


@pytest.mark.parametrize("path", ["/etc", "{directory}/../x", "{directory}"])
@on_virtual_time
async def test_a_volume_that_points_elsewhere_is_left_alone(tmp_path: Path, path: str) -> None:
    registry = _started(tmp_path / "volumes")
    (tmp_path / "volumes").mkdir()
    (tmp_path / "x").mkdir()
    forged = local.volume(_claim(), _CLASS, node(), path.format(directory=tmp_path / "volumes"))
    if "/../" in path:  # the API would refuse it
        registry.store.put(VOLUMES, "", forged["metadata"]["name"], {**forged, "status": {}})
    else:
        registry.create(ADMIN, VOLUMES, forged)
    name = forged["metadata"]["name"]
    found = registry.find(VOLUMES, "", name)
    assert found is not None
    registry.store.put(VOLUMES, "", name, _deletable(found))
    await _done()
    assert registry.find(VOLUMES, "", name) is not None
    assert (tmp_path / "x").is_dir()
    assert (tmp_path / "volumes").is_dir()
    events = registry.list(ADMIN, "events", "default")["items"]
    assert [e["reason"] for e in events] == ["VolumeFailedDelete"]


def _deletable(volume: JSON) -> JSON:
    spec = {**volume["spec"], "persistentVolumeReclaimPolicy": "Delete"}
    meta = {"uid": UID, **volume["metadata"]}
    return {**volume, "metadata": meta, "spec": spec, "status": {"phase": "Released"}}


@on_virtual_time
async def test_a_link_in_the_place_of_a_directory_is_not_followed(tmp_path: Path) -> None:
    registry = _started(tmp_path / "volumes")
    volume = await _provisioned(registry)
    path = Path(volume["spec"]["local"]["path"])
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("not mine")
    path.rmdir()
    path.symlink_to(outside)
    registry.delete(ADMIN, CLAIMS, "c", "default")
    await _done()
    assert (outside / "file").exists()
    assert registry.find(VOLUMES, "", volume["metadata"]["name"]) is not None


@on_virtual_time
async def test_unfinished_work_is_completed_after_a_restart(tmp_path: Path) -> None:
    registry = _started(tmp_path)
    volume = await _provisioned(registry)
    path = Path(volume["spec"]["local"]["path"])
    again = make_registry(clock=LoopClock())
    again.create(ADMIN, "nodes", node())
    again.create(ADMIN, CLASSES, _CLASS)
    name = volume["metadata"]["name"]
    again.store.put(VOLUMES, "", name, {**volume, "status": {"phase": "Released"}})
    VolumeProtection(again).start()
    LocalProvisioner(again, tmp_path, "n1").start()
    await _done()
    assert not path.exists()
    assert again.find(VOLUMES, "", name) is None


@on_virtual_time
async def test_a_claim_grows_and_its_volume_with_it(tmp_path: Path) -> None:
    registry = _started(tmp_path)
    volume = await _provisioned(registry, allowVolumeExpansion=True)
    larger = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    registry.patch(ADMIN, CLAIMS, "c", larger, "default")
    await _done()
    found = registry.find(CLAIMS, "default", "c")
    assert found is not None
    assert found["status"]["capacity"] == {"storage": "2Gi"}
    grown = registry.find(VOLUMES, "", volume["metadata"]["name"])
    assert grown is not None
    assert grown["spec"]["capacity"] == {"storage": "2Gi"}


@on_virtual_time
async def test_a_disk_error_is_reported_and_retried(tmp_path: Path) -> None:
    (tmp_path / "volumes").write_text("a file")
    registry = _started(tmp_path / "volumes")
    registry.create(ADMIN, CLASSES, _CLASS)
    body = {"metadata": {"name": "c"}, "spec": _claim()["spec"]}
    registry.create(ADMIN, CLAIMS, body, "default")
    await _done()
    reasons = [e["reason"] for e in registry.list(ADMIN, "events", "default")["items"]]
    assert "ProvisioningFailed" in reasons
    (tmp_path / "volumes").unlink()
    await asyncio.sleep(RETRY_S)
    await _done()
    assert registry.find(CLAIMS, "default", "c")["status"]["phase"] == "Bound"  # type: ignore[index]


@on_virtual_time
async def test_a_changed_class_is_left_alone(tmp_path: Path) -> None:
    registry = make_registry(clock=LoopClock())
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    mine = {"metadata": {"name": "mine", "annotations": annotations}, "provisioner": "x/y"}
    registry.create(ADMIN, CLASSES, mine)
    LocalProvisioner(registry, tmp_path, "n1").start()
    made = registry.find(CLASSES, "", local.CLASS_NAME)
    assert made is not None
    assert "storageclass.kubernetes.io/is-default-class" not in made["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("spec", "more", "stated"),
    [
        ({}, {}, ""),
        ({"volumeMode": "Block"}, {}, "no block device"),
        ({"selector": {}}, {}, "selector"),
        ({"dataSource": {"kind": "PersistentVolumeClaim", "name": "a"}}, {}, "data sources"),
        ({}, {"parameters": {"path": "/etc"}}, "no such parameters: path"),
        ({}, {"mountOptions": ["ro"]}, "mountOptions"),
        (
            {},
            {"allowedTopologies": [{"matchLabelExpressions": [{"key": "z", "values": ["a"]}]}]},
            "allowedTopologies",
        ),
    ],
)
def test_refused_claims(spec: JSON, more: JSON, stated: str) -> None:
    found = local.problem(_claim(**spec), {**_CLASS, **more}, node())
    assert (stated in found) if stated else found == ""


@pytest.mark.parametrize("uid", ["../../etc", "", "a/b", f"{UID}/.."])
def test_an_invalid_uid_names_no_directory(uid: str) -> None:
    claim = _claim()
    claim["metadata"]["uid"] = uid
    assert "no uid" in local.problem(claim, _CLASS, node())


async def test_a_stop_waits_for_threads_and_leaves_no_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = make_registry()
    registry.create(ADMIN, "nodes", node())
    binder, provisioner = Binder(registry), LocalProvisioner(registry, tmp_path, "n1")
    binder.start()
    provisioner.start()
    loop, began, proceed, made = asyncio.get_running_loop(), asyncio.Event(), threading.Event(), []

    def make(path: Path) -> None:
        loop.call_soon_threadsafe(began.set)
        assert proceed.wait(20)
        made.append(path)

    monkeypatch.setattr(local_provisioner, "_make_directory", make)
    registry.create(ADMIN, CLASSES, _CLASS)
    registry.create(ADMIN, CLAIMS, {"metadata": {"name": "c"}, "spec": _claim()["spec"]}, "default")
    await asyncio.wait_for(began.wait(), 20)
    loop.call_later(0.05, proceed.set)
    await asyncio.wait_for(provisioner.stop(), 20)
    assert len(made) == 1
    await binder.stop()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert registry.list(ADMIN, VOLUMES)["items"] == []
