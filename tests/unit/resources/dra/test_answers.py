"""Answers of drivers, claim by claim, and what is refused in them."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.remote.generated import dra_health_pb2 as health
from kubeletpy.remote.generated import dra_v1_pb2 as v1
from kubeletpy.remote.generated import dra_v1beta1_pb2 as v1beta1
from kubeletpy.resources.dra.answers import MAX_DEVICES, MAX_NAMES, claim_answers, service
from kubeletpy.resources.dra.client import PART_DEVICES, report_parts
from kubeletpy.resources.dra.health import MAX_DEVICES as MAX_REPORTED
from kubeletpy.resources.dra.health import with_report
from kubeletpy.resources.dra.model import ClaimDevice, ClaimInfo
from tests.kit.costs import calls, no_collections

CLAIM = ClaimInfo("c-uid", "c", "default", frozenset({"uid-p"}), {})


def prepared(*devices: Any, messages: Any = v1, error: str = "") -> Any:
    answer = messages.NodePrepareResourceResponse(devices=devices, error=error)
    return messages.NodePrepareResourcesResponse(claims={"c-uid": answer})


def device(*names: str, messages: Any = v1, **more: Any) -> Any:
    return messages.Device(
        pool_name="pool", device_name="d0", request_names=["r"], cdi_device_ids=names, **more
    )


@pytest.mark.parametrize(
    ("versions", "first"),
    [
        (["v2.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAPlugin"], "v1beta1.DRAPlugin"),
        (["v1.DRAPlugin"], "v1.DRAPlugin"),
        (["v2.DRAPlugin"], None),
        ([], None),
    ],
)
def test_the_first_supported_service_is_used(versions: list[str], first: str | None) -> None:
    assert service(versions) == first


@pytest.mark.parametrize("messages", [v1, v1beta1])
def test_each_claim_has_its_devices_or_an_error(messages: Any) -> None:
    other = replace(CLAIM, uid="o-uid")
    answer = prepared(
        device("a.com/gpu=0", "a.com/gpu=x.1:y", messages=messages), messages=messages
    )
    found = claim_answers(answer, [CLAIM, other])
    names = ("a.com/gpu=0", "a.com/gpu=x.1:y")
    assert found.devices == {"c-uid": (ClaimDevice("pool", "d0", ("r",), names),)}
    assert found.errors == {"o-uid": "the driver did not answer for it"}
    refused = claim_answers(prepared(messages=messages, error="no\nway"), [CLAIM])
    assert (refused.devices, set(refused.errors)) == ({}, {"c-uid"})


def test_an_unprepared_claim_has_no_devices() -> None:
    answers = {"c-uid": v1.NodeUnprepareResourceResponse()}
    found = claim_answers(v1.NodeUnprepareResourcesResponse(claims=answers), [CLAIM])
    assert (found.devices, found.errors) == ({"c-uid": ()}, {})


def test_a_share_of_a_device_is_kept() -> None:
    (found,) = claim_answers(prepared(device(share_id="s")), [CLAIM]).devices["c-uid"]
    assert found == ClaimDevice("pool", "d0", ("r",), (), "s")


@pytest.mark.parametrize(
    ("name", "fine"),
    [
        ("a.com/gpu=" + "x" * 502, True),
        ("a.com/gpu=" + "x" * 503, False),
        ("a.com/gpu=", False),
        ("gpu=0", False),
        ("a.com/gpu=0\n", False),
    ],
)
def test_names_of_cdi_devices(name: str, fine: bool) -> None:
    found = claim_answers(prepared(device("a.com/gpu=0", name)), [CLAIM])
    why = f"the driver gave {name[:80]!r}, which is no name of a CDI device"
    assert found.errors == ({} if fine else {"c-uid": why})


@pytest.mark.parametrize("more", [0, 1])
def test_the_most_devices_of_a_claim(more: int) -> None:
    found = claim_answers(prepared(*[device()] * (MAX_DEVICES + more)), [CLAIM])
    why = f"the driver named {MAX_DEVICES + 1} devices"
    assert found.errors == ({"c-uid": why} if more else {})
    assert len(found.devices.get("c-uid", ())) == (0 if more else MAX_DEVICES)


@pytest.mark.parametrize("text", ["x" * 254, "a\nb", "\x1b[2J"])
@pytest.mark.parametrize("field", ["pool_name", "device_name", "request_names", "share_id"])
def test_texts_that_cannot_be_names_are_refused(field: str, text: str) -> None:
    supplied: dict[str, Any] = {"pool_name": "p", "device_name": "d"}
    supplied[field] = [text] if field == "request_names" else text
    (error,) = claim_answers(prepared(v1.Device(**supplied)), [CLAIM]).errors.values()
    assert f"gave {text[:80]!r} as {field}" in error
    assert error.endswith("the claim is not prepared")


def test_very_many_names_are_counted_and_not_read() -> None:
    """A megabyte of them would take a fifth of a second of the event loop."""
    answer = prepared(device(*["a/b=c"] * 140_000))
    errors: list[str] = []
    made = calls(lambda: errors.extend(claim_answers(answer, [CLAIM]).errors.values()))
    assert made < 100
    (error,) = errors
    assert f"gave 140001 CDI devices and requests, more than {MAX_NAMES}" in error


def test_a_long_report_is_processed_in_parts() -> None:
    def reported(number: int) -> Any:
        key = health.DeviceIdentifier(pool_name="p", device_name=f"d{number}")
        return health.DeviceHealth(device=key, health="HEALTHY", message="x" * 20)

    report = health.NodeWatchResourcesResponse(devices=map(reported, range(20_000)))
    known: Any = {}
    longest = 0.0
    with no_collections():
        for part in report_parts(report):
            began = time.thread_time()
            known, changed = with_report(known, part, 0.0)
            longest = max(longest, time.thread_time() - began)
            assert len(changed) <= PART_DEVICES
    assert len(known) == MAX_REPORTED
    assert longest < 0.05, f"{longest:.3f} s of CPU time in one turn"
