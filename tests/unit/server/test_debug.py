"""/debug/, /flagz, /statusz and the health checks: their content, and what they must not show."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.config import NodeFlags, default_settings
from kubeletpy.config.flags import flag_texts
from kubeletpy.server import answers
from kubeletpy.server.debug.profile_proto import CodeLocation, Weight, encode, folded
from kubeletpy.server.settings import AccessSettings, EndpointSettings, log_problem
from tests.kit.server import Pki, Running, make_view, serving


@pytest.fixture
async def server(pki: Pki, tmp_path: Path) -> AsyncIterator[Running]:
    access = AccessSettings(always_allow=True)
    async with serving(make_view(tmp_path), None, pki, access) as running:
        yield running


async def get(server: Running, path: str, **headers: str) -> tuple[int, str]:
    return await server.request("GET", path, client=server.pki.client, headers=headers)


# -- profiles ----------------------------------------------------------------------------------


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a protobuf message, one level deep."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 2:
            size = varint()
            yield key >> 3, data[at : at + size]
            at += size
        else:
            assert key & 7 == 0
            yield key >> 3, varint()


def test_a_profile_in_pprof_s_format() -> None:
    a, b = CodeLocation("f", "x.py", 300), CodeLocation("g", "x.py", 2)
    stacks = {(a, b): Weight(3, 30_000_000), (b,): Weight(1, 5_000_000)}
    assert folded(stacks) == "g (x.py:2);f (x.py:300) 30000\ng (x.py:2) 5000\n"
    packed = encode(stacks, began_ns=10**18, took_ns=10**9, period_ns=10**7)
    message = list(fields(gzip.decompress(packed)))
    strings = [value.decode() for number, value in message if number == 6]
    assert strings[0] == ""
    kinds = [dict(fields(value)) for number, value in message if number == 1]
    assert [(strings[k[1]], strings[k[2]]) for k in kinds] == [
        ("samples", "count"),
        ("cpu", "nanoseconds"),
    ]
    functions = {
        each[1]: (strings[each[2]], strings[each[4]])
        for each in (dict(fields(value)) for number, value in message if number == 5)
    }
    locations = {
        each[1]: dict(fields(each[4]))
        for each in (dict(fields(value)) for number, value in message if number == 4)
    }
    samples = [dict(fields(value)) for number, value in message if number == 2]
    reported = [functions[locations[number][1]] for number in samples[0][1]]
    assert reported == [("f", "x.py"), ("g", "x.py")]
    assert locations[samples[0][1][0]][2] == 300
    assert samples[1][2] == bytes([1]) + b"\xc0\x96\xb1\x02"
    assert dict(message)[9] == 10**18


def test_a_profile_field_by_field() -> None:
    """Field numbers are those of pprof's profile.proto; 0 is no id and the empty text."""
    a, b, c = CodeLocation("f", "x.py", 3), CodeLocation("g", "x.py", 2), CodeLocation("f", "", 4)
    stacks = {(a, b): Weight(3, 30), (c,): Weight(1, 5)}
    packed = encode(stacks, began_ns=7, took_ns=8, period_ns=9)
    assert packed[4:8] == bytes(4), "the same profile is the same bytes"
    nested = {1, 2, 4, 5, 11}
    found = [
        (number, list(fields(value)) if number in nested else value)
        for number, value in fields(gzip.decompress(packed))
    ]
    assert found == [
        (1, [(1, 1), (2, 2)]),
        (1, [(1, 3), (2, 4)]),
        (2, [(1, b"\x01\x02"), (2, b"\x03\x1e")]),
        (2, [(1, b"\x03"), (2, b"\x01\x05")]),
        (4, [(1, 1), (4, b"\x08\x01\x10\x03")]),
        (4, [(1, 2), (4, b"\x08\x02\x10\x02")]),
        (4, [(1, 3), (4, b"\x08\x03\x10\x04")]),
        (5, [(1, 1), (2, 5), (3, 5), (4, 6)]),
        (5, [(1, 2), (2, 7), (3, 7), (4, 6)]),
        (5, [(1, 3), (2, 5), (3, 5), (4, 0)]),
        *((6, text) for text in b" samples count cpu nanoseconds f x.py g".split(b" ")),
        (9, 7),
        (10, 8),
        (11, [(1, 3), (2, 4)]),
        (12, 9),
    ]


