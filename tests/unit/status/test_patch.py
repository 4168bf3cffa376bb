"""The patch contains the differences and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from kubeletpy.status.store import may_wait, status_patch

T0 = "2026-01-01T00:00:00Z"
READY: Any = {"type": "Ready", "status": "True", "lastTransitionTime": T0}
FOREIGN: Any = {"type": "x/y", "status": "True"}


SICK = {"name": "v", "healthConditions": [{"status": "Degraded", "reason": "a", "message": ""}]}


@pytest.mark.parametrize(
    ("in_api", "reported", "changed"),
    [
        ({}, {}, None),
        ({"phase": "Running"}, {"phase": "Running"}, None),
        ({"phase": "Pending"}, {"phase": "Running"}, {"phase": "Running"}),
        ({}, {"phase": "Running"}, {"phase": "Running"}),
        ({"reason": "x"}, {}, {"reason": None}),
        ({"reason": "x"}, {"reason": ""}, {"reason": ""}),
        ({}, {"reason": ""}, None),
        ({"reason": ""}, {"reason": None}, None),
        # fields of other writers are left alone
        ({"resourceClaimStatuses": [1]}, {}, None),
        ({"resourceClaimStatuses": [1]}, {"resourceClaimStatuses": [2]}, None),
        # and those of an API that is newer than this version
        ({"newField": {"a": 1}}, {"phase": "Running"}, {"phase": "Running"}),
        # lists merged by address are replaced completely
        ({}, {"podIPs": [{"ip": "a"}]}, {"podIPs": [{"ip": "a"}]}),
        (
            {"podIPs": [{"ip": "a"}]},
            {"podIPs": [{"ip": "b"}]},
            {"podIPs": [{"ip": "b"}, {"$patch": "replace"}]},
        ),
        ({"qosClass": "x"}, {"qosClass": "y"}, {"qosClass": "y"}),
        # conditions
        ({"conditions": [READY]}, {"conditions": [READY]}, None),
        ({}, {"conditions": [READY]}, {"conditions": [READY]}),
        (
            {"conditions": [{**READY, "reason": "x", "message": "m"}]},
            {"conditions": [{**READY, "reason": "y"}]},
            {"conditions": [{"message": None, **READY, "reason": "y"}]},
        ),
        ({"conditions": [{**READY, "reason": ""}]}, {"conditions": [READY]}, None),
        ({"conditions": [READY]}, {}, {"conditions": [{"type": "Ready", "$patch": "delete"}]}),
        ({"conditions": [FOREIGN]}, {}, None),
        (
            {"conditions": [FOREIGN, READY]},
            {"conditions": [FOREIGN]},
            {"conditions": [{"type": "Ready", "$patch": "delete"}]},
        ),
        ({}, {"volumeHealth": [SICK]}, {"volumeHealth": [SICK]}),
        (
            {"volumeHealth": [SICK]},
            {"volumeHealth": [{"name": "v", "healthConditions": []}]},
            {"volumeHealth": [{"name": "v", "healthConditions": []}]},
        ),
    ],
)
def test_the_patch(in_api: Any, reported: Any, changed: Any) -> None:
    expected = None if changed is None else {"metadata": {"uid": "u"}, "status": changed}
    assert status_patch("u", in_api, reported) == expected


MADE: Any = {"type": "PodReadyToStartContainers", "status": "True", "lastTransitionTime": T0}
STARTING: Any = {"phase": "Pending", "conditions": [{**READY, "status": "False"}]}
WAITING: Any = {"name": "c", "state": {"waiting": {"reason": "ContainerCreating"}}}
RUNNING: Any = {"name": "c", "state": {"running": {"startedAt": T0}}}


@pytest.mark.parametrize(
    ("in_api", "reported", "waits"),
    [
        # a deletion begins, which only the observed generation shows
        (
            {"phase": "Running", "observedGeneration": 1, "conditions": [READY]},
            {
                "phase": "Running",
                "observedGeneration": 2,
                "conditions": [{**READY, "observedGeneration": 2}],
            },
            True,
        ),
        # the sandbox exists, the container does not
        (
            {**STARTING, "containerStatuses": [WAITING]},
            {
                **STARTING,
                "containerStatuses": [WAITING],
                "podIP": "a",
                "podIPs": [{"ip": "a"}],
                "conditions": [*STARTING["conditions"], MADE],
            },
            True,
        ),
        # changes that clients wait for
        ({}, STARTING, False),
        (STARTING, {"phase": "Running", "conditions": [READY]}, False),
        (STARTING, {**STARTING, "initContainerStatuses": [RUNNING]}, False),
        (STARTING, {**STARTING, "containerStatuses": [WAITING]}, False),
        (STARTING, {**STARTING, "message": "m"}, False),
        (
            {"phase": "Running", "conditions": [READY]},
            {"phase": "Running", "conditions": [{**READY, "status": "False"}]},
            False,
        ),
        (
            {"phase": "Running", "conditions": [READY]},
            {"phase": "Running", "conditions": [{**READY, "reason": "x"}]},
            False,
        ),
        # a pod that runs loses its sandbox, or gets another address
        (
            {"phase": "Running", "conditions": [MADE]},
            {"phase": "Running", "conditions": [{**MADE, "status": "False"}]},
            False,
        ),
        ({"phase": "Running", "podIP": "a"}, {"phase": "Running", "podIP": "b"}, False),
    ],
)
def test_a_step_on_the_way_waits_for_the_next_change(
    in_api: Any, reported: Any, waits: bool
) -> None:
    assert may_wait(in_api, reported) is waits
