"""Output of ``kubeletpy plan``."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import to_builtins

from kubeletpy.node.eviction.decide import Signal
from kubeletpy.node.eviction.report import EvictionOrder
from kubeletpy.observe.foresee.model import (
    Act,
    Foreseen,
    ForeseenOutcome,
    ForeseenVolume,
    ImageUse,
    Squeezed,
)
from kubeletpy.observe.foresee.render import plan


def reported(outcome: ForeseenOutcome, **more: Any) -> str:
    return plan(to_builtins(Foreseen("ns", "web", "n1", outcome, **more)))


@pytest.mark.parametrize(
    ("outcome", "more", "line"),
    [
        (ForeseenOutcome.RUNS, {}, "n1 would admit and start it"),
        (ForeseenOutcome.UNCHANGED, {}, "nothing would happen on n1"),
        (ForeseenOutcome.IN_PLACE, {}, "it would be resized in place; nothing restarts"),
        (
            ForeseenOutcome.REFUSED,
            {"reason": "OutOfcpu", "message": "none left"},
            "n1 would refuse it: OutOfcpu: none left; it would be Failed for good",
        ),
        (
            ForeseenOutcome.FORBIDDEN,
            {"reason": "Forbidden", "message": "the API lets nobody"},
            "the API lets nobody",
        ),
        (
            ForeseenOutcome.RESTARTS,
            {"restarts": ("a", "b")},
            "a, b would restart; the pod, its address and its volumes stay",
        ),
        (ForeseenOutcome.RECREATES, {}, "all of its containers would restart, in a new sandbox"),
        (
            ForeseenOutcome.RECREATES,
            {"message": "another pod"},
            "all of its containers would restart, in a new sandbox: another pod",
        ),
        (
            ForeseenOutcome.ENDS,
            {"message": "it is being deleted"},
            "it would end: it is being deleted",
        ),
        (
            ForeseenOutcome.DEFERRED,
            {"reason": "OutOfcpu", "message": "none"},
            "the resize would wait until there is room: OutOfcpu: none",
        ),
        (
            ForeseenOutcome.INFEASIBLE,
            {"reason": "Infeasible", "message": "swap"},
            "the resize would never be done: Infeasible: swap",
        ),
        (
            ForeseenOutcome.UNKNOWN,
            {"message": "not asked"},
            "the outcome is not known yet: not asked",
        ),
    ],
)
def test_the_first_line_is_the_answer(
    outcome: ForeseenOutcome, more: dict[str, Any], line: str
) -> None:
    assert reported(outcome, **more) == f"ns/web: {line}\n"


def test_the_complete_text() -> None:
    mib = 2**20
    assert reported(
        ForeseenOutcome.PREEMPTS,
        victims=("ns/low",),
        acts=(
            Act("RunPodSandbox", "the pod has no sandbox", 0.5, 1),
            Act("pull image a:1", "", 2.0, 3),
            Act("CreateContainer a", "why"),
        ),
        images=(ImageUse("a:1", ("a", "b"), "pull", "the node does not have it"),),
        volumes=(ForeseenVolume("v", "configMap c"), ForeseenVolume("w", "nothing", "no volume")),
        squeezed=(
            Squeezed("memory.available", 300 * mib + 5, 64 * mib, 100 * mib, 1, crossed=False),
            Squeezed("nodefs.available", 2 * mib, mib, 3 * mib, 1, crossed=True),
        ),
        seconds=2.5,
        hints=("do it so",),
        unsure=("the rest",),
    ) == (
        "ns/web: n1 would admit it, and preempt others for it\n"
        "\n"
        "Preempts\n"
        "  ns/low\n"
        "\n"
        "Would (about 2500 ms, by the medians of this node)\n"
        "  RunPodSandbox      about 500 ms (once before)  the pod has no sandbox\n"
        "  pull image a:1     about 2000 ms (3 times before)\n"
        "  CreateContainer a  why\n"
        "\n"
        "Images\n"
        "  pull a:1  for a, b: the node does not have it\n"
        "\n"
        "Volumes\n"
        "  v  configMap c\n"
        "  w  nothing: no volume\n"
        "\n"
        "Eviction thresholds\n"
        "  memory.available  300Mi available, 64Mi requested, threshold 100Mi: "
        "not reached if it uses all of that\n"
        "  nodefs.available  2Mi available, 1Mi requested, threshold 3Mi: "
        "pods would be evicted if it uses all of that\n"
        "\n"
        "How\n"
        "  do it so\n"
        "\n"
        "Not known\n"
        "  the rest\n"
    )


NEAR = Squeezed("memory.available", 3, 2, 2, 1, crossed=True)
FAR = Squeezed("memory.available", 3, 1, 1, 2, crossed=False)


@pytest.mark.parametrize(
    ("squeezed", "crossed", "orders"),
    [
        ((), False, []),
        ((FAR,), False, []),
        ((NEAR,), False, ["memory.available (enough now)"]),
        ((), True, ["pid.available (short of it now)"]),
        ((NEAR,), True, ["memory.available (enough now)", "pid.available (short of it now)"]),
    ],
)
def test_the_order_of_evictions_is_part_of_the_text_only_under_pressure(
    squeezed: tuple[Squeezed, ...], crossed: bool, orders: list[str]
) -> None:
    evictions = (
        EvictionOrder((Signal.MEMORY,), False, (), (), 0, 0),
        EvictionOrder((Signal.PIDS,), crossed, (), (), 0, 0),
        EvictionOrder((Signal.NODEFS,), False, (), (), 0, 0),
    )
    text = reported(ForeseenOutcome.RUNS, squeezed=squeezed, evictions=evictions)
    assert [line.strip() for line in text.splitlines() if line.endswith(" now)")] == orders
    assert ("Eviction order" in text) == bool(orders)
    answer = to_builtins(Foreseen("ns", "web", "n1", ForeseenOutcome.RUNS, evictions=evictions))
    assert plan(answer, evictions=True).count(" now)") == 3


def test_a_long_act_does_not_widen_its_column() -> None:
    text = reported(ForeseenOutcome.RESTARTS, acts=(Act("x" * 90, "why"), Act("y", "so")))
    assert f"\n  {'x' * 79}…  why\n" in text
    assert f"\n  y{' ' * 59}  so\n" in text


def test_a_long_reason_is_cut() -> None:
    whole, cut = "x" * 600, "x" * 599 + "…"
    assert reported(ForeseenOutcome.FORBIDDEN, message=whole) == f"ns/web: {whole}\n"
    assert reported(ForeseenOutcome.FORBIDDEN, message=whole + "x") == f"ns/web: {cut}\n"


def test_nobody_writes_to_the_terminal_but_us() -> None:
    bad = "x\x1b[2J\ny"
    text = reported(
        ForeseenOutcome.REFUSED,
        message=bad,
        victims=(bad,),
        acts=(Act(bad, bad),),
        images=(ImageUse(bad, (bad,), bad, bad),),
        volumes=(ForeseenVolume(bad, bad, bad),),
        hints=(bad,),
        unsure=(bad,),
    )
    assert "\x1b" not in text
    assert "\ny" not in text
