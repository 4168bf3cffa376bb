"""The pull records of a node as configured."""

from __future__ import annotations

from pathlib import Path

from kubeletpy.base.clock import Clock
from kubeletpy.config import KubeletSettings
from kubeletpy.images.metrics import RecordMetrics
from kubeletpy.images.records.files import RecordFiles
from kubeletpy.images.records.ledger import PullRecords
from kubeletpy.images.records.store import RecordStore
from kubeletpy.images.records.verify import Verification, VerificationPolicy
from kubeletpy.remote.protocol import ImageService

_RECORDS_PER_POD = 5
_INTENTS_PER_POD = 2


def pull_records(
    settings: KubeletSettings,
    root: Path,
    images: ImageService,
    clock: Clock,
    metrics: RecordMetrics,
) -> PullRecords | None:
    """Below ``root``, not opened yet; None when their feature gate is off."""
    if not settings.feature_gates.enabled("KubeletEnsureSecretPulledImages"):
        return None
    parallel = settings.max_parallel_image_pulls or 0
    store = RecordStore(
        RecordFiles(root),
        clock,
        metrics,
        max_intents=_INTENTS_PER_POD * max(settings.max_pods, parallel),
        max_records=_RECORDS_PER_POD * settings.max_pods,
    )
    verification = Verification(
        VerificationPolicy(settings.image_pull_credentials_verification_policy),
        settings.preloaded_images_verification_allowlist,
    )
    return PullRecords(store, verification, images.list_images, metrics)
