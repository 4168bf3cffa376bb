"""Strategic merge patch: keyed lists and every directive."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kubeletpy_up.errors import ApiError
from kubeletpy_up.patching.strategic_merge import strategic_merge

POD = "io.k8s.api.core.v1.Pod"


def merged(original: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    before = copy.deepcopy((original, patch))
    result = strategic_merge(POD, original, patch)
    assert (original, patch) == before, "the input was changed"
    return result


def containers(*names: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": name, "image": name} for name in names]}}


def names(pod: dict[str, Any]) -> list[str]:
    return [container["name"] for container in pod["spec"]["containers"]]


def test_keyed_list_merges_by_name() -> None:
    patch = {"spec": {"containers": [{"name": "b", "image": "new"}, {"name": "c", "tty": True}]}}
    assert merged(containers("a", "b"), patch) == {
        "spec": {
            "containers": [
                {"name": "a", "image": "a"},
                {"name": "b", "image": "new"},
                {"name": "c", "tty": True},
            ]
        }
    }


def test_nested_keyed_lists() -> None:
    def ports(*numbers: int) -> dict[str, Any]:
        listed = [{"containerPort": number} for number in numbers]
        return {"spec": {"containers": [{"name": "a", "ports": listed}]}}

    patch = ports(81)
    patch["spec"]["containers"][0]["ports"][0]["name"] = "x"
    found = merged(ports(80, 81), patch)["spec"]["containers"][0]["ports"]
    assert found == [{"containerPort": 80}, {"containerPort": 81, "name": "x"}]


def test_atomic_lists_and_scalars_are_replaced() -> None:
    given = {"spec": {"containers": [{"name": "a", "args": ["1", "2"], "image": "i"}]}}
    patch = {"spec": {"containers": [{"name": "a", "args": ["3"]}]}}
    assert merged(given, patch)["spec"]["containers"] == [
        {"name": "a", "args": ["3"], "image": "i"}
    ]


def test_null_deletes_and_maps_merge() -> None:
    given = {"metadata": {"labels": {"a": "1", "b": "2"}, "annotations": {"x": "y"}}}
    patch = {"metadata": {"labels": {"a": None, "c": "3"}, "annotations": None}}
    assert merged(given, patch) == {"metadata": {"labels": {"b": "2", "c": "3"}}}
    assert merged({}, {"metadata": {"labels": {"a": None}}}) == {"metadata": {"labels": {}}}


def test_patch_delete_item() -> None:
    patch = {"spec": {"containers": [{"$patch": "delete", "name": "a"}]}}
    assert names(merged(containers("a", "b"), patch)) == ["b"]


def test_patch_replace_list_and_map() -> None:
    patch = {"spec": {"containers": [{"name": "z"}, {"$patch": "replace"}]}}
    assert merged(containers("a", "b"), patch) == {"spec": {"containers": [{"name": "z"}]}}
    given = {"metadata": {"labels": {"a": "1"}}}
    replaced = merged(given, {"metadata": {"labels": {"$patch": "replace", "b": "2"}}})
    assert replaced == {"metadata": {"labels": {"b": "2"}}}
    assert merged(given, {"metadata": {"labels": {"$patch": "delete"}}}) == {
        "metadata": {"labels": {}}
    }


def test_set_element_order() -> None:
    patch = {
        "spec": {
            "$setElementOrder/containers": [{"name": "c"}, {"name": "a"}],
            "containers": [{"name": "c", "image": "c"}],
        }
    }
    assert names(merged(containers("a", "server"), patch)) == ["c", "a", "server"]
    only_order = {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}}
    assert names(merged(containers("a", "b"), only_order)) == ["b", "a"]


def test_primitive_lists() -> None:
    given = {"metadata": {"finalizers": ["a", "b"]}}
    added = merged(given, {"metadata": {"finalizers": ["c", "a"]}})
    assert added == {"metadata": {"finalizers": ["a", "b", "c"]}}
    removed = merged(given, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}})
    assert removed == {"metadata": {"finalizers": ["b"]}}
    patch = {
        "$setElementOrder/finalizers": ["c", "b"],
        "$deleteFromPrimitiveList/finalizers": ["a"],
        "finalizers": ["c"],
    }
    assert merged(given, {"metadata": patch}) == {"metadata": {"finalizers": ["c", "b"]}}


def test_retain_keys() -> None:
    given = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}
    item = {"$retainKeys": ["name", "hostPath"], "name": "v", "hostPath": {"path": "/"}}
    assert merged(given, {"spec": {"volumes": [item]}}) == {
        "spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}
    }


def test_what_client_side_apply_sends_for_an_image_change() -> None:
    patch = {
        "metadata": {"annotations": {"last": "x"}},
        "spec": {
            "$setElementOrder/containers": [{"name": "a"}, {"name": "b"}],
            "containers": [{"image": "new", "name": "b"}],
        },
    }
    found = merged(containers("a", "b"), patch)
    assert found["spec"]["containers"][1] == {"name": "b", "image": "new"}
    assert names(found) == ["a", "b"]


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        ({"spec": {"containers": [{"image": "x"}]}}, 422),
        ({"spec": {"containers": ["x"]}}, 400),
        ({"metadata": {"$patch": "explode"}}, 400),
        ({"metadata": {"$setElementOrder/finalizers": "x"}}, 400),
        ({"metadata": {"$retainKeys": [1]}}, 400),
        ({"metadata": {"$deleteFromPrimitiveList/finalizers": {}}}, 400),
    ],
)
def test_malformed(patch: dict[str, Any], code: int) -> None:
    with pytest.raises(ApiError) as caught:
        merged(containers("a"), patch)
    assert caught.value.code == code


def test_unknown_kind_is_a_plain_merge() -> None:
    found = strategic_merge(None, {"a": {"b": 1}, "l": [1]}, {"a": {"c": 2}, "l": [2]})
    assert found == {"a": {"b": 1, "c": 2}, "l": [2]}
