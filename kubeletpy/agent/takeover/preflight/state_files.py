"""The state files that the agent would take over, and each pod's resources by them. Pure.

The readers are the agent's own. Source: docs/reference/state-files.csv.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from kubeletpy.agent.takeover.preflight.findings import Area, Finding, Holdings, Severity
from kubeletpy.base.structs import Struct
from kubeletpy.config.settings import KubeletSettings
from kubeletpy.images.records.model import read_intent, read_record
from kubeletpy.resources.allocation.checkpoint_file import PodListReader, read_snapshot, replay
from kubeletpy.resources.allocation.resources import PodResources
from kubeletpy.resources.devices import checkpoint as device_checkpoint
from kubeletpy.resources.devices.model import Booking, DeviceHolder
from kubeletpy.resources.dra import checkpoint as claim_checkpoint
from kubeletpy.resources.dra import health
from kubeletpy.resources.placement.model import format_ids
from kubeletpy.resources.placement.state import StateError, read_cpu_state, read_memory_state


class Reader(Struct, frozen=True):
    """How a file is read.

    Attributes:
        read: from its text to what it holds, in words; raises ValueError.
        damaged: the severity of a file that can't be used.
        consequence: what the agent does then.
    """

    read: Callable[[str], str]
    damaged: Severity
    consequence: str


class PolicyError(ValueError):
    """A state of another policy than the configured one."""


def readers(settings: KubeletSettings, pod_list: PodListReader) -> Mapping[str, Reader]:
    """The files below the root directory that have one reader each, by name."""
    resources = Reader(
        lambda text: f"resources of {counted(len(read_snapshot(text, pod_list)), 'pod')}",
        Severity.UNCLEAR,
        "allocated resources are taken from the API",
    )
    drain = "the agent does not start with it: drain this node and delete the file"
    return {
        "cpu_manager_state": Reader(
            lambda text: _cpus(text, settings.cpu_manager_policy), Severity.BLOCKS, drain
        ),
        "memory_manager_state": Reader(
            lambda text: _memory(text, settings.memory_manager_policy), Severity.BLOCKS, drain
        ),
        "dra_manager_state": Reader(_claims, Severity.BLOCKS, drain),
        "dra_health_state": Reader(
            _health, Severity.UNCLEAR, "the health of devices is unknown until drivers report it"
        ),
        "allocated_pods_state": resources,
        "actuated_pods_state": resources,
    }


INTENT = Reader(
    lambda text: f"a pull of {read_intent(_bytes(text))}", Severity.UNCLEAR, "it is ignored"
)
RECORD = Reader(
    lambda text: f"pulls of {read_record(_bytes(text)).image_ref}",
    Severity.UNCLEAR,
    "the agent checks the credentials of pods with this image again",
)


def judge(path: str, text: str, reader: Reader) -> Finding:
    """The finding on a file."""
    try:
        return Finding(Area.STATE, Severity.TAKEN, path, reader.read(text))
    except ValueError as error:
        return Finding(Area.STATE, reader.damaged, path, str(error), reader.consequence)


def counted(number: int, one: str, many: str = "") -> str:
    """``1 pod``, ``2 pods``."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def _cpus(text: str, policy: str) -> str:
    if not text:
        return "empty"
    state = read_cpu_state(text)
    _check(state.policy, policy, "cpuManagerPolicy")
    return f"policy {state.policy}, exclusive CPUs of {counted(len(state.entries), 'pod')}"


def _memory(text: str, policy: str) -> str:
    if not text:
        return "empty"
    state = read_memory_state(text)
    _check(state.policy.lower(), policy.lower(), "memoryManagerPolicy")
    return f"policy {state.policy}, memory of {counted(len(state.entries), 'pod')}"


def _check(found: str, configured: str, setting: str) -> None:
    if found != configured:
        raise PolicyError(f"it was written by policy {found}, and {setting} is {configured}")


def _claims(text: str) -> str:
    return counted(len(claim_checkpoint.parse_checkpoint(text)), "claim")


def _health(text: str) -> str:
    json.loads(text)  # the reader takes what is not JSON for empty
    return f"devices of {counted(len(health.parse_health(text)), 'driver')}"


def _devices(text: str) -> str:
    bookings, resources = device_checkpoint.parse_checkpoint(text)
    of = counted(len(bookings), "container")
    return f"devices of {of}, {counted(len(resources), 'resource')} with a plugin"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


DEVICES = Reader(
    _devices,
    Severity.UNCLEAR,
    "running containers keep their devices, but the agent may assign these again: drain the node, "
    "then remove the file",
)


# Resources of pods. A file that can't be read is a finding of the first part, and holds nothing
# here.


def holdings_by_pod(cpus: str, devices: str, claims: str) -> Mapping[str, Holdings]:
    """Holdings by uid of the pod; the arguments are the files' texts, empty for missing files."""
    of_cpus = _pods_cpus(cpus)
    of_devices = _pods_devices(devices)
    of_claims = _pods_claims(claims)
    uids = {*of_cpus, *of_devices, *of_claims}
    return {
        uid: Holdings(
            tuple(of_devices.get(uid, ())),
            tuple(of_cpus.get(uid, ())),
            tuple(of_claims.get(uid, ())),
        )
        for uid in uids
    }


def held_devices(text: str) -> Mapping[str, Mapping[str, int]]:
    """How many devices are in use, by resource, for each pod (by uid) that has any.

    For such a pod the node counts as having at least that many. ``text``: of the devices' file.
    """
    bookings = _bookings(text)
    ids: dict[str, set[str]] = {}
    for holder, booking in bookings.items():
        ids.setdefault(holder.resource, set()).update(booking.ids)
    counts = {resource: len(held) for resource, held in ids.items()}
    return {holder.uid: counts for holder in bookings}


def recorded_resources(
    snapshot: str, journal: bytes, pod_list: PodListReader
) -> dict[str, PodResources]:
    """The records of a resource state file and its journal, by uid of the pod."""
    pods: dict[str, PodResources] = {}
    if snapshot:
        try:
            pods = read_snapshot(snapshot, pod_list)
        except StateError:
            return {}
    replay(pods, journal.splitlines(keepends=True))
    return pods


def _pods_cpus(text: str) -> dict[str, list[str]]:
    try:
        state = read_cpu_state(text) if text else None
    except ValueError:
        state = None
    entries = {} if state is None else state.entries
    return {
        uid: [f"{name}: {format_ids(ids)}" for name, ids in containers.items() if ids]
        for uid, containers in entries.items()
    }


def _pods_devices(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for holder in _bookings(text):
        found.setdefault(holder.uid, []).append(f"{holder.resource} ({holder.container})")
    return found


def _bookings(text: str) -> Mapping[DeviceHolder, Booking]:
    try:
        return device_checkpoint.parse_checkpoint(text)[0] if text else {}
    except ValueError:
        return {}


def _pods_claims(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    try:
        claims = claim_checkpoint.parse_checkpoint(text) if text else []
    except ValueError:
        return found
    for claim in claims:
        for uid in claim.pods:
            found.setdefault(uid, []).append(claim.name)
    return found
