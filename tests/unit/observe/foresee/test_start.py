"""Steps to start a new pod, and their durations."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import to_builtins

from kubeletpy.metrics.trace.model import PodTrace, Span, Step, TraceCall
from kubeletpy.observe.foresee import start
from kubeletpy.observe.foresee.model import (
    Act,
    Durations,
    Foreseen,
    ForeseenOutcome,
    ForeseenVolume,
    ImageUse,
    Need,
    NeedKind,
    NeedState,
    Squeezed,
    total,
)
from kubeletpy.observe.foresee.render import plan
from kubeletpy.observe.foresee.start import needs, settled, squeezed
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.pod_volumes.planned import plan_volumes
from tests.kit.observe import container, pod
from tests.kit.pods import make_pod


def trace(*spans: Span) -> PodTrace:
    return PodTrace("u", "ns", "n", 0.0, start=list(spans))


def took(call: TraceCall | Step, seconds: float, detail: str = "", error: str = "") -> Span:
    return Span(call, detail, 10.0, 10.0 + seconds, error)


HISTORY = [
    trace(
        took(TraceCall.RUN_POD_SANDBOX, 0.25),
        took(TraceCall.RUN_POD_SANDBOX, 9.0, error="no network"),
        Span(TraceCall.RUN_POD_SANDBOX, "", 10.0),
        took(TraceCall.PULL_IMAGE, 4.0, "a:1"),
        took(TraceCall.CREATE_CONTAINER, 0.5),
    ),
    trace(
        took(TraceCall.RUN_POD_SANDBOX, 0.75),
        took(TraceCall.PULL_IMAGE, 2.0, "z:1"),
        took(TraceCall.START_CONTAINER, 1.0),
    ),
]


@pytest.mark.parametrize(
    ("act", "like", "expected"),
    [
        (TraceCall.RUN_POD_SANDBOX, "", Act("RunPodSandbox x", "y", 0.5, 2)),
        (TraceCall.PULL_IMAGE, "a:1", Act("pull image x", "y", 4.0, 1)),
        (TraceCall.PULL_IMAGE, "new:1", Act("pull image x", "y", 3.0, 2)),
        (Step.VOLUMES, "", Act("volumes x", "y", None, 0)),
    ],
)
def test_medians_of_successful_calls(act: TraceCall | Step, like: str, expected: Act) -> None:
    assert Durations(HISTORY).act(act, "x", "y", like=like) == expected


def test_a_name_stands_alone_without_details() -> None:
    assert Durations([]).act(TraceCall.RUN_POD_SANDBOX) == Act("RunPodSandbox")


@pytest.mark.parametrize(
    ("seconds", "expected"), [((), None), ((1.0, 2.0), 3.0), ((1.0, None), None), ((None,), None)]
)
def test_a_sum_needs_all_of_them(seconds: tuple[float | None, ...], expected: float | None) -> None:
    assert total(Act("x", seconds=each) for each in seconds) == expected


def test_sources_of_images() -> None:
    made = pod(
        container("a", image="x:1"),
        container("b", image="x:1"),
        container("c", image="x:1", imagePullPolicy="Always"),
        container("d", image="y:1", imagePullPolicy="Never"),
        container("e", image="z:1"),
        container("f", image="y:1"),
    )
    present = {"x:1": True, "y:1": False, "z:1": None}
    assert start.images(made, present, "abcde") == (
        ImageUse("x:1", ("a", "b"), "use", "the node has it; imagePullPolicy is IfNotPresent"),
        ImageUse("x:1", ("c",), "pull", "the node has it; imagePullPolicy is Always"),
        ImageUse("y:1", ("d",), "refuse", "the node does not have it; imagePullPolicy is Never"),
        ImageUse(
            "z:1",
            ("e",),
            "pull",
            "the runtime did not report whether the node has it; imagePullPolicy is IfNotPresent",
        ),
    )


@pytest.mark.parametrize(("image", "policy"), [("x:1", "IfNotPresent"), ("x", "Always")])
def test_the_policy_of_an_image_without_one(image: str, policy: str) -> None:
    made = make_pod(containers=[{"name": "a", "image": image}])
    (found,) = start.images(made, {image: True}, "a")
    assert found.why == f"the node has it; imagePullPolicy is {policy}"


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ({"configMap": {"name": "c"}}, "configMap c"),
        ({"secret": {"secretName": "s"}}, "secret s"),
        ({"hostPath": {"path": "/h"}}, "host directory /h"),
        ({"persistentVolumeClaim": {"claimName": "d"}}, "claim d"),
        ({"csi": {"driver": "x.example"}}, "CSI driver x.example"),
        ({"image": {"reference": "i:1"}}, "image i:1"),
        ({"nfs": {"server": "n", "path": "/"}}, "NFS server n"),
        ({"emptyDir": {}}, "an empty directory"),
        ({"emptyDir": {"medium": "Memory"}}, "an empty directory in memory"),
        ({"ephemeral": {"volumeClaimTemplate": {}}}, "a claim of its own"),
        ({"downwardAPI": {"items": []}}, "downwardAPI"),
        ({"projected": {"sources": []}}, "nothing"),
        (
            {
                "projected": {
                    "sources": [
                        {"configMap": None, "secret": {"name": "s"}},
                        {"downwardAPI": {}},
                        {},
                    ]
                }
            },
            "secret s, downwardAPI, nothing",
        ),
    ],
)
def test_sources_of_volumes(source: dict[str, Any], what: str) -> None:
    mounted = container("a", volumeMounts=[{"name": "v", "mountPath": "/v"}])
    made = pod(mounted, volumes=[{"name": "v", **source}])
    assert start.volumes(plan_volumes(made)) == (ForeseenVolume("v", what),)


def test_volumes_by_name_with_their_problems() -> None:
    mounts = [{"name": each, "mountPath": f"/{each}"} for each in ("c", "b", "a")]
    volumes = [{"name": "c", "nfs": {"server": "n"}}, {"name": "b", "emptyDir": {}}]
    made = pod(container("a", volumeMounts=mounts), volumes=volumes)
    assert start.volumes(plan_volumes(made)) == (
        ForeseenVolume("a", "nothing", "no volume of this name in the pod's spec.volumes"),
        ForeseenVolume("b", "an empty directory"),
        ForeseenVolume("c", "NFS server n"),
    )


def test_steps_of_a_start_in_order() -> None:
    made = pod(
        container("a"),
        container("b", image="a:1"),
        container("c", image="a:1", imagePullPolicy="Always"),
        initContainers=[container("i"), container("s", restartPolicy="Always")],
    )
    absent = dict.fromkeys(("a:1", "s:1"), False)
    images = start.images(made, {**absent, "i:1": True}, "abcis")
    why = "the node does not have it; imagePullPolicy is"
    assert start.acts(
        made, [ForeseenVolume("v", "x"), ForeseenVolume("w", "y")], images, Durations([])
    ) == [
        Act("volumes v, w", "containers mount them"),
        Act("RunPodSandbox", "the pod has no sandbox"),
        Act("CreateContainer i"),
        Act("StartContainer i", "the next ones wait until it has ended with 0"),
        Act("pull image s:1", f"{why} IfNotPresent"),
        Act("CreateContainer s"),
        Act("StartContainer s", "the next ones wait until it has started"),
        Act("pull image a:1", f"{why} IfNotPresent"),
        Act("CreateContainer a"),
        Act("StartContainer a"),
        Act("CreateContainer b"),
        Act("StartContainer b"),
        Act("pull image a:1", f"{why} Always"),
        Act("CreateContainer c"),
        Act("StartContainer c"),
    ]
    assert start.acts(pod(), [], (), Durations([]))[0].what == "RunPodSandbox"


PROBE = {"httpGet": {"port": 80}}


@pytest.mark.parametrize(
    ("spec", "stated"),
    [
        ({}, []),
        ({"initContainers": [container("i")]}, ["how long the init containers run is not known"]),
        ({"initContainers": [container("i", restartPolicy="Always")]}, []),
        (
            {"containers": [container("a", readinessProbe=PROBE)]},
            ["when its probes succeed, and so when it is Ready, is not known"],
        ),
        (
            {"containers": [container("a", startupProbe=PROBE)]},
            ["when its probes succeed, and so when it is Ready, is not known"],
        ),
        ({"imagePullSecrets": [{"name": "s"}], "containers": [container("b")]}, []),
        (
            {"imagePullSecrets": [{"name": "s"}]},
            ["whether the pod may use an image that others pulled depends on its pull secrets"],
        ),
        (
            {"containers": [container("b", imagePullPolicy="Never", image="n:1")]},
            ["container b never starts: n:1 is not here, and imagePullPolicy is Never"],
        ),
    ],
)
def test_open_points(spec: dict[str, Any], stated: list[str]) -> None:
    containers = spec.pop("containers", [container("a")])
    made = pod(*containers, **spec)
    images = start.images(made, {"a:1": True}, ("a", "b"))
    assert start.unsure(made, images) == stated


def level(signal: str, available: int = 100, threshold: int = 40) -> dict[str, Any]:
    return {"signal": signal, "available": available, "threshold": threshold}


def test_thresholds_of_requested_resources() -> None:
    levels = [
        level("memory.available"),
        level("allocatableMemory.available", 50),
        level("nodefs.available"),
        level("pid.available"),
    ]
    assert squeezed(levels, {"memory": 60, "cpu": 5}) == (
        Squeezed("memory.available", 100, 60, 40, 40, crossed=False),
        Squeezed("allocatableMemory.available", 50, 60, 40, -10, crossed=True),
    )
    assert squeezed(levels[:1], {"memory": 61})[0].crossed
    assert squeezed(levels, {"ephemeral-storage": 7}) == (
        Squeezed("nodefs.available", 100, 7, 40, 93, crossed=False),
    )
    assert squeezed(levels, {"memory": 0}) == ()


# Objects that a new pod needs, and the texts about those that do not exist.


def needs_of(made: Pod) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(each.kind, each.name, each.users) for each in needs(made, plan_volumes(made))]


def mounting(*volumes: dict[str, Any], **more: Any) -> Pod:
    mounts = [{"name": each["name"], "mountPath": f"/{each['name']}"} for each in volumes]
    return pod(container("a", volumeMounts=mounts, **more), volumes=list(volumes))


def test_objects_of_volumes() -> None:
    made = mounting(
        {"name": "c", "configMap": {"name": "conf"}},
        {"name": "s", "secret": {"secretName": "key"}},
        {"name": "d", "persistentVolumeClaim": {"claimName": "data"}},
        {
            "name": "p",
            "projected": {
                "sources": [
                    {"configMap": {"name": "conf"}},
                    {"secret": {"name": "other"}},
                    {"configMap": {"name": "maybe", "optional": True}},
                    {"serviceAccountToken": {"path": "token"}},
                ]
            },
        },
        {"name": "o", "secret": {"secretName": "maybe", "optional": True}},
        {"name": "e", "emptyDir": {}},
    )
    assert needs_of(made) == [
        ("claim", "data", ("volume d",)),
        ("configMap", "conf", ("volume c", "volume p")),
        ("secret", "key", ("volume s",)),
        ("secret", "other", ("volume p",)),
    ]


def test_objects_of_environments() -> None:
    first = container(
        "a",
        envFrom=[
            {"configMapRef": {"name": "all"}},
            {"secretRef": {"name": "maybe", "optional": True}},
        ],
        env=[
            {"name": "X", "value": "x"},
            {"name": "Y", "valueFrom": {"secretKeyRef": {"name": "key", "key": "k"}}},
            {"name": "Z", "valueFrom": {"configMapKeyRef": {"name": "all", "key": "k"}}},
            {
                "name": "M",
                "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k", "optional": True}},
            },
        ],
    )
    second = container("b", envFrom=[{"configMapRef": {"name": "all"}}])
    assert needs_of(pod(first, initContainers=[second])) == [
        ("configMap", "all", ("container b", "container a")),
        ("secret", "key", ("container a",)),
    ]


def test_a_volume_that_no_container_uses_needs_nothing() -> None:
    assert needs_of(pod(volumes=[{"name": "c", "configMap": {"name": "conf"}}])) == []


def needing(outcome: ForeseenOutcome = ForeseenOutcome.RUNS) -> dict[str, Any]:
    found: dict[str, Any] = to_builtins(
        Foreseen(
            "ns",
            "web",
            "n1",
            outcome,
            needs=(
                Need(NeedKind.CLAIM, "data", ("volume d",)),
                Need(NeedKind.CONFIG_MAP, "conf", ("volume c", "container a")),
                Need(NeedKind.SECRET, "key", ("container a",)),
            ),
        )
    )
    return found


CLAIM, CONF, KEY = ("claim", "data"), ("configMap", "conf"), ("secret", "key")
HERE = {CLAIM: NeedState.EXISTS, CONF: NeedState.EXISTS, KEY: NeedState.EXISTS}


def test_a_missing_object_is_the_answer() -> None:
    found = settled(needing(), {**HERE, CONF: NeedState.MISSING, KEY: NeedState.MISSING})
    assert found["outcome"] == "waits"
    assert plan(found) == (
        "ns/web: n1 would admit it; it would wait for configMap conf, secret key\n"
        "\n"
        "Waits for\n"
        "  configMap conf, which does not exist: needed by volume c, container a\n"
        "  secret key, which does not exist: needed by container a\n"
    )


def test_all_objects_exist() -> None:
    found = settled(needing(), HERE)
    assert (found["outcome"], plan(found)) == ("runs", "ns/web: n1 would admit and start it\n")


def test_unchecked_objects_are_named() -> None:
    found = settled(needing(), {})
    assert found["outcome"] == "runs"
    assert plan(found) == (
        "ns/web: n1 would admit and start it\n"
        "\n"
        "Not known\n"
        "  not checked: claim data, configMap conf, secret key; without them it would wait\n"
    )


def test_a_claim_without_a_volume_may_get_one() -> None:
    found = settled(needing(), {**HERE, CLAIM: NeedState.UNBOUND})
    assert plan(found) == (
        "ns/web: n1 would admit and start it\n"
        "\n"
        "Not known\n"
        "  claim data is not bound to a volume yet; until then it would wait\n"
    )


def test_a_claim_that_is_made_with_the_pod_is_not_missing() -> None:
    found = settled(needing(), {**HERE, CLAIM: NeedState.MISSING}, made={"data", "key"})
    assert found["outcome"] == "runs"
    assert [each["name"] for each in found["needs"]] == ["conf", "key"]


@pytest.mark.parametrize("outcome", [ForeseenOutcome.PREEMPTS, ForeseenOutcome.REFUSED])
def test_another_outcome_is_kept(outcome: ForeseenOutcome) -> None:
    found = settled(needing(outcome), {**HERE, CONF: NeedState.MISSING})
    assert found["outcome"] == outcome
    assert "configMap conf, which does not exist" in plan(found)


def test_an_agent_of_another_version_names_no_needs() -> None:
    answer = needing()
    del answer["needs"]
    assert plan(answer) == "ns/web: n1 would admit and start it\n"
