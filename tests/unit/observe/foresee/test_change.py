"""Outcome of a change, from the plans before and after it."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.base.api.json_patch import strategic_merge
from kubeletpy.observe.foresee.change import (
    POD_SCHEMA,
    Change,
    ChangeMethod,
    Fate,
    KubectlPatchType,
    acts,
    changes,
    fate,
    forbidden,
    hints,
    patched,
    restarted,
)
from kubeletpy.observe.foresee.model import Act, Durations, ForeseenOutcome, ImageUse
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import Decision, SyncIntent
from kubeletpy_up.schema import definitions
from tests.kit.observe import container, pod

KEEP = Decision("keep container a", "it runs")
KILL = Decision("kill container a", "its image changed")


def intent(*decisions: Decision, **more: object) -> SyncIntent:
    return SyncIntent(decisions, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "after", "outcome"),
    [
        (intent(), intent(), ForeseenOutcome.UNCHANGED),
        (intent(), intent(resized=("a",)), ForeseenOutcome.IN_PLACE),
        (intent(resized=("a",)), intent(resized=("a",)), ForeseenOutcome.UNCHANGED),
        (intent(), intent(stopped=("a",), started=("a",)), ForeseenOutcome.RESTARTS),
        (intent(started=("a",)), intent(started=("a",), resized=("b",)), ForeseenOutcome.IN_PLACE),
        (intent(), intent(new_sandbox=True, started=("a",)), ForeseenOutcome.RECREATES),
        (
            intent(new_sandbox=True),
            intent(new_sandbox=True, started=("a",)),
            ForeseenOutcome.RESTARTS,
        ),
        (intent(), intent(ends=True), ForeseenOutcome.ENDS),
        (intent(ends=True), intent(ends=True), ForeseenOutcome.UNCHANGED),
    ],
)
def test_actions_that_the_sync_takes_anyway_do_not_count(
    before: SyncIntent, after: SyncIntent, outcome: ForeseenOutcome
) -> None:
    assert fate(before, after) == Fate(outcome)


def test_actions_in_order() -> None:
    before = intent(KEEP, started=("b",))
    after = intent(KEEP, KILL, started=("b", "a"))
    images = [ImageUse("a:2", ("a",), "pull", "absent"), ImageUse("x", ("a",), "use", "present")]
    assert restarted(before, after) == ("a",)
    assert acts(before, after, images, Durations([])) == [
        Act("kill container a", "its image changed"),
        Act("pull image a:2", "absent"),
        Act("CreateContainer a"),
        Act("StartContainer a"),
    ]


def changed(*paths: str, way: ChangeMethod = ChangeMethod.NEVER) -> list[Change]:
    return [Change(path, way) for path in paths]


def test_changes_that_the_api_server_refuses() -> None:
    one, many = changed("a", "b"), changed(*(f"f{n}" for n in range(12)))
    ten = ", ".join(f"spec.f{n}" for n in range(10))
    text = "it has to be deleted and created anew"
    assert forbidden(pod(), pod(), one) == Fate(
        ForeseenOutcome.FORBIDDEN,
        "Forbidden",
        f"the API server lets nobody change spec.a, spec.b of a pod that exists: {text}",
    )
    assert forbidden(pod(), pod(), many) == Fate(
        ForeseenOutcome.FORBIDDEN,
        "Forbidden",
        f"the API server lets nobody change {ten} and 2 more of a pod that exists: {text}",
    )
    assert forbidden(pod(), pod(), many[:10]) == Fate(
        ForeseenOutcome.FORBIDDEN,
        "Forbidden",
        f"the API server lets nobody change {ten} of a pod that exists: {text}",
    )
    assert forbidden(pod(), pod(), changed("a", way=ChangeMethod.UPDATE)) is None


def test_a_resize_keeps_the_qos_class() -> None:
    sized = pod(container("a", resources={"requests": {"cpu": "1"}}))
    resize = changed("containers[a].resources.requests.cpu", way=ChangeMethod.RESIZE)
    assert forbidden(pod(), sized, resize) == Fate(
        ForeseenOutcome.FORBIDDEN,
        "Invalid",
        "a resize may not change the pod's QoS class from BestEffort to Burstable",
    )
    assert forbidden(sized, sized, resize) is None
    assert forbidden(pod(), sized, changed("x", way=ChangeMethod.UPDATE)) is None


def test_how_a_change_is_made() -> None:
    assert hints(changed("containers[a].image", way=ChangeMethod.UPDATE)) == ()
    assert hints(
        [
            Change("ephemeralContainers[e]", ChangeMethod.DEBUG),
            Change("activeDeadlineSeconds", ChangeMethod.UPDATE),
            Change("resources.requests.cpu", ChangeMethod.RESIZE),
        ]
    ) == (
        "resources are changed with `kubectl patch --subresource resize`",
        "ephemeral containers are added with `kubectl debug`",
        "once activeDeadlineSeconds are over the pod is stopped and Failed",
    )


# The API server's treatment of a change, for each field.

BASE: dict[str, Any] = {
    "containers": [
        {"name": "a", "image": "a:1", "resources": {"requests": {"cpu": "1"}}},
        {"name": "b", "image": "b:1"},
    ],
    "initContainers": [{"name": "i", "image": "i:1"}],
    "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 5}],
}


def spec(**more: Any) -> Pod:
    made: Any = {"metadata": {"name": "p", "namespace": "d", "uid": "u"}, "spec": {**BASE, **more}}
    return Pod(made)


def a(**more: Any) -> dict[str, Any]:
    return {"containers": [{**BASE["containers"][0], **more}, BASE["containers"][1]]}


IMAGE = Change("containers[a].image", ChangeMethod.UPDATE)
CPU = "containers[a].resources.requests.cpu"


@pytest.mark.parametrize(
    ("after", "found"),
    [
        ({}, []),
        (a(image="a:2"), [IMAGE]),
        (
            {"initContainers": [{"name": "i", "image": "i:2"}]},
            [Change("initContainers[i].image", ChangeMethod.UPDATE)],
        ),
        (a(command=["x"]), [Change("containers[a].command", ChangeMethod.NEVER)]),
        (a(image="a:2", tty=True), [IMAGE, Change("containers[a].tty", ChangeMethod.NEVER)]),
        (a(resources={"requests": {"cpu": "2"}}), [Change(CPU, ChangeMethod.RESIZE)]),
        (a(resources={}), [Change(CPU, ChangeMethod.RESIZE)]),
        (
            a(resources={"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}),
            [Change("containers[a].resources.limits.memory", ChangeMethod.RESIZE)],
        ),
        (
            a(resources={"requests": {"cpu": "1", "example.org/gpu": "1"}}),
            [Change("containers[a].resources.requests.example.org/gpu", ChangeMethod.NEVER)],
        ),
        (a(resizePolicy=[{}]), [Change("containers[a].resizePolicy", ChangeMethod.RESIZE)]),
        (
            {"resources": {"requests": {"memory": "1Gi"}}},
            [Change("resources.requests.memory", ChangeMethod.RESIZE)],
        ),
        ({"containers": BASE["containers"][:1]}, [Change("containers[b]", ChangeMethod.NEVER)]),
        ({"containers": BASE["containers"][::-1]}, [Change("containers", ChangeMethod.NEVER)]),
        (
            {"containers": [*BASE["containers"], {"name": "c"}]},
            [Change("containers[c]", ChangeMethod.NEVER)],
        ),
        (
            {"ephemeralContainers": [{"name": "e"}]},
            [Change("ephemeralContainers[e]", ChangeMethod.DEBUG)],
        ),
        ({"hostNetwork": True}, [Change("hostNetwork", ChangeMethod.NEVER)]),
        ({"activeDeadlineSeconds": 5}, [Change("activeDeadlineSeconds", ChangeMethod.UPDATE)]),
        (
            {"terminationGracePeriodSeconds": 1},
            [Change("terminationGracePeriodSeconds", ChangeMethod.NEVER)],
        ),
        ({"tolerations": []}, [Change("tolerations", ChangeMethod.NEVER)]),
        (
            {"tolerations": [{"key": "k", "operator": "Exists"}, {"key": "more"}]},
            [Change("tolerations", ChangeMethod.UPDATE)],
        ),
    ],
)
def test_one_change(after: dict[str, Any], found: list[Change]) -> None:
    assert changes(spec(), spec(**after)) == found


@pytest.mark.parametrize(
    ("field", "old", "new", "way"),
    [
        ("activeDeadlineSeconds", 9, 9.5, ChangeMethod.NEVER),
        ("activeDeadlineSeconds", 9, 8, ChangeMethod.UPDATE),
        ("activeDeadlineSeconds", 9, None, ChangeMethod.NEVER),
        ("terminationGracePeriodSeconds", -1, 1, ChangeMethod.UPDATE),
        ("terminationGracePeriodSeconds", -1, 2, ChangeMethod.NEVER),
        ("terminationGracePeriodSeconds", 0, 1, ChangeMethod.NEVER),
        ("terminationGracePeriodSeconds", None, 1, ChangeMethod.NEVER),
        ("tolerations", [{"key": "k"}], [{"key": "l"}], ChangeMethod.NEVER),
        (
            "tolerations",
            [{"key": "k"}],
            [{"key": "k", "tolerationSeconds": 1}],
            ChangeMethod.UPDATE,
        ),
        ("tolerations", None, [{"key": "k"}], ChangeMethod.UPDATE),
        ("tolerations", [{"key": "k"}], None, ChangeMethod.NEVER),
        ("ephemeralContainers", [{"name": "e"}], [], ChangeMethod.NEVER),
    ],
)
def test_values_that_may_change_one_way_only(
    field: str, old: Any, new: Any, way: ChangeMethod
) -> None:
    [found] = changes(spec(**{field: old}), spec(**{field: new}))
    assert (found.path.partition("[")[0], found.way) == (field, way)


def test_labels_and_status_change_nothing_that_runs() -> None:
    labelled: Any = {
        **spec().object,
        "metadata": {"name": "p", "namespace": "d", "uid": "u", "labels": {"a": "b"}},
        "status": {"phase": "Failed"},
    }
    assert changes(spec(), Pod(labelled)) == []


def in_memory(**limits: str) -> dict[str, Any]:
    return {
        "volumes": [
            {"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": limit}}
            for name, limit in limits.items()
        ]
    }


CACHE = Change("volumes[cache].emptyDir.sizeLimit", ChangeMethod.RESIZE)
VOLUMES = Change("volumes", ChangeMethod.NEVER)


@pytest.mark.parametrize(
    ("after", "gate", "found"),
    [
        (in_memory(cache="2Gi", other="1Gi"), True, [CACHE]),
        (in_memory(cache="2Gi", other="1Gi"), False, [VOLUMES]),
        (in_memory(cache="1Gi", other="1Gi"), True, []),
        (in_memory(cache="1Gi"), True, [VOLUMES]),
        (in_memory(cache="2Gi"), True, [CACHE, VOLUMES]),
        ({"volumes": [{"name": "cache", "emptyDir": {"sizeLimit": "2Gi"}}]}, True, [VOLUMES]),
    ],
)
def test_limits_of_volumes_in_memory_are_resized_with_the_gate(
    after: dict[str, Any], gate: bool, found: list[Change]
) -> None:
    before = spec(**in_memory(cache="1Gi", other="1Gi"))
    assert changes(before, spec(**after), memory_volumes=gate) == found


# A pod with a patch applied, as the API server would apply it.

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
