"""Records the inputs and outputs of decisions, and writes them to disk a second later.

The inputs are immutable and only kept; a thread turns them into lines. If that falls behind, or the
disk is full, lines are dropped and counted: a recording must never slow down or stop an agent.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.json import encode as encode_json

from kubeletpy.base.api import types as api
from kubeletpy.base.clock import Clock
from kubeletpy.base.structs import Component
from kubeletpy.base.version import VERSION
from kubeletpy.metrics.trace.model import PodTrace, Span
from kubeletpy.observe.recorder.files import RecordingFiles
from kubeletpy.observe.recorder.model import (
    FORMAT,
    SHARED,
    Changes,
    LineKind,
    MachineState,
    effects_output,
    encode,
    encode_fields,
    machine_state,
    plan_output,
)
from kubeletpy.observe.recorder.redact import (
    Texts,
    redacted,
    redacted_runtime,
    secret_parts,
    unstarted_ids,
)
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import PodRuntimeStatus
from kubeletpy.podworkers.records import (
    DesiredPods,
    Effect,
    Event,
    Finished,
    Forgotten,
    PodRejected,
    event_uid,
)
from kubeletpy.podworkers.state_machine import WorkerMachine
from kubeletpy.runtime_manager.plan.actions import PodActions
from kubeletpy.runtime_manager.plan.compute_actions import PlanInputs
from kubeletpy.status.generate import StatusInputs

log = logging.getLogger(__name__)

WRITE_INTERVAL_S = 1.0
"""Seconds between two writes."""
MAX_WAITING = 20_000
"""Maximum number of lines that wait to be written; more are dropped."""
MAX_HELD_BYTES = 8 << 20
"""Maximum bytes of text of the pods and statuses that are still referred to by number.

Those used longest ago are written again. Only the newest of each pod is kept, which the agent holds
anyway."""
_HASH_LENGTH = 16

Line = Callable[["_Writer"], dict[str, Any]]


class FlightRecorder(Component):
    """Takes the inputs and outputs of decisions from other packages; run :meth:`run` as a task."""

    files: RecordingFiles
    clock: Clock
    machine: WorkerMachine
    """Each file begins with its state, where a replay starts."""
    node_name: str

    def __post_init__(self) -> None:
        self._waiting: deque[Line] = deque(maxlen=MAX_WAITING)
        self._arrived = asyncio.Event()
        self._key = secrets.token_bytes(32)
        self._writer = _Writer(self._hash)
        self._problem = ""
        self._desired: frozenset[str] | None = None
        self._changes = Changes()

    def event(self, event: Event, effects: Sequence[Effect]) -> None:
        """Record an event of the workers' machine; a list of the same pods is left out."""
        if isinstance(event, DesiredPods):
            if event.uids == self._desired and not effects:
                return
            self._desired = event.uids
        over = [effect.uid for effect in effects if isinstance(effect, Finished | Forgotten)]
        for uid in over:
            self._changes.removed(uid)
        if isinstance(event, PodRejected):
            over.append(event.pod.uid)  # it has no worker that would finish
        now, out = self.clock.now(), effects_output(effects)

        def line(writer: _Writer) -> dict[str, Any]:
            content = encode_fields(event, writer.refer)
            for uid in over:
                writer.removed(uid)
            head = _line(LineKind.EVENT, now, event_uid(event))
            return {**head, "event": type(event).__name__, "in": content, "out": out}

        self._add(line)

    def plan(self, inputs: PlanInputs, actions: PodActions) -> None:
        """Record the plan of a sync."""
        now, out = self.clock.now(), plan_output(actions)
        if not self._changes.has(LineKind.PLAN, inputs.pod, inputs.status, out):
            return
        self._add(
            lambda writer: {
                **_line(LineKind.PLAN, now, inputs.pod.uid),
                "in": encode_fields(inputs, writer.refer),
                "out": out,
            }
        )

    def status(self, inputs: StatusInputs, status: api.PodStatus) -> None:
        """Record a composed status, as text: the component that stores it may complete it."""
        out = _text(status)
        if not self._changes.has(LineKind.STATUS, inputs.pod, inputs.runtime, out):
            return
        self._add(
            lambda writer: {
                **_line(LineKind.STATUS, inputs.now, inputs.pod.uid),
                "in": encode_fields(inputs, writer.refer),
                "out": json.loads(out),
            }
        )

    def span(self, trace: PodTrace, span: Span) -> None:
        """Record a step or call for a pod that has ended."""
        now, took = self.clock.now(), (span.ended or span.began) - span.began
        found = {"name": str(span.name), "detail": span.detail, "took": round(took, 6)}
        error = {"error": span.error} if span.error else {}
        self._add(lambda _: {**_line(LineKind.SPAN, now, trace.uid), **found, **error})

    def _add(self, line: Line) -> None:
        if len(self._waiting) == MAX_WAITING:
            self._changes.begin()  # a dropped line must be recorded again
        self._waiting.append(line)
        self._arrived.set()

    async def run(self) -> None:
        """Write waiting lines periodically, until canceled."""
        await self.flush()  # begins a file: later events follow from the state in its head
        while True:
            await self._arrived.wait()
            await asyncio.sleep(WRITE_INTERVAL_S)
            await self.flush()

    async def flush(self) -> None:
        """Write the waiting lines."""
        self._arrived.clear()
        lines = list(self._waiting)
        self._waiting.clear()
        # the waiting lines have happened already: they belong before the head of a new file
        state = None
        if self.files.full:
            state = machine_state(self.machine)
            self._changes.begin()
        try:
            await asyncio.to_thread(self._write, lines, state, self.clock.now())
            self._problem = ""
        except OSError as error:
            if str(error) != self._problem:
                self._problem = str(error)
                log.warning("not recorded", extra={"error": self._problem})

    async def close(self) -> None:
        """Write the waiting lines and close the file."""
        await self.flush()
        self.files.close()

    def _write(self, lines: list[Line], state: MachineState | None, now: float) -> None:
        self.files.write(self._writer.lines(lines))
        if state is None:
            return
        self._writer = _Writer(self._hash)
        head = {
            "k": LineKind.HEAD,
            "t": now,
            "format": FORMAT,
            "version": VERSION,
            "node": self.node_name,
            "machine": encode(state, self._writer.refer),
        }
        self.files.start([_text(head), *self._writer.lines([])])

    def _hash(self, value: str) -> str:
        made = hmac.digest(self._key, value.encode("utf-8", "surrogatepass"), "sha256")
        return f"hmac:{made.hex()[:_HASH_LENGTH]}"


