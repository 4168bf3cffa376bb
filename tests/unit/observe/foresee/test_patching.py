"""A pod with a patch applied, as the API server would apply it."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.api.json_patch import strategic_merge
from kubeletpy.observe.foresee.change import POD_SCHEMA, KubectlPatchType, patched
from kubeletpy_up.schema import definitions

POD: dict[str, Any] = {
    "metadata": {"name": "p"},
    "spec": {
        "containers": [
            {
                "name": "a",
                "image": "a:1",
                "env": [{"name": "X", "value": "1"}],
                "ports": [{"containerPort": 80}],
                "volumeMounts": [{"mountPath": "/v", "name": "v"}],
            },
            {"name": "b", "image": "b:1"},
        ],
        "volumes": [{"name": "v", "emptyDir": {}}],
        "imagePullSecrets": [{"name": "s"}],
        "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["x"]}],
        "tolerations": [{"key": "k"}],
    },
}


def with_spec(**more: Any) -> dict[str, Any]:
    return {"spec": more}


@pytest.mark.parametrize(
    "patch",
    [
        with_spec(containers=[{"name": "b", "image": "b:2"}]),
        with_spec(containers=[{"name": "c", "image": "c:1"}]),
        with_spec(containers=[{"name": "a", "$patch": "delete"}]),
        with_spec(containers=[{"name": "a", "env": [{"name": "Y", "value": "2"}]}]),
        with_spec(containers=[{"name": "a", "ports": [{"containerPort": 80, "name": "http"}]}]),
        with_spec(
            containers=[{"name": "a", "volumeMounts": [{"mountPath": "/v", "readOnly": True}]}]
        ),
        with_spec(containers=[{"name": "a", "command": ["x"]}]),
        with_spec(initContainers=[{"name": "i", "image": "i:1"}]),
        with_spec(volumes=[{"name": "v", "$retainKeys": ["name", "secret"], "secret": {}}]),
        with_spec(
            imagePullSecrets=[{"name": "t"}], hostAliases=[{"ip": "10.0.0.1", "hostnames": ["y"]}]
        ),
        with_spec(tolerations=[{"key": "other"}]),
        with_spec(nodeSelector={"a": "b"}, hostNetwork=None),
    ],
)
def test_results_agree_with_the_schema_of_the_api(patch: dict[str, Any]) -> None:
    schema = definitions.definition("io.k8s.api.core.v1.Pod")
    expected = strategic_merge(schema, POD, patch, resolve=definitions.resolve)
    assert patched(POD, patch) == expected != POD


def _keys(schema: Any, resolve: Any, depth: int = 0) -> dict[str, Any]:
    """The merge keys of a schema by path."""
    found: dict[str, Any] = {}
    for name, field in (resolve(schema).get("properties") or {}).items():
        if "merge" in field.get("x-kubernetes-patch-strategy", ""):
            strategy = field["x-kubernetes-patch-strategy"]
            found[name] = (field.get("x-kubernetes-patch-merge-key"), strategy)
        below = field.get("items") if field.get("type", "array") == "array" else field
        if below and depth < 3:
            nested = _keys(below, resolve, depth + 1)
            found |= {f"{name}.{path}": key for path, key in nested.items()}
    return found


def test_the_keyed_lists_are_those_of_the_api() -> None:
    pod = definitions.resolve(definitions.definition("io.k8s.api.core.v1.Pod"))
    theirs = _keys(pod["properties"]["spec"], definitions.resolve)
    ours = _keys(POD_SCHEMA["properties"]["spec"], lambda schema: schema)
    assert ours == {path: key for path, key in theirs.items() if ".metadata." not in path}


def test_a_merge_patch_replaces_lists() -> None:
    patch = {"spec": {"containers": [{"name": "c"}]}, "metadata": {"labels": {"a": "b"}}}
    found = patched(POD, patch, KubectlPatchType.MERGE)
    assert found["spec"]["containers"] == [{"name": "c"}]
    assert found["spec"]["volumes"] == POD["spec"]["volumes"]
    assert found["metadata"] == POD["metadata"]
    assert patched(POD, {}, KubectlPatchType.MERGE) == patched(POD, {}) == POD


def test_a_merge_patch_has_no_directives() -> None:
    found = patched(
        POD, {"spec": {"$patch": "replace", "hostAliases": None}}, KubectlPatchType.MERGE
    )
    spec = {**POD["spec"], "$patch": "replace"}
    del spec["hostAliases"]
    assert found["spec"] == spec


def test_a_json_patch_applies_to_the_pod_and_changes_only_its_spec() -> None:
    operations = [
        {"op": "test", "path": "/metadata/name", "value": "p"},
        {"op": "replace", "path": "/metadata/name", "value": "q"},
        {"op": "replace", "path": "/spec/containers/1/image", "value": "b:2"},
        {"op": "add", "path": "/spec/tolerations/-", "value": {"key": "l"}},
    ]
    found = patched(POD, operations, KubectlPatchType.JSON)
    assert found["metadata"] == POD["metadata"]
    assert found["spec"] == {
        **POD["spec"],
        "containers": [POD["spec"]["containers"][0], {"name": "b", "image": "b:2"}],
        "tolerations": [{"key": "k"}, {"key": "l"}],
    }
