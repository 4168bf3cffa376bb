"""Which taints a toleration tolerates."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.pods.pod import Pod
from kubeletpy.resources.admission.checks import tolerates, untolerated

META: Any = {"name": "p", "namespace": "d", "uid": "u"}
SPEC: Any = {"containers": [{"name": "main", "image": "i"}]}
TAINT = {"key": "k", "value": "v", "effect": "NoExecute"}
BARE = {"key": "k", "effect": "NoSchedule"}


def tolerating(*tolerations: Any) -> Pod:
    return Pod({"metadata": META, "spec": {**SPEC, "tolerations": list(tolerations)}})  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("toleration", "of_value", "of_bare"),
    [
        ({"key": "k", "value": "v"}, True, False),
        ({"key": "k", "value": "v", "operator": "Equal"}, True, False),
        ({"key": "k", "value": "w"}, False, False),
        ({"key": "k"}, False, True),
        ({"key": "k", "value": ""}, False, True),
        ({"key": "other", "value": "v"}, False, False),
        ({"key": "other", "operator": "Exists"}, False, False),
        ({"key": "k", "operator": "Exists"}, True, True),
        ({"operator": "Exists"}, True, True),
        ({"operator": "Exists", "effect": "NoExecute"}, True, False),
        ({"operator": "Exists", "effect": "NoSchedule"}, False, True),
        ({"key": "k", "operator": "Lt", "value": "v"}, False, False),
        ({"key": "k", "operator": "Like", "value": "v"}, False, False),
    ],
)
def test_a_toleration(toleration: dict[str, Any], of_value: bool, of_bare: bool) -> None:
    pod = tolerating(toleration)
    assert (tolerates(pod, TAINT), tolerates(pod, BARE)) == (of_value, of_bare)


def test_one_toleration_of_many_is_enough() -> None:
    pod = tolerating({"key": "x"}, {"key": "k", "value": "v"})
    assert tolerates(pod, TAINT)
    assert not tolerates(tolerating(), TAINT)


@pytest.mark.parametrize(
    ("taints", "effect", "found"),
    [
        ([], "NoExecute", False),
        ([TAINT], "NoExecute", True),
        ([TAINT], "NoSchedule", False),
        ([TAINT, BARE], "NoSchedule", True),
    ],
)
def test_only_taints_of_the_effect_count(taints: list[Any], effect: str, found: bool) -> None:
    bad = untolerated(tolerating(), taints, effect)
    assert bool(bad) is found
    assert all(taint["effect"] == effect for taint in bad)
    assert not untolerated(tolerating({"operator": "Exists"}), taints, effect)
