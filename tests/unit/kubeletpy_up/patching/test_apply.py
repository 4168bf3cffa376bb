"""Server-side apply: merging, ownership, conflicts."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from kubeletpy_up.errors import ApiError
from kubeletpy_up.patching import apply, field_sets
from kubeletpy_up.patching.apply import strategic_merge
from kubeletpy_up.requests import ADMIN, WriteOptions
from tests.kit.embedded import make_registry

POD = "io.k8s.api.core.v1.Pod"
MAP = "io.k8s.api.core.v1.ConfigMap"
Obj = dict[str, Any]


def config(data: dict[str, str] | None = None, **labels: str) -> Obj:
    obj: Obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    if labels:
        obj["metadata"]["labels"] = labels
    if data:
        obj["data"] = data
    return obj


def put(live: Obj | None, applied: Obj, manager: str = "one", force: bool = False) -> Obj:
    before = copy.deepcopy((live, applied))
    name = POD if applied["kind"] == "Pod" else MAP
    result = apply.server_side_apply(name, live, applied, manager, force, 0.0)
    assert (live, applied) == before, "the input was changed"
    return result


def owners(obj: Obj) -> dict[str, Any]:
    return {e["manager"]: e["fieldsV1"] for e in obj["metadata"]["managedFields"]}


def pod(*containers: Obj) -> Obj:
    obj: Obj = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    obj["spec"] = {"containers": list(containers)}
    return obj


def test_keyed_lists_merge_by_their_keys_with_defaults() -> None:
    live = put(None, pod({"name": "c", "image": "i", "ports": [{"containerPort": 80}]}))
    live["spec"]["containers"][0]["ports"][0]["protocol"] = "TCP"
    live["spec"]["containers"][0]["imagePullPolicy"] = "Always"
    change = {"name": "c", "image": "j", "ports": [{"containerPort": 80, "name": "web"}]}
    found = put(live, pod(change))
    assert found["spec"]["containers"] == [
        {
            "name": "c",
            "image": "j",
            "imagePullPolicy": "Always",
            "ports": [{"containerPort": 80, "protocol": "TCP", "name": "web"}],
        }
    ]
    fewer = put(found, pod({"name": "c", "image": "j"}))
    assert "ports" not in fewer["spec"]["containers"][0]


def test_a_dropped_item_is_removed_but_not_anothers() -> None:
    live = put(None, pod({"name": "a", "image": "x"}, {"name": "b", "image": "y"}))
    live = put(live, pod({"name": "b", "image": "y"}, {"name": "s", "image": "z"}), "two")
    found = put(live, pod({"name": "a", "image": "x"}))
    assert [c["name"] for c in found["spec"]["containers"]] == ["a", "b", "s"]
    removed = put(found, pod({"name": "b", "image": "y"}), "two")
    assert [c["name"] for c in removed["spec"]["containers"]] == ["a", "b"] or [
        c["name"] for c in removed["spec"]["containers"]
    ] == ["b", "a"]


def test_an_object_created_otherwise_belongs_to_before_first_apply() -> None:
    with pytest.raises(ApiError, match=r'conflict with "before-first-apply" using v1: \.data\.k'):
        put(config({"k": "v"}), config({"k": "w"}))
    found = put(config({"k": "v"}), config({"k": "v"}))
    assert set(owners(found)) == {"before-first-apply", "one"}


def test_kubectl_takes_over_fields_of_client_side_apply() -> None:
    live = config({"k": "v", "l": "w"})
    last = json.dumps(config({"k": "v"}))
    live["metadata"]["annotations"] = {apply._LAST_APPLIED: last}
    found = put(live, config({"k": "new"}), "kubectl")
    assert found["data"] == {"k": "new", "l": "w"}
    assert set(owners(found)) == {apply.CLIENT_SIDE_APPLY, "kubectl"}
    with pytest.raises(ApiError, match=r'"kubectl-client-side-apply" using v1: \.data\.k'):
        put(live, config({"k": "new"}), "another")
    for unreadable in ("[1, {", "3", "[]", '{"metadata": 5}', '{"data": {"k": [[]]}, "spec": 1}'):
        live["metadata"]["annotations"] = {apply._LAST_APPLIED: unreadable}
        with pytest.raises(ApiError, match=r"\.data\.k"):
            put(live, config({"k": "new"}), "another")


def test_an_update_before_the_first_apply_records_no_manager() -> None:
    plain, edited = config({"k": "v"}), config({"k": "w"})
    assert apply.track_update(MAP, plain, edited, "x", now=5.0) == edited


@pytest.mark.parametrize(
    "fields",
    [
        {"k:{": {}, "v:": {}, "x": {}, "f:data": {"f:k": {}}},
        {"f:data": {"k:[1]": {"f:k": {}}, "f:k": {}}},
        {"f:data": 5},
        [],
        "f:data",
    ],
)
def test_an_unreadable_record_owns_nothing(fields: Any) -> None:
    live = put(None, config({"k": "v"}))
    live["metadata"]["managedFields"].append({"manager": "odd", "fieldsV1": fields})
    owner = "odd" if isinstance(fields, dict) and isinstance(fields.get("f:data"), dict) else ""
    edited = {**live, "data": {"k": "edited"}}
    assert "odd" not in owners(apply.track_update(MAP, live, edited, "x", now=5.0))
    if owner:
        with pytest.raises(ApiError, match=owner):
            put(live, config({"k": "new"}))
    else:
        assert put(live, config({"k": "new"}))["data"] == {"k": "new"}


def test_a_change_of_an_applied_object_owns_its_fields() -> None:
    registry = make_registry()
    by_apply = {"patch_type": "application/apply-patch+yaml"}

    def change(patch: Obj, manager: str, **more: Any) -> Obj:
        options = WriteOptions(field_manager=manager)
        return registry.patch(ADMIN, "configmaps", "a", patch, "default", options=options, **more)

    change(config({"k": "v", "l": "w"}), "one", **by_apply)
    found = change({"data": {"k": "edited"}}, "kubectl-edit")
    assert set(owners(found)) == {"one", "kubectl-edit"}
    with pytest.raises(ApiError, match="kubectl-edit"):
        change(config({"k": "v", "l": "w"}), "one", **by_apply)
    assert change(config({"l": "new"}), "one", **by_apply)["data"] == {"k": "edited", "l": "new"}
    plain = registry.create(ADMIN, "configmaps", config({"k": "v"}), "kube-system")
    assert "managedFields" not in plain["metadata"]


def test_paths_as_messages_show_them() -> None:
    path = ("f:spec", 'k:{"containerPort":80,"protocol":"TCP"}', "f:name", 'v:"x"')
    assert field_sets.text(path) == '.spec[containerPort=80,protocol="TCP"].name[="x"]'


def test_sets_survive_encoding() -> None:
    obj = pod({"name": "c", "args": ["a"], "env": [{"name": "A", "value": "b"}]})
    obj["metadata"]["finalizers"] = ["f/x"]
    members = set(field_sets.paths(field_sets.of_object(POD, obj)))
    again = set(field_sets.paths(field_sets.from_paths(members)))
    assert again == members
    assert ("f:metadata", "f:finalizers", 'v:"f/x"') in members


# Strategic merge patches: answers to malformed ones, and kinds without a definition.


@pytest.mark.parametrize(
    ("patch", "code"),
    [
        ({"spec": {"containers": [{"image": "x"}]}}, 422),
        ({"spec": {"containers": ["x"]}}, 400),
        ({"metadata": {"$patch": "explode"}}, 400),
    ],
)
def test_malformed(patch: dict[str, Any], code: int) -> None:
    with pytest.raises(ApiError) as caught:
        strategic_merge(POD, {"spec": {"containers": [{"name": "a"}]}}, patch)
    assert caught.value.code == code


def test_lists_are_keyed_by_the_definition() -> None:
    supplied = {"spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b"}]}}
    patch = {"spec": {"containers": [{"name": "a", "tty": True}]}}
    assert strategic_merge(POD, supplied, patch) == {
        "spec": {"containers": [{"name": "a", "image": "x", "tty": True}, {"name": "b"}]}
    }
    assert strategic_merge(None, supplied, patch) == patch
