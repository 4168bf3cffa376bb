"""Checks of a runtime's answers: each returns what is wrong, or "". Pure.

The runtime is not trusted: an empty id or a status without metadata would have the agent act on
the wrong container. Must never repair an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any, TypeVar

from kubeletpy.remote.generated import api_pb2 as cri

Item = TypeVar("Item", cri.PodSandbox, cri.Container)

API_VERSION = "v1"
"""The CRI version we speak, as runtimes name it in ``runtime_api_version``."""


def unset(message: object, *fields: str) -> str:
    """The names of those ``fields`` that are empty in ``message``."""
    missing = [name for name in fields if not getattr(message, name)]
    return f"{', '.join(missing)} not set" if missing else ""


def wrong_version(answer: cri.VersionResponse) -> str:
    """A VersionResponse must fill all its fields."""
    return unset(answer, "version", "runtime_name", "runtime_version", "runtime_api_version")


def wrong_sandbox_status(answer: cri.PodSandboxStatusResponse) -> str:
    """A sandbox status must state which sandbox of which pod it describes."""
    if not answer.HasField("status"):
        return "status not set"
    status = answer.status
    problem = unset(status, "id", "created_at") or _without_metadata(status)
    return problem or unset(status.metadata, "name", "namespace", "uid")


def wrong_container_status(answer: cri.ContainerStatusResponse) -> str:
    """A container status must state which container it describes, and which image that has."""
    if not answer.HasField("status"):
        return "status not set"
    status = answer.status
    problem = unset(status, "id", "created_at", "image_ref") or _without_metadata(status)
    return problem or unset(status.metadata, "name") or unset(status.image, "image")


def _without_metadata(status: cri.PodSandboxStatus | cri.ContainerStatus) -> str:
    return "" if status.HasField("metadata") else "metadata not set"


def wrong_status(answer: cri.StatusResponse) -> str:
    """A runtime status must hold both conditions that the node's Ready depends on."""
    have = {condition.type for condition in answer.status.conditions}
    missing = [name for name in ("RuntimeReady", "NetworkReady") if name not in have]
    return f"condition {' and '.join(missing)} not set" if missing else ""


def wrong_image_status(answer: cri.ImageStatusResponse) -> str:
    """An answer without an image is valid; an image without id or size is not."""
    return unset(answer.image, "id", "size") if answer.HasField("image") else ""


def lets_through(filter: Any, item: cri.PodSandbox | cri.Container) -> bool:
    """Whether a filter of a CRI list lets an item through; ``filter`` None lets all through.

    The parts of a filter are joined by "and": id, sandbox, state, and each label of its selector.
    """
    for field, value in filter.ListFields() if filter is not None else ():
        if field.name == "label_selector":
            if any(item.labels.get(key) != each for key, each in value.items()):
                return False
        elif getattr(item, field.name) != (value.state if field.name == "state" else value):
            return False
    return True


def believable_sandboxes(
    items: Sequence[cri.PodSandbox], filter: cri.PodSandboxFilter | None = None
) -> tuple[list[cri.PodSandbox], int]:
    """The sandboxes in a list that identify themselves and pass the filter; how many do not pass.

    A runtime that ignores a filter would have each pod's status filled with the node's list. An
    item holds the memory of its complete answer: what is left of a larger one is copied.
    """
    known = [item for item in items if item.id and item.HasField("metadata")]
    return _passing(known, filter)


def believable_containers(
    items: Sequence[cri.Container], filter: cri.ContainerFilter | None = None
) -> tuple[list[cri.Container], int]:
    """The containers in a list that identify themselves and their sandbox, as for sandboxes."""
    known = [
        item for item in items if item.id and item.pod_sandbox_id and item.HasField("metadata")
    ]
    return _passing(known, filter)


def _passing(known: list[Item], filter: Any) -> tuple[list[Item], int]:
    kept = [item for item in known if lets_through(filter, item)]
    dropped = len(known) - len(kept)
    return [deepcopy(item) for item in kept] if dropped > len(kept) else kept, dropped


def believable_images(items: Iterable[cri.Image]) -> list[cri.Image]:
    """The images in a list that identify themselves."""
    return [item for item in items if item.id]
