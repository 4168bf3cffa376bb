"""The interface of a kind of claim-backed volume, and the secrets that its sources name.

A secret is read at the moment of use. Must never log one, or put one into an error. Source:
docs/reference/behaviour-storage.md, sc, sf, sk, sn, st.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kubeletpy.base.host.errors import Cause, CauseKind
from kubeletpy.kubeapi.errors import ApiError, NotFound
from kubeletpy.kubeapi.protocol import SECRETS, KubeApi
from kubeletpy.volumes.claims.model import (
    AttachmentMetadata,
    Describes,
    ExpansionFailed,
    ExpansionProblem,
    FailureOutcome,
    Found,
    OperationFailed,
    PodUse,
    Published,
    PublishedOnDisk,
    StagedOnDisk,
    VolumeSpec,
    VolumeStats,
    Waits,
)


class VolumePlugin(Describes, Protocol):
    """One kind of claim-backed volume: CSI, or an in-tree kind.

    A plugin acts and reports the result; :mod:`kubeletpy.volumes.volume_manager` decides when, and
    never runs two operations on one volume at once. Every operation is idempotent: it may be
    repeated after a failure or a kill at any instant. Teardown works from what is on disk, without
    the API. The synchronous queries answer from memory and never block. The answer of ``traits``
    may differ after ``on_change`` has reported a change. Defaults are those of a kind without
    driver, staging and expansion.
    """

    def ready(self, spec: VolumeSpec) -> Waits | None:
        """Why an operation on this volume would only fail now (its driver is not registered)."""
        return None

    def metric_name(self, spec: VolumeSpec | PublishedOnDisk | StagedOnDisk) -> str:
        """Its name in metrics, for example ``kubernetes.io/csi:{driver}``."""
        return self.name

    def supports_selinux_mount(self, spec: VolumeSpec) -> bool:
        """Whether it can be mounted with an SELinux context (table sp3)."""
        return False

    def republishes(self, spec: VolumeSpec) -> bool:
        """Whether it needs to be republished periodically (requiresRepublish)."""
        return False

    def published(self, spec: VolumeSpec, pod_uid: str) -> PublishedOnDisk:
        """Where and how ``publish`` puts it for a pod; pure."""

    def staged(self, spec: VolumeSpec) -> StagedOnDisk:
        """Where and how ``stage`` puts it; pure."""

    async def stage(self, spec: VolumeSpec, attachment: AttachmentMetadata, use: PodUse) -> None:
        """Make a volume ready for all pods of the node (NodeStageVolume, a device mount).

        Raises OperationFailed.
        """
        return

    async def publish(
        self, spec: VolumeSpec, attachment: AttachmentMetadata, use: PodUse, *, remount: bool
    ) -> Published:
        """Give a volume to one pod. ``remount``: the pod already has it, maybe with running
        containers, and must keep it whatever happens. Raises OperationFailed.
        """

    async def unpublish(self, left: PublishedOnDisk) -> None:
        """Take a volume from one pod. On success nothing is mounted and no file is left. Raises
        OperationFailed.
        """

    async def unstage(self, left: StagedOnDisk) -> None:
        """Undo ``stage``. Raises OperationFailed."""
        return

    async def expand(self, spec: VolumeSpec, size: int, use: PodUse) -> int:
        """Grow the volume on this node to ``size`` bytes; returns its new size. Raises
        ExpansionFailed.
        """
        raise ExpansionFailed(ExpansionProblem.UNSUPPORTED, f"{self.name} volumes don't expand")

    async def stats(self, left: PublishedOnDisk) -> VolumeStats | None:
        """The volume's usage; None: the plugin cannot measure it. Raises OperationFailed."""

    def find_on_disk(self) -> Found:
        """The plugin's volumes on disk, staged leftovers included. Blocks: call in a thread."""

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Have ``listener(driver)`` called when the plugin's abilities have changed: a driver came
        or went, its CSIDriver object changed. Empty: any driver.
        """
        return


async def read_secret(
    kube_api: KubeApi | None, reference: Any, namespace: str = ""
) -> dict[str, str]:
    """The values of the secret that a source names; empty when it names none.

    ``namespace``: the pod's, used where the reference has none of its own. Raises OperationFailed.
    """
    if not isinstance(reference, Mapping):
        return {}
    name, where = reference.get("name"), namespace or reference.get("namespace")
    if not (isinstance(name, str) and name and isinstance(where, str) and where):
        raise _failed("a secret is referred to without name or namespace", FailureOutcome.FINAL)
    reported = f'secret "{where}/{name}"'
    if kube_api is None:
        raise _failed(f"{reported}: this node has no API")
    try:
        found = await kube_api.get(SECRETS, name, where)
    except ApiError as error:
        cause = Cause(CauseKind.VOLUME_SECRET, name, where)
        raise _failed(
            f"{reported} could not be read: {error.message}",
            cause=cause if isinstance(error, NotFound) else None,
        ) from None
    return _decoded(found.get("data"), reported)


def _decoded(data: Any, reported: str) -> dict[str, str]:
    values = {}
    for key, text in data.items() if isinstance(data, dict) else ():
        try:
            values[str(key)] = base64.b64decode(text, validate=True).decode()
        except (binascii.Error, ValueError, TypeError):
            raise _failed(f"{reported}: the value of key {key!r} is no text") from None
    return values


def _failed(
    message: str, outcome: FailureOutcome = FailureOutcome.TRANSIENT, cause: Cause | None = None
) -> OperationFailed:
    failed = OperationFailed(outcome, message)
    failed.cause = cause
    return failed
