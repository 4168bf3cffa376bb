"""Health reports of drivers: how long they count, which pods they affect, what statuses show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.remote.generated import dra_health_pb2 as pb
from kubeletpy.resources.dra import health
from kubeletpy.resources.dra.health import HEALTHY, UNHEALTHY, UNKNOWN, DeviceHealth, Known
from kubeletpy.resources.dra.model import ClaimDevice, ClaimInfo, claim_uses
from tests.kit.claims import user

A = "a.example.com"
STATES = {HEALTHY: pb.HEALTHY, UNHEALTHY: pb.UNHEALTHY, UNKNOWN: pb.UNKNOWN}


def health_report(message: str = "", timeout: int = 0, **devices: str) -> Any:
    """A message that reports the health of the devices."""
    answer = pb.NodeWatchResourcesResponse()
    for name, state in devices.items():
        each = answer.devices.add(message=message, health_check_timeout_seconds=timeout)
        each.device.pool_name, each.device.device_name = "pool", name
        each.health = STATES[state]
    return answer


def key(name: str) -> tuple[str, str]:
    return "pool", name


def test_devices_with_changed_health() -> None:
    known, changed = health.with_report({}, health_report(d0=HEALTHY, d1=UNHEALTHY), 100)
    assert changed == {key("d0"), key("d1")}
    known, changed = health.with_report(known, health_report(d0=HEALTHY), 110)
    assert changed == set()
    assert (known[key("d0")].at, known[key("d1")].at) == (110, 100)  # d1 is not in the report
    for changes in (
        health_report("hot", d0=HEALTHY),
        health_report(timeout=5, d0=HEALTHY),
        health_report(d0=UNKNOWN),
    ):
        assert health.with_report(known, changes, 111)[1] == {key("d0")}
    # it was unknown meanwhile
    assert health.with_report(known, health_report(d0=HEALTHY), 141)[1] == {key("d0")}


@pytest.mark.parametrize(
    ("timeout", "at", "expected"),
    [
        (0, 130, HEALTHY),
        (0, 130.1, UNKNOWN),
        (-3, 130.1, UNKNOWN),
        (5, 105, HEALTHY),
        (5, 106, UNKNOWN),
        (1, 101, HEALTHY),
        (1, 101.5, UNKNOWN),
    ],
)
def test_a_report_counts_until_its_timeout(timeout: int, at: float, expected: str) -> None:
    known, _ = health.with_report({}, health_report("words", timeout, d0=HEALTHY), 100)
    assert known[key("d0")].now(at) == (expected, "words" if expected == HEALTHY else "")


def test_hostile_reports_are_bounded() -> None:
    flood: dict[str, Any] = {f"d{index}": HEALTHY for index in range(health.MAX_DEVICES + 5)}
    known, _ = health.with_report({}, health_report(**flood), 0)
    assert len(known) == 16384
    known, _ = health.with_report(known, health_report(other=HEALTHY, d0=UNHEALTHY), 0)
    assert key("other") not in known
    assert known[key("d0")].health == UNHEALTHY
    known, _ = health.with_report({}, health_report("ü\x1b" * 2000, timeout=2**62, d0=HEALTHY), 0)
    text = known[key("d0")].message
    assert len(text.encode()) <= health.MAX_TEXT
    assert text.endswith("ü...")
    assert health.next_end({A: known}) == 10 * 365 * 24 * 3600


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("a" * 1024, "a" * 1024),
        ("a" * 1025, "a" * 1021 + "..."),
        ("ü" * 512, "ü" * 512),
        ("ü" * 513, "ü" * 510 + "..."),
    ],
)
def test_a_message_is_cut_at_a_kibibyte(text: str, kept: str) -> None:
    known, _ = health.with_report({}, health_report(text, d0=HEALTHY), 0)
    assert known[key("d0")].message == kept


B = "b.example.com"


def test_expired_reports() -> None:
    """A report counts until its timeout; an unknown state expires without a change."""
    known: Known = {
        A: {
            key("d0"): DeviceHealth(HEALTHY, "", 100, 10),
            key("d1"): DeviceHealth(UNHEALTHY, "", 100, 9),
            key("d2"): DeviceHealth(UNKNOWN, "", 100, 5),
        },
        B: {key("d0"): DeviceHealth(UNHEALTHY, "", 100, 8)},
    }
    assert health.next_end({}) is None
    assert health.next_end(known) == 105
    d0, d1 = known[A][key("d0")], known[A][key("d1")]
    for now, kept, ended in (
        (100, known, set()),
        (108, {A: {key("d0"): d0, key("d1"): d1}, B: known[B]}, set()),
        (109, {A: {key("d0"): d0, key("d1"): d1}}, {(B, key("d0"))}),
        (110, {A: {key("d0"): d0}}, {(B, key("d0")), (A, key("d1"))}),
        (111, {}, {(B, key("d0")), (A, key("d1")), (A, key("d0"))}),
    ):
        assert health.without_ended(known, now) == (kept, ended)


def test_pods_that_use_a_device() -> None:
    claims = _claims(ClaimDevice("pool", "d0"), ClaimDevice("pool", "d1"))
    assert health.users(claims, {(A, key("d1"))}) == {"uid-p"}
    assert health.users(claims, {(A, key("d2")), (B, key("d0")), (A, ("other", "d0"))}) == set()
    assert health.users(claims, set()) == set()


def test_claims_of_others_are_not_shown() -> None:
    pod = user("p", "c")
    pod.containers[0]["resources"] = {"claims": [{"name": "c"}, {"name": "x"}]}
    of = claim_uses(pod)
    assert health.statuses({}, {}, pod, of, 0, messages=True) == {}
    assert health.statuses(_claims(), {}, pod, of, 0, messages=True) == {}
    (claim,) = _claims(ClaimDevice("pool", "d0")).values()
    theirs = {claim.key: replace(claim, pods=frozenset({"uid-q"}))}
    assert health.statuses(theirs, {}, pod, of, 0, messages=True) == {}


def _claims(*devices: ClaimDevice) -> dict[tuple[str, str], ClaimInfo]:
    claim = ClaimInfo("c-uid", "c", "default", frozenset({"uid-p"}), {A: devices}, prepared=True)
    return {claim.key: claim}


def test_health_in_statuses() -> None:
    devices = (
        ClaimDevice("pool", "d0", ("r0",), (f"{A}/gpu=0", f"{A}/common=x")),
        ClaimDevice("pool", "d1", ("r1",)),
        ClaimDevice("pool", "d2"),
        ClaimDevice("pool", "d3", ("r0",), (f"{A}/gpu=0",)),
    )
    pod = user("p", "c")
    known: Known = {
        A: {key("d0"): DeviceHealth(UNHEALTHY, "hot", 0), key("d1"): DeviceHealth(HEALTHY, "", 0)}
    }

    def reported(now: float = 1, **requested: Any) -> Any:
        entry: Any = {"name": "c", **requested}
        pod.containers[0]["resources"] = {"claims": [entry]}
        messages = not requested.get("silent")
        found = health.statuses(
            _claims(*devices), known, pod, claim_uses(pod), now, messages=messages
        )
        return found.get(pod.containers[0]["name"])

    d0 = {"resourceID": f"{A}/gpu=0", "health": UNHEALTHY, "message": "hot"}
    d1 = {"resourceID": f"{A}/pool/d1", "health": HEALTHY}
    d2 = {"resourceID": f"{A}/pool/d2", "health": UNKNOWN}
    assert reported() == [{"name": "claim:c", "resources": [d0, d1, d2]}]
    assert reported(request="r0") == [{"name": "claim:c/r0", "resources": [d0, d2]}]
    assert reported(request="r1/big") == [{"name": "claim:c/r1/big", "resources": [d1, d2]}]
    assert [each["health"] for each in reported(now=31)[0]["resources"]] == [UNKNOWN] * 3
    assert "message" not in reported(silent=True)[0]["resources"][0]
    pod.containers[0]["resources"] = {}
    assert health.statuses(_claims(*devices), known, pod, claim_uses(pod), 1, messages=True) == {}


def test_the_file(tmp_path: Path) -> None:
    known: Known = {A: {key("d0"): DeviceHealth(UNHEALTHY, "hot", 1_700_000_000.25, 5)}}
    text = health.render(known)
    assert health.parse_health(text) == known
    entry = json.loads(text)[A]["Devices"]["pool/d0"]
    assert entry["HealthCheckTimeout"] == 5_000_000_000
    entry["LastUpdated"] = "2023-11-14T23:13:20.250000000+01:00"
    assert health.parse_health(json.dumps({A: {"Devices": {"pool/d0": entry}}})) == known
    of_a_kubelet = (
        '{"gpu.example.com":{"Devices":{"pool/d0":{"PoolName":"pool","DeviceName":"d0","Health":'
        '"Healthy","LastUpdated":"2026-11-22T12:11:11.100968404Z","HealthCheckTimeout":'
        '30000000000,"Message":""}}}}'
    )
    (found,) = health.parse_health(of_a_kubelet)["gpu.example.com"].values()
    assert (found.health, found.timeout, found.message) == (HEALTHY, 30, "")
    for bad in ("", "[]", "{", '{"a": 1}', '{"a": {"Devices": {"x": {}}}}', "[" * 10**5):
        assert health.parse_health(bad) == {}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, DeviceHealth(UNHEALTHY, "hot", 5, 5)),
        ({"Health": "Odd"}, DeviceHealth(UNKNOWN, "hot", 5, 5)),
        ({"Health": HEALTHY}, DeviceHealth(HEALTHY, "hot", 5, 5)),
        ({"HealthCheckTimeout": 0}, DeviceHealth(UNHEALTHY, "hot", 5, 30)),
        ({"HealthCheckTimeout": None}, DeviceHealth(UNHEALTHY, "hot", 5, 30)),
        ({"HealthCheckTimeout": -(10**9)}, DeviceHealth(UNHEALTHY, "hot", 5, 30)),
        ({"HealthCheckTimeout": 5 * 10**8}, DeviceHealth(UNHEALTHY, "hot", 5, 0.5)),
        ({"HealthCheckTimeout": 10**19}, DeviceHealth(UNHEALTHY, "hot", 5, 315_360_000)),
        ({"Message": None}, DeviceHealth(UNHEALTHY, "", 5, 5)),
        ({"Message": "a" * 2000}, DeviceHealth(UNHEALTHY, "a" * 1021 + "...", 5, 5)),
    ],
)
def test_an_entry_of_the_file(more: dict[str, Any], expected: DeviceHealth) -> None:
    known: Known = {A: {key("d0"): DeviceHealth(UNHEALTHY, "hot", 5, 5)}}
    document = json.loads(health.render(known))
    document[A]["Devices"]["pool/d0"].update(more)
    assert health.parse_health(json.dumps(document)) == {A: {key("d0"): expected}}


def test_the_file_is_bounded_too() -> None:
    report = DeviceHealth(HEALTHY, "", 0)
    assert "ü" in health.render({A: {key("d0"): DeviceHealth(UNHEALTHY, "ü", 0)}})
    many: Known = {A: {key(str(index)): report for index in range(16400)}}
    assert len(health.parse_health(health.render(many))[A]) == 16384
