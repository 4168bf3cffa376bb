"""Watches that keep failing, with reason and start time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.kubeapi.errors import Unavailable
from kubeletpy.kubeapi.protocol import SECRETS, SERVICES, WatchEvent
from kubeletpy.kubeapi.reflector import Reflector
from kubeletpy.kubeapi.watch_state import LASTING_S, FailingWatch, FailingWatches
from tests.virtual_time import on_virtual_time, settle

from .scripted_api import ScriptedApi

BROKEN = Unavailable("watch of services: the answer is no gzip")
ACCEPTED = WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": "7"}})
WHOLE = WatchEvent(
    "BOOKMARK",
    {
        "metadata": {
            "resourceVersion": "7",
            "annotations": {"k8s.io/initial-events-end": "true"},
        }
    },
)


def services(since: float, failures: int = 1, why: str = "broken") -> FailingWatch:
    return FailingWatch("services", "", "", why, since, failures)


@pytest.mark.parametrize(
    ("happens", "found"),
    [
        ([], []),
        ([1.0], []),
        ([1.0, 2.0, 4.0], [services(1.0, 3)]),
        ([1.0, 2.0, "accepted 3"], []),
        ([1.0, "accepted 2", 3.0], [services(1.0, 2)]),
        ([1.0, 2.0, f"accepted {3 + LASTING_S}", 3 + 2 * LASTING_S], []),
        ([1.0, 2.0, "accepted 3", 40.0, 41.0], [services(40.0, 2)]),
        ([1.0, 2.0, "ended"], []),
        (["accepted 1", 2.0, 3.0], [services(2.0, 2)]),
    ],
)
def test_consecutive_failures(happens: Sequence[float | str], found: list[FailingWatch]) -> None:
    watches = FailingWatches()
    for each in happens:
        if isinstance(each, float):
            watches.failed("a", services(each))
        elif each == "ended":
            watches.ended("a")
        else:
            watches.accepted("a", float(each.removeprefix("accepted ")))
    assert watches.now() == found


def test_the_longest_failure_is_first() -> None:
    watches, secret = FailingWatches(), FailingWatch("secrets", "ns", "token", "no", 5.0)
    for watch, row in (("b", secret), ("a", services(1.0))) * 2:
        watches.failed(watch, row)
    assert [each.target for each in watches.now()] == ["services", "secrets ns/token"]
    assert [each.target for each in watches.of_objects([("secrets", "ns", "token")])] == [
        "secrets ns/token"
    ]
    assert replace(secret, name="").target == "secrets in namespace ns"
    assert replace(secret, namespace="").target == "secrets token"


def reflector(api: ScriptedApi, **options: Any) -> Reflector:
    return Reflector(api, SERVICES, on_replace=lambda _: None, on_event=lambda _: None, **options)


@on_virtual_time
async def test_a_watch_that_keeps_failing_is_named_until_it_is_accepted() -> None:
    api = ScriptedApi([], [[BROKEN], [BROKEN], [BROKEN], [WHOLE, 300.0]], streams_lists=True)
    following = asyncio.ensure_future(reflector(api).run())
    await api.called(3)
    await settle()
    (found,) = api.failing_watches.now()
    assert (found.target, found.why, found.since, found.failures) == (
        *("services", BROKEN.message),
        *(0.0, 3),
    )
    await api.called(4)
    await settle()
    assert api.failing_watches.now() == []
    following.cancel()


@on_virtual_time
async def test_a_watch_that_is_accepted_and_then_breaks_each_time_is_named() -> None:
    """Each LIST succeeds, and each watch answer begins without an error."""
    api = ScriptedApi(
        [{"items": [], "metadata": {"resourceVersion": "7"}}], [[ACCEPTED, BROKEN]] * 4
    )
    following = asyncio.ensure_future(reflector(api).run())
    await api.called(5)
    await settle()
    (found,) = api.failing_watches.now()
    assert (found.since, found.failures) == (0.0, 4)
    following.cancel()
    await settle()
    assert api.failing_watches.now() == [], "the reflector has ended"


@on_virtual_time
async def test_the_watch_of_one_object_is_named_by_its_object() -> None:
    api = ScriptedApi([], [[BROKEN]] * 2, streams_lists=True)
    one = Reflector(
        api,
        SECRETS,
        namespace="ns",
        on_replace=lambda _: None,
        on_event=lambda _: None,
        field_selector="metadata.name=token",
    )
    following = asyncio.ensure_future(one.run())
    await api.called(2)
    await settle()
    assert [each.target for each in api.failing_watches.now()] == ["secrets ns/token"]
    following.cancel()
