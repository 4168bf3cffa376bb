"""From a pod's volume through its claim to the source of the volume (table sb2)."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.volumes.claims.model import Mode, VolumeSource, VolumeSpec, WaitCause, Waits
from kubeletpy.volumes.claims.resolve import (
    Attached,
    NodeObservation,
    Read,
    UnreadObject,
    attached,
    attached_by_node,
    attachment_name,
    attachments_of,
    claim_name,
    observe_node,
    pv_name,
    resolve,
    volumes_in_use,
)
from kubeletpy.volumes.operations.waiting import VolumesWait
from tests.kit.volumes import Csi, claim, pod, pv, spec, volume

OTHER = {"claimRef": {"uid": "another", "namespace": "ns", "name": "b"}}


@pytest.mark.parametrize(
    ("found", "of", "cause", "parts"),
    [
        (
            UnreadObject("timed out"),
            None,
            WaitCause.UNREAD,
            "failed to fetch PVC from API server: timed out",
        ),
        (None, None, WaitCause.CLAIM_MISSING, 'persistentvolumeclaim "data" not found'),
        (claim(), pv(volumeMode="Odd"), WaitCause.MODE_DIFFERS, "PV pv1 has volumeMode 'Odd'"),
        (claim(), pv({"odd": 1}), WaitCause.NO_PLUGIN, "matched: the volume has no source"),
        (
            claim(metadata={"deletionTimestamp": "t"}),
            pv(),
            WaitCause.CLAIM_DELETING,
            "being deleted",
        ),
        (claim(status={"phase": "Pending"}), None, WaitCause.CLAIM_UNBOUND, "PVC is not bound"),
        (claim(spec={"volumeName": ""}), None, WaitCause.CLAIM_UNBOUND, "PVC is not bound"),
        (
            claim(status={"phase": "Lost"}),
            None,
            WaitCause.CLAIM_LOST,
            '"pv1" does not exist any more',
        ),
        (
            claim(),
            UnreadObject("503"),
            WaitCause.UNREAD,
            "failed to fetch PV pv1 from API server: 503",
        ),
        (claim(), None, WaitCause.PV_MISSING, 'persistentvolume "pv1" not found'),
        (claim(), pv(claimRef=None), WaitCause.PV_OF_ANOTHER, "bound to no claim"),
        (
            claim(),
            pv(**OTHER),
            WaitCause.PV_OF_ANOTHER,
            "bound to another claim (ns/b, uid another)",
        ),
        (claim(), pv(volumeMode="Block"), WaitCause.MODE_DIFFERS, "is specified in volumeMounts"),
        (claim(), pv(volumeMode=None), WaitCause.MODE_DIFFERS, "no volumeMode"),
        (claim(), pv({"rbd": {"image": "x"}}), WaitCause.NO_PLUGIN, "has no rbd volumes"),
        (claim(), pv({"azureDisk": {"kind": "x"}}), WaitCause.INVALID, "kind 'x' is not supported"),
    ],
)
def test_waits_for_a_claim(found: Read, of: Read, cause: WaitCause, parts: str) -> None:
    wait = resolve(pod(), volume(), [Csi()], claim=found, pv=of)
    assert isinstance(wait, Waits)
    assert wait.cause is cause
    assert parts in wait.message
    assert '"ns/data"' in wait.object or '"pv1"' in wait.object
    notified = VolumesWait({"v": wait})
    assert not notified.reported, "it is an event"
    assert wait.object in str(notified), "which names the object, as explain does"


def test_a_refused_source_is_reported_on_the_object_that_contains_it() -> None:
    class Refuses(Csi):
        def traits(self, source: VolumeSource) -> Waits:
            return Waits(WaitCause.INVALID, "", "its csi source names no driver")

    bound = resolve(pod(), volume(), [Refuses()], claim=claim(), pv=pv())
    inline = resolve(pod(), volume("csi", driver=""), [Refuses()])
    assert isinstance(bound, Waits)
    assert isinstance(inline, Waits)
    assert bound.object == 'persistentvolume "pv1"'
    assert inline.object == 'volume "v" of pod "ns/p"'


def test_a_driver_that_is_missing_is_what_a_volume_waits_for() -> None:
    missing = Waits(WaitCause.DRIVER_MISSING, 'csidriver "d"', "not registered")

    class Misses(Csi):
        def traits(self, source: VolumeSource) -> Waits:
            return missing

    assert resolve(pod(), volume(), [Misses()], claim=claim(), pv=pv()) == missing


def test_the_first_plugin_of_a_kind_describes_it() -> None:
    class Other(Csi):
        name = "example.com/other"

    got = resolve(pod(), volume(), [Csi(), Other()], claim=claim(), pv=pv())
    assert isinstance(got, VolumeSpec)
    assert (got.plugin, got.unique_name) == ("kubernetes.io/csi", "kubernetes.io/csi/d^h")


def test_only_csi_volumes_have_a_driver_and_a_handle() -> None:
    source = {"driver": "d", "volumeHandle": "h"}
    csi, flex = spec(source=source), spec(kind="flexVolume", source=source)
    assert [(of.driver, of.handle) for of in (csi, flex)] == [("d", "h"), ("", "")]


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


@pytest.mark.parametrize(
    ("owner", "controls", "owned"), [("u1", True, True), ("u2", True, False), ("u1", False, False)]
)
def test_an_ephemeral_claim_must_be_of_this_pod(owner: str, controls: bool, owned: bool) -> None:
    made = claim(metadata={"ownerReferences": [{"uid": owner, "controller": controls}]})
    got = resolve(pod(), volume("ephemeral"), [Csi()], claim=made, pv=pv())
    assert isinstance(got, VolumeSpec) == owned
    if isinstance(got, Waits):
        assert got.cause is WaitCause.NOT_OWNED


@pytest.mark.parametrize(
    ("kind", "more"),
    [("persistentVolumeClaim", ""), ("ephemeral", "; the control plane makes it for the pod")],
)
def test_a_missing_claim_names_its_creator(kind: str, more: str) -> None:
    name = claim_name(pod(), volume(kind))
    got = resolve(pod(), volume(kind), [Csi()])
    assert isinstance(got, Waits)
    missing = f'error processing PVC ns/{name}: persistentvolumeclaim "{name}" not found'
    assert got.message == missing + more


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
    assert got.mount_options == ()
    refused = resolve(pod(), replace(volume("csi", driver="d"), mapped=True), [Csi()])
    assert refused == Waits(
        WaitCause.MODE_DIFFERS,
        'volume "v" of pod "ns/p"',
        "csi volumes have volume mode Filesystem: volumeDevices needs a claim",
    )
    refused = resolve(pod(), volume("flexVolume"), [Csi()])
    assert isinstance(refused, Waits)
    assert refused.message == "no volume plugin matched: kubeletpy has no flexVolume volumes"


@pytest.mark.parametrize(
    ("found", "name"),
    [
        (claim(), "pv1"),
        (None, None),
        (claim(status={"phase": "Pending"}), None),
        (UnreadObject(""), None),
    ],
)
def test_the_volume_to_read_after_the_claim(found: Any, name: str | None) -> None:
    assert pv_name(found) == name


def test_mount_options_of_an_inline_volume_are_those_of_its_source() -> None:
    class Nfs(Csi):
        kinds = frozenset({"csi", "nfs"})

    options = {"mountOptions": ["noatime"]}
    of = {kind: resolve(pod(), volume(kind, **options), [Nfs()]) for kind in ("csi", "nfs")}
    found = {kind: got.mount_options for kind, got in of.items() if isinstance(got, VolumeSpec)}
    assert found == {"csi": (), "nfs": ("noatime",)}, "no csi source has mount options"


# Volumes reported as in use, and when a volume counts as attached (tables se2, se4).

USED = {"volumesInUse": ["vol"]}
BOTH = {**USED, "volumesAttached": [{"name": "vol", "devicePath": ""}]}
OBJECT = 'volumeattachment "csi-9072ed11cc1acb5fa433a877ff339b6311d013f33bddd1d0092711a8ace5b16d"'
CALL = "ControllerPublishVolume of driver d"


def test_names_of_attachments() -> None:
    # sha256 of "hdn": what the attach controller computes
    assert attachment_name("h", "d", "n") == (
        "csi-9072ed11cc1acb5fa433a877ff339b6311d013f33bddd1d0092711a8ace5b16d"
    )


@pytest.mark.parametrize(
    ("status", "attachment", "waits"),
    [
        (
            {},
            None,
            Waits(
                WaitCause.NOT_IN_USE_YET,
                'node "n"',
                "the API does not show yet that this node uses the volume (status.volumesInUse)",
            ),
        ),
        (
            USED,
            {"status": {"attached": True}},
            Waits(
                WaitCause.NOT_ATTACHED,
                'node "n"',
                "attached, but the node's status.volumesAttached does not list it yet",
            ),
        ),
        (
            BOTH,
            None,
            Waits(
                WaitCause.NOT_ATTACHED,
                OBJECT,
                "the attach controller has made no VolumeAttachment for volume h yet",
                CALL,
            ),
        ),
        (
            BOTH,
            UnreadObject("503"),
            Waits(WaitCause.NOT_ATTACHED, OBJECT, "could not be read: 503", CALL),
        ),
        (
            USED,
            UnreadObject("403"),
            Waits(
                WaitCause.NOT_ATTACHED,
                OBJECT,
                "the node's status.volumesAttached does not list the volume yet (403)",
                CALL,
            ),
        ),
        (
            BOTH,
            {"metadata": {"deletionTimestamp": "t"}, "status": {"attached": True}},
            Waits(WaitCause.NOT_ATTACHED, OBJECT, "volume attachment is being deleted", CALL),
        ),
        (
            BOTH,
            {"status": {"attachError": {"message": "no room"}}},
            Waits(WaitCause.ATTACH_FAILED, OBJECT, "no room", CALL),
        ),
        (
            BOTH,
            {"status": {"attachError": {"errorCode": 8}}},
            Waits(WaitCause.ATTACH_LIMIT, OBJECT, "the driver gave no reason", CALL),
        ),
        (
            BOTH,
            {"status": {"attachError": {"errorCode": 13, "message": "broken"}}},
            Waits(WaitCause.ATTACH_FAILED, OBJECT, "broken", CALL),
        ),
        (BOTH, {}, Waits(WaitCause.NOT_ATTACHED, OBJECT, "volume is not attached yet", CALL)),
    ],
)
def test_waits_for_an_attachment(status: Any, attachment: Read, waits: Waits) -> None:
    assert attached(spec(attachable=True), attachments_of(status), "n", attachment) == waits


def test_attached() -> None:
    node = attachments_of(BOTH)
    there: Read = {"status": {"attached": True, "attachmentMetadata": {"a": "b"}}}
    assert attached(spec(attachable=True), node, "n", there) == Attached({"a": "b"})
    assert attached(spec(), attachments_of({}), "n", None) == Attached()
    iscsi = spec(attachable=True, kind="iscsi", source={})
    assert attached(iscsi, node, "n", None) == Attached()
    why = "the attach controller has not attached the volume (status.volumesAttached)"
    waits = Waits(WaitCause.NOT_ATTACHED, 'node "n"', why)
    assert attached(iscsi, attachments_of(USED), "n", None) == waits


def test_without_a_controller_a_node_attaches_what_needs_no_call() -> None:
    assert attached_by_node(spec(attachable=True, kind="iscsi", source={})) == Attached()
    assert attached_by_node(spec()) == Attached()
    refused = attached_by_node(spec(attachable=True))
    assert isinstance(refused, Waits)
    assert "attaching volumes from the kubelet is not supported" in refused.message
    assert "enableControllerAttachDetach" in refused.message


def test_a_volume_is_in_use_until_nothing_is_left() -> None:
    assert volumes_in_use([spec("b", attachable=True), spec("c")], ["a", "b"]) == ["a", "b"]


# The API's view of some volumes of a node.


def observe(
    node: dict[str, Any], volume: VolumeSpec, *, controller: bool = True
) -> NodeObservation:
    return observe_node(
        node, [volume], node_name="n", controller_attaches=controller, attachment=lambda of: None
    )


def test_nothing_is_in_use_for_certain_before_the_api_shows_the_node() -> None:
    assert observe({}, spec("a")).in_use is None
    reported = {"metadata": {"resourceVersion": "1"}, "status": {"volumesInUse": ["a"]}}
    assert observe(reported, spec("a")).in_use == frozenset({"a"})


def test_only_attachable_volumes_wait_for_an_attachment() -> None:
    plain = observe({}, spec("a", attachable=False))
    assert plain.attachments == {"a": Attached()}
    found = observe({}, spec("a", attachable=True)).attachments["a"]
    assert isinstance(found, Waits)
    assert found.cause is WaitCause.NOT_IN_USE_YET


def test_no_driver_attaches_without_a_controller() -> None:
    volume = spec("a", attachable=True, kind="csi", source={"driver": "d"})
    found = observe({}, volume, controller=False).attachments["a"]
    assert isinstance(found, Waits)
    assert found.cause is WaitCause.INVALID


def test_a_volume_for_other_nodes_is_blocked() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}
    pv = {"spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}}
    volume = spec("a", pv=pv)
    assert observe({"metadata": {"labels": {"zone": "z"}}}, volume).blocked == {}
    assert observe({}, volume).blocked["a"].cause is WaitCause.NODE_AFFINITY
