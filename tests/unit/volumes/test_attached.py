"""What is reported as in use, and when a volume counts as attached (tables se2, se4)."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.volumes.attach.attached import (
    Attached,
    attached,
    attachment_name,
    attachments_of,
    volumes_in_use,
)
from kubeletpy.volumes.claims.model import Cause, Waits
from kubeletpy.volumes.claims.resolve import Read, Unread
from tests.unit.volumes.claim_objects import spec

BOTH = {"volumesInUse": ["vol"], "volumesAttached": [{"name": "vol", "devicePath": ""}]}


def test_names_of_attachments() -> None:
    # sha256 of "hdn": what the attach controller computes
    assert attachment_name("h", "d", "n") == (
        "csi-9072ed11cc1acb5fa433a877ff339b6311d013f33bddd1d0092711a8ace5b16d"
    )


@pytest.mark.parametrize(
    ("status", "attachment", "cause"),
    [
        ({}, None, Cause.NOT_IN_USE_YET),
        ({"volumesInUse": ["vol"]}, {"status": {"attached": True}}, Cause.NOT_ATTACHED),
        (BOTH, None, Cause.NOT_ATTACHED),
        (BOTH, Unread("403"), Cause.NOT_ATTACHED),
        ({"volumesInUse": ["vol"]}, Unread("403"), Cause.NOT_ATTACHED),
        (BOTH, {"metadata": {"deletionTimestamp": "t"}}, Cause.NOT_ATTACHED),
        (BOTH, {"status": {"attachError": {"message": "no room"}}}, Cause.ATTACH_FAILED),
        (BOTH, {}, Cause.NOT_ATTACHED),
    ],
)
def test_what_an_attachment_waits_for(status: Any, attachment: Read, cause: Cause) -> None:
    got = attached(spec(attachable=True), attachments_of(status), "n", attachment)
    assert isinstance(got, Waits)
    assert got.cause is cause


def test_attached() -> None:
    node = attachments_of(BOTH)
    there: Read = {"status": {"attached": True, "attachmentMetadata": {"a": "b"}}}
    assert attached(spec(attachable=True), node, "n", there) == Attached({"a": "b"})
    assert attached(spec(), attachments_of({}), "n", None) == Attached()
    iscsi = spec(attachable=True, kind="iscsi", source={})
    assert attached(iscsi, node, "n", None) == Attached()


def test_a_volume_is_in_use_until_nothing_is_left() -> None:
    assert volumes_in_use([spec("b", attachable=True), spec("c")], ["a", "b"]) == ["a", "b"]
