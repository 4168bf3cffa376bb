"""What explain says of a node that runs short, and of a pod that went."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from kubeletpy.eviction.report import Help, Outcome, Remedy
from kubeletpy.eviction.signals import Condition, Signal
from kubeletpy.explain import render_pressure
from tests.unit.eviction.machine import DISK, MEMORY, Machine, eater
from tests.unit.eviction.rules import GI, rules
from tests.virtual_time import EPOCH, on_virtual_time

RULES = rules(
    evictionHard={"memory.available": "1Gi", "nodefs.available": "10Gi", "pid.available": "1000"},
    evictionSoft={"memory.available": "2Gi"},
    evictionSoftGracePeriod={"memory.available": "30s"},
    evictionMinimumReclaim={"nodefs.available": "2Gi"},
    enforceNodeAllocatable=[],
)


def as_json(machine: Machine) -> Any:
    return json.loads(json.dumps(asdict(machine.keeper.report())))


@on_virtual_time
async def test_a_node_that_is_well() -> None:
    machine = Machine(RULES, [eater("calm", memory=GI)])
    await machine.runs(5)
    found = machine.keeper.report()
    assert (found.conditions, found.deeds, found.helps, found.doubts) == ((), (), (), ())
    levels = {(each.field, each.threshold, each.grace) for each in found.levels}
    assert levels == {
        ("evictionHard.memory.available", GI, 0),
        ("evictionSoft.memory.available", 2 * GI, 30),
        ("evictionHard.nodefs.available", 10 * GI, 0),
        ("evictionHard.pid.available", 1000, 0),
    }
    assert all(each.crossed_since is None for each in found.levels)
    text = render_pressure.node(as_json(machine))
    assert text.startswith("The node is under no pressure.\n\nThresholds\n")
    line = "  evictionSoft.memory.available: 15Gi left of 16Gi, acted on below 2Gi for 30s\n"
    assert line in text


@on_virtual_time
async def test_an_eviction_with_its_ranking_and_who_is_next() -> None:
    machine = Machine(
        RULES,
        [
            eater("calm", memory=GI, request=2 * GI),
            eater("big", memory=9 * GI),
            eater("bigger", memory=6 * GI, priority=-5),
            eater("critical", memory=GI // 2, priority=2_000_000_000),
        ],
    )
    await machine.runs(20)
    found = machine.keeper.report()
    (held,) = found.conditions
    assert held.condition is Condition.MEMORY
    assert EPOCH <= held.since < EPOCH + 1
    assert held.ends_at is not None
    assert found.helps == (Help(Remedy.WAIT, None, 0),)
    (deed,) = found.deeds
    assert (deed.outcome, deed.signal, deed.threshold) == (Outcome.EVICTED, Signal.MEMORY, GI)
    assert (deed.available, deed.capacity) == (0, MEMORY)
    assert deed.pod is not None and deed.next is not None
    assert (deed.pod.name, deed.next.name) == ("bigger", "big")
    assert [each.name for each in deed.ranking] == ["bigger", "big", "critical", "calm"]
    view = as_json(machine)
    text = render_pressure.node(view)
    assert text.startswith("The node is under MemoryPressure since 20s; enough again, ends in ")
    assert (
        "evicted default/bigger (used 6Gi, more than its request of 0, priority -5): "
        "memory.available was 0, below 1Gi" in text
    )
    assert "What would help\n  nothing: there is enough again" in text
    told = render_pressure.eviction(view["deeds"][0], view["at"])
    assert told.startswith("Evicted because the node ran short\n  20s ago: memory.available was 0")
    assert "    3. default/critical: critical or static: stays\n" in told
    assert told.endswith("  next would have been default/big")


@on_virtual_time
async def test_what_was_removed_and_what_would_help() -> None:
    machine = Machine(RULES, [eater("critical", disk=93 * GI, priority=2_000_000_000)], garbage=GI)
    await machine.runs(20)
    found = machine.keeper.report()
    assert [each.outcome for each in found.deeds][:1] == [Outcome.RECLAIM_NOT_ENOUGH]
    assert found.helps == (Help(Remedy.FREE_SPACE, Signal.NODEFS, 12 * GI - (DISK - 93 * GI)),)
    text = render_pressure.node(as_json(machine))
    assert "removed unused containers and images, which was not enough" in text
    assert "  nodefs.available: 5Gi of space have to be free more" in text
    assert ", crossed since " in text


@on_virtual_time
async def test_a_reclaim_that_was_enough() -> None:
    machine = Machine(RULES, [eater("writer", disk=80 * GI)], garbage=15 * GI)
    await machine.runs(20)
    (deed,) = machine.keeper.report().deeds
    assert deed.outcome is Outcome.RECLAIMED
    assert (deed.pod, deed.next, deed.ranking) == (None, None, ())
    assert "which was enough: nodefs.available was 5Gi, below 10Gi" in render_pressure.node(
        as_json(machine)
    )


def test_every_remedy_has_words() -> None:
    assert set(render_pressure._REMEDIES) == {each.value for each in Remedy}


def test_a_node_that_is_not_watched() -> None:
    assert render_pressure.node(None).startswith("this node is not watched")


@on_virtual_time
async def test_why_nothing_is_done_is_logged_once(caplog: Any) -> None:
    machine = Machine(RULES, [eater("critical", memory=16 * GI, priority=2_000_000_000)])
    await machine.runs(100)
    told = [each for each in caplog.messages if "only critical pods run" in each]
    assert len(told) == 1
