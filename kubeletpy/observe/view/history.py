"""CPU and memory of containers over the last minutes, from one answer about usage after another.

Pure: data in, data out; times are those of the answers. Bounded by the containers that run and by
MAX_SAMPLES of each. Nothing is queried here: the watcher feeds it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from kubeletpy.base.structs import Struct, field

MAX_SAMPLES = 120
GAP_S = 30.0
"""Seconds without a sample after which nothing is drawn over the gap: the plot begins anew."""


class _Container(Struct):
    memory_limit: int | None = None
    at: float | None = None
    cpu: float | None = None
    samples: deque[tuple[float, float | None, int | None]] = field(
        default_factory=lambda: deque(maxlen=MAX_SAMPLES)
    )


class History:
    """The usage of each running container, by pod uid and container name."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[str, _Container]] = {}

    def add(self, answer: Mapping[str, Any]) -> None:
        """Take in what the agent answers to /usage; containers that it leaves out are forgotten."""
        known, self._pods = self._pods, {}
        for pod in answer.get("pods") or ():
            before = known.get(pod["uid"], {})
            self._pods[pod["uid"]] = {
                each["name"]: _with(before.get(each["name"]) or _Container(), each)
                for each in pod["containers"]
            }

    def now(self) -> dict[str, tuple[float | None, int | None]]:
        """Pod uid -> the CPUs and bytes that its containers use together; None: unknown yet."""
        return {
            uid: (_total(containers, 1), _total(containers, 2))
            for uid, containers in self._pods.items()
        }

    def containers(self, uid: str) -> list[dict[str, Any]]:
        """The containers of a pod, each with ``samples`` of (Unix time, CPUs, bytes)."""
        return [
            {
                "name": name,
                "memory_limit": each.memory_limit,
                "samples": [list(sample) for sample in each.samples],
            }
            for name, each in self._pods.get(uid, {}).items()
        ]


def _with(known: _Container, answer: Mapping[str, Any]) -> _Container:
    at, cpu = answer["at"], answer["cpu"]
    known.memory_limit = answer["memory_limit"]
    if at is None or (known.at is not None and at <= known.at):
        return known
    used = None
    if known.at is not None and at - known.at > GAP_S:
        known.samples.clear()
    elif known.at is not None and cpu is not None and known.cpu is not None and cpu >= known.cpu:
        used = round((cpu - known.cpu) / (at - known.at), 5)
    known.samples.append((at, used, answer["memory"]))
    known.at, known.cpu = at, cpu
    return known


def _total(containers: Mapping[str, _Container], field_: int) -> Any:
    latest = [each.samples[-1][field_] for each in containers.values() if each.samples]
    known = [value for value in latest if value is not None]
    return round(sum(known), 5) if known else None