def _line(kind: LineKind, now: float, uid: str) -> dict[str, Any]:
    return {"k": kind, "t": now, "uid": uid}


class _Writer:
    """Turns the lines of one file into text, and numbers the objects that they share."""

    def __init__(self, hashed: Callable[[str], str]) -> None:
        self._hashed = hashed
        self._count = 0
        self._known: OrderedDict[tuple[type, str], tuple[object, int, int]] = OrderedDict()
        """Type and uid -> the newest value, its number, and the length of its text.

        The value is kept so that no other object can have its identity.
        """
        self._held = 0
        self._parts: dict[str, list[str]] = {}
        """uid -> the values that texts about the pod must not repeat."""
        self._unstarted: dict[str, frozenset[str]] = {}
        """uid -> its containers that never ran, by id."""
        self._shared: list[bytes] = []

    def refer(self, value: Pod | PodRuntimeStatus) -> int:
        """Return the number of a pod or a runtime status, which gets a line if it is new."""
        key = type(value), value.uid
        known = self._known.get(key)
        if known is not None and known[0] is value:
            self._known.move_to_end(key)
            return known[1]
        number = self._count
        self._count += 1
        content: Any
        if isinstance(value, Pod):
            before = known[0] if known is not None else None
            if isinstance(before, Pod) and _same_secrets(before, value):
                parts = self._parts[value.uid]
            else:
                parts = self._parts[value.uid] = secret_parts(value.object)
            unstarted = self._unstarted.get(value.uid, ())
            content = redacted(value.object, self._hashed, parts, unstarted)
        else:
            plain = encode_fields(value, self.refer)
            self._unstarted[value.uid] = unstarted_ids(plain)
            content = redacted_runtime(plain, self._texts(value.uid))
        name = type(value).__name__
        text = _text({"k": LineKind.SHARED, "n": number, "type": name, "value": content})
        self._shared.append(text)
        self._forget(key)
        self._known[key] = value, number, len(text)
        self._held += len(text)
        while self._held > MAX_HELD_BYTES:
            self._forget(next(iter(self._known)))
        return number

    def removed(self, uid: str) -> None:
        """Drop what is kept of a pod that has been removed."""
        for kind in SHARED:
            self._forget((kind, uid))
        self._parts.pop(uid, None)
        self._unstarted.pop(uid, None)

    def _forget(self, key: tuple[type, str]) -> None:
        if (known := self._known.pop(key, None)) is not None:
            self._held -= known[2]

    def _texts(self, uid: str) -> Texts:
        return Texts(self._hashed, self._parts.get(uid, ()), self._unstarted.get(uid, ()))

    def _cleaned(self, line: dict[str, Any]) -> dict[str, Any]:
        """Return a line the free texts of which repeat no secret value of its pod."""
        texts = self._texts(str(line.get("uid")))
        for key in ("in", "detail", "error"):
            if key in line:
                line[key] = texts.inputs(line[key], key)
        if "out" in line:
            line["out"] = texts.output(line["out"])
        return line

    def lines(self, lines: Sequence[Line]) -> list[bytes]:
        """Return the text of lines, each after the objects that it refers to."""
        found: list[bytes] = []
        for line in lines:
            made = _text(self._cleaned(line(self)))
            found += [*self._shared, made]
            self._shared.clear()
        found += self._shared
        self._shared.clear()
        return found


def _same_secrets(one: Pod, other: Pod) -> bool:
    """Return whether two versions of a pod have the same :func:`secret_parts`."""
    return one.spec is other.spec and one.annotations == other.annotations


def _text(value: Mapping[str, Any]) -> bytes:
    """Return JSON on one line; half of a surrogate pair, which UTF-8 cannot have, is escaped."""
    try:
        return encode_json(value)
    except UnicodeEncodeError:
        return json.dumps(value).encode()
