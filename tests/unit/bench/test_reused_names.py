"""A pod created again under its name is a new pod: earlier times do not count for it."""

from __future__ import annotations

import asyncio
from typing import Any

from bench.subject import Subject
from bench.watching import READY, REMOVED, Watching
from kubeletpy.kubeapi.protocol import PODS

NAME = "warm"


class Api:
    """API that creates pods at once and shows them in a watch later."""

    def __init__(self) -> None:
        self.created = asyncio.Event()

    async def create(self, resource: object, obj: dict[str, Any], namespace: str) -> dict[str, Any]:
        self.created.set()
        return obj


def _pod(*conditions: str) -> dict[str, Any]:
    found = [{"type": each, "status": "True"} for each in conditions]
    return {"metadata": {"name": NAME}, "status": {"conditions": found}}


async def test_create_waits_for_the_new_pod() -> None:
    api: Any = Api()
    pods = Watching(api, PODS)
    for kind, pod in (("ADDED", _pod()), ("MODIFIED", _pod(READY)), ("DELETED", _pod(READY))):
        pods._take(kind, pod, 1.0)
    assert await pods.until(NAME, REMOVED) == 1.0

    creating = asyncio.create_task(Subject(api, pods, api).create([NAME]))
    await api.created.wait()
    pods._take("ADDED", _pod(), 2.0)
    assert not creating.done()
    pods._take("MODIFIED", _pod(READY), 3.0)
    assert [ready for _, ready in await creating] == [3.0]
