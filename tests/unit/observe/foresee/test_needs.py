"""Objects that a new pod needs, and the texts about those that do not exist."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import to_builtins

from kubeletpy.observe.foresee.model import Foreseen, ForeseenOutcome, Need, NeedKind, NeedState
from kubeletpy.observe.foresee.render import plan
from kubeletpy.observe.foresee.start import needs, settled
from kubeletpy.pods.pod import Pod
from kubeletpy.volumes.pod_volumes.planned import plan_volumes
from tests.unit.observe.foresee.pods import container, pod


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