async def test_a_cpu_profile_names_the_busy_function(server: Running) -> None:
    async def burn() -> None:
        while True:
            until = time.thread_time() + 0.02
            while time.thread_time() < until:
                sum(range(100))
            await asyncio.sleep(0)

    began = time.process_time()
    burning = asyncio.create_task(burn())
    status, text = await get(server, "/debug/pprof/profile?seconds=1&debug=1")
    burning.cancel()
    # with TLS and the answer; it is little where others have the cores
    spent = time.process_time() - began
    assert status == 200
    weights = {line.rpartition(" ")[0]: int(line.rpartition(" ")[2]) for line in text.splitlines()}
    burnt = sum(weight for stack, weight in weights.items() if "burn" in stack)
    assert burnt > 0.5 * sum(weights.values()) > 0.1 * spent * 1e6
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


async def test_one_profile_at_a_time_and_none_after_its_client_has_gone(server: Running) -> None:
    first = asyncio.create_task(get(server, "/debug/pprof/profile?seconds=60"))
    async with asyncio.timeout(5):
        while signal.getitimer(signal.ITIMER_PROF)[1] == 0:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.01)
    assert (await get(server, "/debug/pprof/profile?seconds=1"))[0] == 429
    first.cancel()
    async with asyncio.timeout(5):
        while signal.getitimer(signal.ITIMER_PROF)[1] > 0:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.01)
    assert (await get(server, "/debug/pprof/profile?seconds=1&debug=1"))[0] == 200


@pytest.mark.parametrize("seconds", ["0", "-1", "x", "301", "9" * 1000, "%C2%B2"])
async def test_seconds_are_bounded(server: Running, seconds: str) -> None:
    assert (await get(server, f"/debug/pprof/profile?seconds={seconds}"))[0] == 400


async def test_dumps_show_places_and_no_values(server: Running) -> None:
    async def waits_in_a_named_place(_password: str) -> None:
        await asyncio.get_running_loop().create_future()

    tasks = [
        asyncio.create_task(waits_in_a_named_place("hunter2"), name=f"t{i}") for i in range(20)
    ]
    await asyncio.sleep(0)
    status, text = await get(server, "/debug/pprof/goroutine?debug=2")
    assert status == 200
    assert "20 @ t0, t1, t10, " in text
    assert "waits_in_a_named_place" in text
    assert "hunter2" not in text
    for name, parts in (
        ("heap", "objects: total"),
        ("threadcreate", "MainThread"),
        ("", '<a href="profile">'),
    ):
        status, text = await get(server, f"/debug/pprof/{name}")
        assert (status, parts in text) == (200, True), name
    assert (await get(server, "/debug/pprof/trace"))[0] == 501
    assert (await get(server, "/debug/pprof/other"))[0] == 404
    for task in tasks:
        task.cancel()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--manifest-url-header=Auth:hunter2"],
        ["--manifest_url_header=Auth:hunter2"],
        ["--manifest-url-header", "Auth:hunter2", "--v=3"],
    ],
)
def test_the_command_line_hides_credentials(arguments: list[str]) -> None:
    reported = answers._masked(["kubeletpy", "run", *arguments])
    assert "hunter2" not in " ".join(reported)
    assert len(reported) == len(arguments) + 2


# -- flags, status -----------------------------------------------------------------------------


