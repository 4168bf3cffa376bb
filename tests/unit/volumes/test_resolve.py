"""From a pod's volume through its claim to what it is made of (table sb2)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kubeletpy.volumes.claims.model import Cause, Mode, VolumeSpec, Waits
from kubeletpy.volumes.claims.resolve import Read, Unread, pv_name, resolve
from tests.unit.volumes.claim_objects import Csi, claim, pod, pv, volume

OTHER = {"claimRef": {"uid": "another", "namespace": "ns", "name": "b"}}


@pytest.mark.parametrize(
    ("found", "of", "cause", "words"),
    [
        (Unread("timed out"), None, Cause.UNREAD, "failed to fetch PVC from API server: timed out"),
        (None, None, Cause.CLAIM_MISSING, 'persistentvolumeclaim "data" not found'),
        (claim(metadata={"deletionTimestamp": "t"}), pv(), Cause.CLAIM_DELETING, "being deleted"),
        (claim(status={"phase": "Pending"}), None, Cause.CLAIM_UNBOUND, "PVC is not bound"),
        (claim(spec={"volumeName": ""}), None, Cause.CLAIM_UNBOUND, "PVC is not bound"),
        (claim(status={"phase": "Lost"}), None, Cause.CLAIM_LOST, '"pv1" does not exist any more'),
        (claim(), Unread("503"), Cause.UNREAD, "failed to fetch PV pv1 from API server: 503"),
        (claim(), None, Cause.PV_MISSING, 'persistentvolume "pv1" not found'),
        (claim(), pv(claimRef=None), Cause.PV_OF_ANOTHER, "bound to no claim"),
        (claim(), pv(**OTHER), Cause.PV_OF_ANOTHER, "bound to another claim (ns/b, uid another)"),
        (claim(), pv(volumeMode="Block"), Cause.MODE_DIFFERS, "is specified in volumeMounts"),
        (claim(), pv(volumeMode=None), Cause.MODE_DIFFERS, "no volumeMode"),
        (claim(), pv({"rbd": {"image": "x"}}), Cause.NO_PLUGIN, "has no rbd volumes"),
        (claim(), pv({"azureDisk": {}}), Cause.NO_PLUGIN, "CSI driver disk.csi.azure.com"),
    ],
)
def test_what_a_claim_waits_for(found: Read, of: Read, cause: Cause, words: str) -> None:
    wait = resolve(pod(), volume(), [Csi()], claim=found, pv=of)
    assert isinstance(wait, Waits)
    assert wait.cause is cause
    assert words in wait.message
    assert '"ns/data"' in wait.object or '"pv1"' in wait.object


def test_a_bound_claim_is_its_volume() -> None:
    kept = claim(
        metadata={"deletionTimestamp": "t", "finalizers": ["kubernetes.io/pvc-protection"]}
    )
    found = pv(mountOptions=["noatime"])
    got = resolve(pod(), volume(readOnly=True), [Csi()], claim=kept, pv=found)
    assert isinstance(got, VolumeSpec)
    assert (got.unique_name, got.spec_name) == ("kubernetes.io/csi/d^h", "pv1")
    assert (got.driver, got.handle, got.mode) == ("d", "h", Mode.FILESYSTEM)
    assert got.read_only
    assert got.mount_options == ("noatime",)
    assert got.attachable
    assert got.device_mountable


@pytest.mark.parametrize(("owner", "owned"), [("u1", True), ("u2", False)])
def test_an_ephemeral_claim_must_be_of_this_pod(owner: str, owned: bool) -> None:
    made = claim(metadata={"ownerReferences": [{"uid": owner, "controller": True}]})
    got = resolve(pod(), volume("ephemeral"), [Csi()], claim=made, pv=pv())
    assert isinstance(got, VolumeSpec) == owned
    if isinstance(got, Waits):
        assert got.cause is Cause.NOT_OWNED


def test_devices_need_block_volumes() -> None:
    mapped = replace(volume(), mounted=False, mapped=True)
    refused = resolve(pod(), mapped, [Csi()], claim=claim(), pv=pv())
    assert isinstance(refused, Waits)
    assert refused.message.endswith("but is specified in volumeDevices")
    got = resolve(pod(), mapped, [Csi()], claim=claim(), pv=pv(volumeMode="Block"))
    assert isinstance(got, VolumeSpec)
    assert got.mode is Mode.BLOCK


def test_an_inline_volume_is_the_pods_own() -> None:
    got = resolve(pod(), volume("csi", driver="d"), [Csi()])
    assert isinstance(got, VolumeSpec)
    assert (got.unique_name, got.inline) == ("kubernetes.io/csi/u1-v", True)
    refused = resolve(pod(), volume("flexVolume"), [Csi()])
    assert isinstance(refused, Waits)
    assert refused.message == "no volume plugin matched: kubeletpy has no flexVolume volumes"


@pytest.mark.parametrize(
    ("found", "name"),
    [
        (claim(), "pv1"),
        (None, None),
        (claim(status={"phase": "Pending"}), None),
        (Unread(""), None),
    ],
)
def test_what_is_read_after_the_claim(found: Any, name: str | None) -> None:
    assert pv_name(found) == name
