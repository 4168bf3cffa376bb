"""Volumes reported as in use, and when a volume counts as attached (tables se2, se4)."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.volumes.claims.model import WaitCause, Waits
from kubeletpy.volumes.claims.resolve import (
    Attached,
    Read,
    UnreadObject,
    attached,
    attached_by_node,
    attachment_name,
    attachments_of,
    volumes_in_use,
)
from tests.unit.volumes.claim_objects import spec

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
