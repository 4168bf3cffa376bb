"""Mirror pods: which ones are replaced, and that no step waits for the API."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from kubeletpy.kubeapi.errors import AlreadyExists, NotFound, Unavailable
from kubeletpy.kubeapi.protocol import Resource
from kubeletpy.pods.pod import CONFIG_HASH, CONFIG_MIRROR, Pod
from kubeletpy.syncloop.mirror import ApiMirrorKeeper, is_current
from tests.kit.pods import make_static, pod_object
from tests.kit.virtual_time import settle

pytestmark = pytest.mark.virtual_time


def mirror(digest: str = "uid-static", **kwargs: Any) -> Pod:
    obj = pod_object("static", "m", **kwargs)
    obj["metadata"]["annotations"] = {CONFIG_MIRROR: digest}
    return Pod(obj)


@pytest.mark.parametrize(
    ("found", "current"), [(mirror(), True), (mirror("old"), False), (mirror(deleting=0), False)]
)
def test_mirrors_of_other_manifests_and_deleted_ones_are_replaced(
    found: Pod, current: bool
) -> None:
    assert is_current(make_static(), found) is current


class Api:
    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.create_error: Exception | None = None
        self.delete_error: Exception | None = None
        self.existing: Any = {}

    async def create(
        self, resource: Resource, obj: Any, namespace: str | None = None, **kwargs: Any
    ) -> Any:
        self.calls.append(("create", obj))
        if self.create_error is not None:
            raise self.create_error
        return obj

    async def delete(
        self, resource: Resource, name: str, namespace: str | None = None, **kwargs: Any
    ) -> Any:
        self.calls.append(("delete", name, kwargs))
        if self.delete_error is not None:
            raise self.delete_error
        return {}

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Any:
        return self.existing

    @property
    def verbs(self) -> list[str]:
        return [call[0] for call in self.calls]


def keeper(api: Api, uid: str | None = "node-uid") -> ApiMirrorKeeper:
    return ApiMirrorKeeper(api, "n", lambda: uid, rng=random.Random(1))  # type: ignore[arg-type]


async def test_the_fields_of_a_mirror() -> None:
    api = Api()
    keeper(api).reconcile(make_static(), None)
    await settle()
    ((_, obj),) = api.calls
    annotations = obj["metadata"]["annotations"]
    assert annotations[CONFIG_MIRROR] == annotations[CONFIG_HASH] == "uid-static"
    assert obj["metadata"]["ownerReferences"][0]["uid"] == "node-uid"
    assert "uid" not in obj["metadata"]


async def test_a_stale_mirror_is_replaced() -> None:
    api = Api()
    api.delete_error = NotFound("gone", code=404)
    keeper(api).reconcile(make_static(), mirror("old"))
    await settle()
    assert api.verbs == ["delete", "create"]
    assert api.calls[0][2] == {"grace_period_seconds": 0, "uid": "m"}


async def test_without_a_node_no_mirror_is_made_and_orphans_are_removed() -> None:
    api = Api()
    keeper(api, None).reconcile(make_static(), None)
    keeper(api).delete(mirror())
    await settle()
    assert api.verbs == ["delete"]


async def test_an_api_that_does_not_answer_is_retried() -> None:
    api = Api()
    api.create_error = Unavailable("no answer")
    mirrors = keeper(api)
    for _ in range(5):
        mirrors.reconcile(make_static(), None)
    await asyncio.sleep(10)
    assert 3 <= len(api.calls) <= 5
    api.create_error = None
    await asyncio.sleep(60)
    calls = len(api.calls)
    await asyncio.sleep(600)
    assert len(api.calls) == calls
    await mirrors.close()


async def test_one_that_exists_already_is_fine_if_it_is_ours() -> None:
    api = Api()
    api.create_error = AlreadyExists("is there", code=409)
    api.existing = mirror().object
    mirrors = keeper(api)
    mirrors.reconcile(make_static(), None)
    await asyncio.sleep(100)
    assert api.verbs == ["create"]
    api.existing = mirror("other").object
    mirrors.reconcile(make_static(), None)
    await asyncio.sleep(100)
    assert len(api.calls) > 2
    await mirrors.close()
