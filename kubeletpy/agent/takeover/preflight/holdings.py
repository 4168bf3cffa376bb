"""Lists each pod's resources on the node, from the texts of the state files. Pure.

A file that can't be read is a finding of :mod:`kubeletpy.agent.takeover.preflight.state_files`; here it holds
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubeletpy.agent.takeover.preflight.pods import Holdings
from kubeletpy.agent.takeover.preflight.state_files import UNUSABLE
from kubeletpy.resources.allocation import checkpoint_file
from kubeletpy.resources.allocation.resources import PodResources
from kubeletpy.resources.devices import checkpoint as device_checkpoint
from kubeletpy.resources.devices.model import Booking, DeviceHolder
from kubeletpy.resources.dra import checkpoint as claim_checkpoint
from kubeletpy.resources.placement.cpu_state import read_cpu_state
from kubeletpy.resources.placement.id_lists import format_ids


def holdings_by_pod(cpus: str, devices: str, claims: str) -> Mapping[str, Holdings]:
    """Holdings by uid of the pod; the arguments are the files' texts, empty for missing files."""
    of_cpus = _cpus(cpus)
    of_devices = _devices(devices)
    of_claims = _claims(claims)
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


def recorded_resources(snapshot: str, journal: bytes) -> dict[str, PodResources]:
    """The records of a resource state file and its journal, by uid of the pod."""
    pods: dict[str, PodResources] = {}
    if snapshot:
        try:
            pods = checkpoint_file.read_snapshot(snapshot)
        except checkpoint_file.BadAllocationState:
            return {}
    checkpoint_file.replay(pods, journal.splitlines(keepends=True))
    return pods


def _cpus(text: str) -> dict[str, list[str]]:
    try:
        state = read_cpu_state(text) if text else None
    except UNUSABLE:
        state = None
    entries = {} if state is None else state.entries
    return {
        uid: [f"{name}: {format_ids(ids)}" for name, ids in containers.items() if ids]
        for uid, containers in entries.items()
    }


def _devices(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for holder in _bookings(text):
        found.setdefault(holder.uid, []).append(f"{holder.resource} ({holder.container})")
    return found


def _bookings(text: str) -> Mapping[DeviceHolder, Booking]:
    try:
        return device_checkpoint.parse_checkpoint(text)[0] if text else {}
    except UNUSABLE:
        return {}


def _claims(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    try:
        claims = claim_checkpoint.parse_checkpoint(text) if text else []
    except UNUSABLE:
        return found
    for claim in claims:
        for uid in claim.pods:
            found.setdefault(uid, []).append(claim.name)
    return found