def test_flags_show_what_is_in_effect_and_no_credential() -> None:
    settings = default_settings(
        port=12345,
        staticPodURL="http://x",
        staticPodURLHeader={"Auth": ["hunter2"]},
        clusterDNS=["10.0.0.1", "10.0.0.2"],
        syncFrequency="30s",
        featureGates={"EventedPLEG": True},
    )
    texts = flag_texts(settings, NodeFlags(node_ip="1.2.3.4", node_labels={"a": "b"}))
    expected = {
        "port": "12345",
        "cluster-dns": "[10.0.0.1,10.0.0.2]",
        "sync-frequency": "30s",
        "node-ip": "1.2.3.4",
        "node-labels": "a=b",
        "feature-gates": "EventedPLEG=true",
        "fail-swap-on": "true",
    }
    assert expected.items() <= texts.items()
    assert "hunter2" not in str(texts)
    assert "containerd" not in texts


async def test_flagz_and_statusz(server: Running) -> None:
    status, text = await get(server, "/flagz")
    assert (status, text.startswith("\nkubelet flagz\nWarning: ")) == (200, True)
    assert text.endswith("\nv=0\n")
    status, text = await get(server, "/statusz", Accept="text/plain")
    assert (status, "Binary version: 1.36.0" in text) == (200, True)
    assert "/exec" in text
    assert "Started: 2023-11-14T22:13:20Z" in text
    form = "application/json;as={};v={};g=config.k8s.io"
    for page, field in (("Flagz", "flags"), ("Statusz", "startTime")):
        for version in ("v1alpha1", "v1beta1"):
            accept = form.format(page, version)
            status, text = await get(server, f"/{page.lower()}", Accept=accept)
            body = json.loads(text)
            assert (status, body["kind"], body["apiVersion"]) == (
                200,
                page,
                f"config.k8s.io/{version}",
            )
            assert body[field]
    for accept in ("application/json", form.format("Other", "v1beta1"), "image/png"):
        assert (await get(server, "/flagz", Accept=accept))[0] == 406


async def test_endpoints_that_are_switched_off(pki: Pki, tmp_path: Path) -> None:
    off = EndpointSettings(profiling=False, debug_flags=False, flagz=False, statusz=False)
    access = AccessSettings(always_allow=True)
    async with serving(make_view(tmp_path), None, pki, access, endpoints=off) as server:
        assert await get(server, "/debug/pprof/") == (405, "profiling endpoint is disabled.\n")
        put = await server.request("PUT", "/debug/flags/v", client=pki.client)
        assert put == (405, "flags endpoint is disabled.\n")
        for path in ("/flagz", "/statusz"):
            assert (await get(server, path))[0] == 404
        checkpoint = await server.request("POST", "/checkpoint/n/p/c", client=pki.client)
        assert checkpoint[0] == 404


# -- logs --------------------------------------------------------------------------------------


class Sink(logging.Handler):
    """A log handler with a verbosity."""

    verbosity = -1
    why = ""

    def emit(self, record: logging.LogRecord) -> None:
        pass

    def set_verbosity(self, level: int) -> None:
        self.verbosity = level

    def problem(self) -> str:
        return self.why


@pytest.fixture
def sink() -> Iterator[Sink]:
    made = Sink()
    logging.getLogger().addHandler(made)
    yield made
    logging.getLogger().removeHandler(made)


@pytest.mark.parametrize(
    ("body", "status", "level"),
    [("4", 200, 4), ("0\n", 200, 0), ("x", 400, -1), ("", 400, -1), ("9" * 100, 400, -1)],
)
async def test_the_verbosity_can_be_set(
    server: Running, sink: Sink, body: str, status: int, level: int
) -> None:
    found, text = await server.request(
        "PUT", "/debug/flags/v", client=server.pki.client, body=body.encode()
    )
    assert (found, sink.verbosity) == (status, level)
    parts = "successfully set klog.logging.verbosity to" if status == 200 else "failed set"
    assert parts in text


def test_the_health_of_logs(sink: Sink) -> None:
    assert log_problem() == ""
    sink.why = "stuck"
    assert log_problem() == "stuck"
