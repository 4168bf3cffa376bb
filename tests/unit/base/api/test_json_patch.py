"""JSON patch and JSON merge patch: results, and reasons of refusals."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kubeletpy.base.api.json_patch import (
    MAX_OPERATIONS,
    DoesNotFit,
    MalformedPatch,
    NoMergeKey,
    TooLarge,
    json_patch,
    merge_patch,
    strategic_merge,
)
from kubeletpy_up.schema import definitions

OBJECT: dict[str, Any] = {"a": {"b": 1, "c/d": 2, "e~f": 3}, "list": ["x", "y"]}


def op(name: str, path: str, **more: Any) -> dict[str, Any]:
    return {"op": name, "path": path, **more}


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        ([], {}),
        ([op("add", "/n", value=1)], {"n": 1}),
        ([op("add", "/list/0", value="w")], {"list": ["w", "x", "y"]}),
        ([op("add", "/list/-", value="z")], {"list": ["x", "y", "z"]}),
        ([op("add", "/list/2", value="z")], {"list": ["x", "y", "z"]}),
        ([op("replace", "/list/1", value="z")], {"list": ["x", "z"]}),
        ([op("replace", "/new", value="z")], {"new": "z"}),
        ([op("remove", "/list/0")], {"list": ["y"]}),
        ([op("remove", "/a/c~1d"), op("remove", "/a/e~0f")], {"a": {"b": 1}}),
        ([op("copy", "/m", **{"from": "/list"})], {"m": ["x", "y"]}),
        ([op("move", "/list", **{"from": "/a"})], {"a": None, "list": OBJECT["a"]}),
        ([op("test", "/a/b", value=1), op("replace", "/a", value=0)], {"a": 0}),
    ],
)
def test_operations(operations: Any, expected: dict[str, Any]) -> None:
    before = copy.deepcopy(OBJECT)
    desired = {key: value for key, value in {**OBJECT, **expected}.items() if value is not None}
    assert json_patch(OBJECT, operations) == desired
    assert before == OBJECT


def test_copies_are_independent() -> None:
    operations = [op("copy", "/m", **{"from": "/list"}), op("add", "/m/-", value="z")]
    assert json_patch(OBJECT, operations)["list"] == ["x", "y"]


@pytest.mark.parametrize(
    ("has", "tested", "equal"),
    [
        (1, True, False),
        (False, 0, False),
        ([0, {"a": 1}], [0, {"a": True}], False),
        ([0, {"a": 1}], [0, {"a": 1.0}], True),
        ({"a": [], "b": None}, {"b": None, "a": []}, True),
        ({"a": None}, {}, False),
        ([1], [1, 1], False),
        ([], {}, False),
        ("1", 1, False),
        (True, True, True),
        (None, False, False),
    ],
)
def test_values_are_compared_as_json(has: Any, tested: Any, equal: bool) -> None:
    patch = [op("test", "/v", value=tested)]
    if equal:
        assert json_patch({"v": has}, patch) == {"v": has}
    else:
        with pytest.raises(DoesNotFit, match="is not what the patch tests for"):
            json_patch({"v": has}, patch)


DIGITS = "1" * 5000


@pytest.mark.parametrize(
    ("operations", "error", "message"),
    [
        ({}, MalformedPatch, "a JSON patch is a list of operations"),
        ([1], MalformedPatch, "an operation of a JSON patch is not an object"),
        ([{"op": "add"}], DoesNotFit, "an operation of a JSON patch has no path"),
        ([op("spin", "/a")], DoesNotFit, "a JSON patch has no operation 'spin'"),
        ([op("add", "/a")], MalformedPatch, "JSON patch operation add needs a value"),
        ([op("add", "a", value=1)], MalformedPatch, "invalid JSON pointer 'a'"),
        ([op("move", "/a")], MalformedPatch, "JSON patch operation 'move' needs from"),
        ([op("test", "/a/b", value=2)], DoesNotFit, "'/a/b' is not what the patch tests for"),
        ([op("remove", "/a/z")], DoesNotFit, "there is no 'z' in '/a/z'"),
        ([op("remove", "")], DoesNotFit, "a JSON patch can't remove the whole object"),
        ([op("replace", "", value=1)], DoesNotFit, "the patched object is no object"),
        ([op("remove", "/list/2")], DoesNotFit, "there is no item '2'"),
        ([op("remove", "/list/-")], DoesNotFit, "there is no item '-'"),
        ([op("add", "/list/3", value=1)], DoesNotFit, "there is no item '3'"),
        ([op("add", "/list/\u0661", value=1)], DoesNotFit, "there is no item"),
        ([op("add", f"/list/{DIGITS}", value=1)], DoesNotFit, "there is no item '111"),
        ([op("add", "/a/b/c", value=1)], DoesNotFit, "there is nothing in '/a/b/c'"),
        ([op("replace", "/a/b/c", value=1)], DoesNotFit, "there is nothing in '/a/b/c'"),
        ([op("test", "/a/b/c", value=1)], DoesNotFit, "there is nothing in '/a/b/c'"),
        ([op("test", "/a")] * (MAX_OPERATIONS + 1), TooLarge, "The allowed maximum"),
    ],
)
def test_refused(operations: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(MalformedPatch) as caught:
        json_patch(OBJECT, operations)
    assert type(caught.value) is error
    assert str(caught.value).startswith(message)
    assert len(str(caught.value)) < 250


def test_copies_of_copies() -> None:
    doubling = [op("copy", f"/list/{n}", **{"from": ""}) for n in range(1, 40)]
    with pytest.raises(TooLarge, match="copy operations"):
        json_patch({"list": [0]}, doubling)


def _nested(depth: int) -> Any:
    found: Any = {}
    for _ in range(depth):
        found = {"a": found}
    return found


def test_too_deep_nesting_is_refused() -> None:
    with pytest.raises(MalformedPatch, match="nested too deep"):
        json_patch({}, [op("add", "/a", value=_nested(100_000))])
    with pytest.raises(MalformedPatch, match="nested too deep"):
        merge_patch({}, _nested(100_000))


@pytest.mark.parametrize(
    ("original", "patch", "expected"),
    [  # from RFC 7396, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patches(original: Any, patch: Any, expected: Any) -> None:
    assert merge_patch(original, patch) == expected


# Strategic merge patch: keyed lists and every directive.

POD = definitions.definition("io.k8s.api.core.v1.Pod")


def merged(original: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    before = copy.deepcopy((original, patch))
    result = strategic_merge(POD, original, patch, resolve=definitions.resolve)
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
    supplied = {"spec": {"containers": [{"name": "a", "args": ["1", "2"], "image": "i"}]}}
    patch = {"spec": {"containers": [{"name": "a", "args": ["3"]}]}}
    assert merged(supplied, patch)["spec"]["containers"] == [
        {"name": "a", "args": ["3"], "image": "i"}
    ]


def test_null_deletes_and_maps_merge() -> None:
    supplied = {"metadata": {"labels": {"a": "1", "b": "2"}, "annotations": {"x": "y"}}}
    patch = {"metadata": {"labels": {"a": None, "c": "3"}, "annotations": None}}
    assert merged(supplied, patch) == {"metadata": {"labels": {"b": "2", "c": "3"}}}
    assert merged({}, {"metadata": {"labels": {"a": None}}}) == {"metadata": {"labels": {}}}


def test_patch_delete_item() -> None:
    patch = {"spec": {"containers": [{"$patch": "delete", "name": "a"}]}}
    assert names(merged(containers("a", "b"), patch)) == ["b"]


def test_patch_replace_list_and_map() -> None:
    patch = {"spec": {"containers": [{"name": "z"}, {"$patch": "replace"}]}}
    assert merged(containers("a", "b"), patch) == {"spec": {"containers": [{"name": "z"}]}}
    supplied = {"metadata": {"labels": {"a": "1"}}}
    replaced = merged(supplied, {"metadata": {"labels": {"$patch": "replace", "b": "2"}}})
    assert replaced == {"metadata": {"labels": {"b": "2"}}}
    assert merged(supplied, {"metadata": {"labels": {"$patch": "delete"}}}) == {
        "metadata": {"labels": {}}
    }


def test_a_list_that_replaces_another_may_have_a_key_twice() -> None:
    """The addresses of a node are merged by type, and a node may have two InternalIPs."""
    twice = [{"name": "z", "image": "a"}, {"name": "y"}, {"name": "z", "image": "b"}]
    patch = {"spec": {"containers": [*twice, {"$patch": "replace"}]}}
    assert merged(containers("a", "z"), patch) == {"spec": {"containers": twice}}


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
    supplied = {"metadata": {"finalizers": ["a", "b"]}}
    added = merged(supplied, {"metadata": {"finalizers": ["c", "a"]}})
    assert added == {"metadata": {"finalizers": ["c", "a", "b"]}}
    removed = merged(supplied, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}})
    assert removed == {"metadata": {"finalizers": ["b"]}}
    patch = {
        "$setElementOrder/finalizers": ["c", "b"],
        "$deleteFromPrimitiveList/finalizers": ["a"],
        "finalizers": ["c"],
    }
    assert merged(supplied, {"metadata": patch}) == {"metadata": {"finalizers": ["c", "b"]}}


def test_retain_keys() -> None:
    supplied = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}
    item = {"$retainKeys": ["name", "hostPath"], "name": "v", "hostPath": {"path": "/"}}
    assert merged(supplied, {"spec": {"volumes": [item]}}) == {
        "spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}
    }


def test_retained_keys_are_merged() -> None:
    volume = {"name": "v", "emptyDir": {}, "hostPath": {"type": "Directory"}}
    item = {"$retainKeys": ["name", "hostPath"], "name": "v", "hostPath": {"path": "/"}}
    assert merged({"spec": {"volumes": [volume]}}, {"spec": {"volumes": [item]}}) == {
        "spec": {"volumes": [{"name": "v", "hostPath": {"type": "Directory", "path": "/"}}]}
    }


@pytest.mark.parametrize(
    ("order", "patched", "expected"),
    [
        # b came before c, which now comes first
        (None, ["c", "a"], ["b", "c", "a"]),
        (None, ["b"], ["a", "b", "c"]),
        (["b"], [], ["a", "b", "c"]),
        (["c", "a"], [], ["b", "c", "a"]),
        (["d", "c"], ["d"], ["d", "a", "b", "c"]),
        (["c", "d", "a"], ["d"], ["b", "c", "d", "a"]),
    ],
)
def test_items_absent_from_the_patch_keep_their_position(
    order: list[str] | None, patched: list[str], expected: list[str]
) -> None:
    spec: dict[str, Any] = {"containers": [{"name": name} for name in patched]} if patched else {}
    if order is not None:
        spec["$setElementOrder/containers"] = [{"name": name} for name in order]
    assert names(merged(containers("a", "b", "c"), {"spec": spec})) == expected


def test_an_item_with_content_can_replace_the_list() -> None:
    patch = {"spec": {"containers": [{"$patch": "replace", "name": "z"}]}}
    assert merged(containers("a", "b"), patch) == {"spec": {"containers": [{"name": "z"}]}}


@pytest.mark.parametrize(
    ("original", "patch", "expected"),
    [
        (["a", "b"], {"finalizers": ["c"], "$setElementOrder/finalizers": ["b", "a", "c"]}, "bac"),
        (["a"], {"$deleteFromPrimitiveList/finalizers": ["x"]}, "a"),
        (None, {"$deleteFromPrimitiveList/finalizers": ["x"]}, None),
        (None, {"$setElementOrder/finalizers": ["x"]}, None),
        # a list replaces another type, and another type replaces a list
        ("odd", {"finalizers": ["a"]}, ["a"]),
        (["a"], {"finalizers": "odd"}, "odd"),
        # a number differs from its text; maps are equal in any order
        (["1"], {"finalizers": [1]}, [1, "1"]),
        ([{"a": 1, "b": 2}], {"$deleteFromPrimitiveList/finalizers": [{"b": 2, "a": 1}]}, []),
        ([{"a": 1}], {"finalizers": [{"b": 2}]}, [{"b": 2}, {"a": 1}]),
    ],
)
def test_lists_without_a_key(original: Any, patch: dict[str, Any], expected: Any) -> None:
    if isinstance(expected, str) and expected != "odd":
        expected = list(expected)
    supplied = {} if original is None else {"finalizers": original}
    found = merged({"metadata": supplied}, {"metadata": patch})["metadata"]
    assert found == ({} if expected is None else {"finalizers": expected})


def test_other_types_in_a_keyed_list_are_kept() -> None:
    supplied = {"spec": {"containers": ["odd", {"name": "b"}]}}
    patch = {"spec": {"containers": [{"name": "b", "tty": True}]}}
    assert merged(supplied, patch) == {"spec": {"containers": ["odd", {"name": "b", "tty": True}]}}


def test_a_schema_that_allows_anything() -> None:
    schema = {"additionalProperties": True}
    found = strategic_merge(schema, {"a": {"b": 1}}, {"a": {"c": 2}})
    assert found == {"a": {"b": 1, "c": 2}}


def test_an_image_change_by_client_side_apply() -> None:
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
    ("patch", "kind", "text"),
    [
        (
            {"spec": {"containers": [{"image": "x"}]}},
            NoMergeKey,
            "map: {'image': 'x'} does not contain declared merge key: name",
        ),
        (
            {"spec": {"containers": ["x"]}},
            MalformedPatch,
            "cannot use a primitive in a list of objects with a merge key",
        ),
        ({"metadata": {"$patch": "explode"}}, MalformedPatch, "unknown patch type: 'explode'"),
        (
            {"metadata": {"$retainKeys": {"name": 1}}},
            MalformedPatch,
            "invalid patch format of $retainKeys",
        ),
        (
            {"metadata": {"$setElementOrder/finalizers": "x"}},
            MalformedPatch,
            "invalid patch format of $setElementOrder/finalizers",
        ),
        ({"metadata": {"$retainKeys": [1]}}, MalformedPatch, "invalid patch format of $retainKeys"),
        (
            {"metadata": {"$deleteFromPrimitiveList/finalizers": {}}},
            MalformedPatch,
            "invalid patch format of $deleteFromPrimitiveList/finalizers",
        ),
    ],
)
def test_malformed(patch: dict[str, Any], kind: type[MalformedPatch], text: str) -> None:
    with pytest.raises(MalformedPatch) as caught:
        merged(containers("a"), patch)
    assert (type(caught.value), str(caught.value)) == (kind, text)


def test_without_a_schema_the_merge_is_plain() -> None:
    found = strategic_merge({}, {"a": {"b": 1}, "l": [1]}, {"a": {"c": 2}, "l": [2]})
    assert found == {"a": {"b": 1, "c": 2}, "l": [2]}
