"""Large patches and objects are refused, or processed in linear time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kubeletpy_up import errors
from kubeletpy_up.errors import ApiError
from kubeletpy_up.http import bodies
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import ADMIN, WriteOptions
from kubeletpy_up.schema.formats import MAX_VALUES
from kubeletpy_up.storage import store
from tests.kit.embedded import make_registry, pod, refusal

JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
MANY = 16_000


@contextmanager
def soon() -> Iterator[None]:
    """Fails work of quadratic time, which would take minutes."""
    began = time.thread_time()
    yield
    assert time.thread_time() - began < 5


@pytest.fixture
def registry() -> Registry:
    made = make_registry()
    made.create(ADMIN, "pods", pod("a", schedulerName="none"), "default")
    made.create(ADMIN, "configmaps", {"metadata": {"name": "a"}, "data": {"a": "b"}}, "default")
    return made


def named(count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"name": f"c{index}", **more} for index in range(count)]


FINALIZERS = [f"x.y/{index}" for index in range(MANY)]


@pytest.mark.parametrize(
    "patch",
    [
        {"metadata": {"finalizers": FINALIZERS}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": FINALIZERS, "finalizers": FINALIZERS}},
        {"metadata": {"$setElementOrder/finalizers": FINALIZERS, "finalizers": FINALIZERS[::-1]}},
        {"metadata": {"$retainKeys": FINALIZERS, "labels": dict.fromkeys(FINALIZERS, "x")}},
        {"spec": {"containers": named(MANY)}},
        {"spec": {"containers": named(MANY, **{"$patch": "delete"})}},
        {
            "spec": {
                "$setElementOrder/containers": named(MANY // 2),
                "containers": named(MANY // 2, image="x"),
            }
        },
    ],
)
def test_strategic_merges(registry: Registry, patch: dict[str, Any]) -> None:
    with soon():
        try:
            registry.patch(ADMIN, "pods", "a", patch, "default", patch_type=STRATEGIC)
        except ApiError as error:
            assert error.code in (400, 422)


def test_copies_of_copies(registry: Registry) -> None:
    patch: list[Any] = [{"op": "add", "path": "/data/a", "value": "x" * 1000}]
    patch += [{"op": "copy", "from": "", "path": f"/data/{index}"} for index in range(40)]
    with soon():
        error = refusal(
            registry.patch, ADMIN, "configmaps", "a", patch, "default", patch_type=JSON_PATCH
        )
    assert (error.code, error.reason) == (413, "RequestEntityTooLarge")


def test_a_move_is_no_copy(registry: Registry) -> None:
    large = {f"k{index}": "v" for index in range(20_000)}
    patch: list[Any] = [{"op": "add", "path": "/metadata/x", "value": large}]
    for index in range(4_000):
        there, back = f"/metadata/y{index}", "/metadata/x"
        patch.append({"op": "move", "from": back, "path": there})
        patch.append({"op": "move", "from": there, "path": back})
    patch.append({"op": "remove", "path": "/metadata/x"})
    with soon():
        registry.patch(ADMIN, "configmaps", "a", patch, "default", patch_type=JSON_PATCH)


def test_an_endlessly_nested_patch(registry: Registry) -> None:
    patch: list[Any] = [{"op": "add", "path": "/data", "value": {}}]
    patch += [{"op": "add", "path": "/data" + "/d" * at, "value": {}} for at in range(1, 2_000)]
    patch += [{"op": "copy", "from": "/data", "path": "/data/e"}]
    error = refusal(
        registry.patch, ADMIN, "configmaps", "a", patch, "default", patch_type=JSON_PATCH
    )
    assert (error.code, error.message) == (400, "the patched object is nested too deep")


def test_applies_of_long_lists(registry: Registry) -> None:
    applied = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "b"},
        "spec": {"schedulerName": "none", "containers": named(2_000, image="x")},
    }
    options = WriteOptions(field_manager="m")
    with soon():
        for _ in range(2):
            registry.patch(
                ADMIN, "pods", "b", applied, "default", patch_type=APPLY, options=options
            )


def test_many_mistakes_are_counted(registry: Registry) -> None:
    wrong = pod("c", containers=[{} for _ in range(2_000)])
    error = refusal(registry.create, ADMIN, "pods", wrong, "default")
    assert error.code == 422
    assert len(error.details["causes"]) == errors.MAX_CAUSES
    assert error.message.endswith("more]")
    assert len(json.dumps(error.status())) < 64 << 10


def test_many_conflicts_are_counted(registry: Registry) -> None:
    def apply(value: str) -> None:
        data = {f"k{index}": value for index in range(2_000)}
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}, "data": data}
        registry.patch(
            ADMIN,
            "configmaps",
            "d",
            made,
            "default",
            patch_type=APPLY,
            options=WriteOptions(field_manager=value),
        )

    apply("one")
    error = refusal(apply, "two")
    assert error.message.startswith("Apply failed with 2000 conflicts")
    assert len(json.dumps(error.status())) < 64 << 10


def test_a_body_of_too_many_values() -> None:
    for count, refused in ((MAX_VALUES - 1, False), (MAX_VALUES, True)):
        body = json.dumps({"a": [1] * count}).encode()
        if refused:
            with pytest.raises(ApiError) as caught:
                bodies.decode(body, "application/json")
            assert (caught.value.code, caught.value.reason) == (413, "RequestEntityTooLarge")
        else:
            assert bodies.decode(body, "application/json")


def test_an_object_grows_no_further(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_OBJECT", 4_000)
    patch = {"metadata": {"labels": {f"l{index}": "x" * 60 for index in range(100)}}}
    error = refusal(registry.patch, ADMIN, "configmaps", "a", patch, "default")
    assert (error.code, error.reason) == (413, "RequestEntityTooLarge")
    assert "labels" not in registry.get(ADMIN, "configmaps", "a", "default")["metadata"]
