"""The pull records of the simulated node: real files, which outlive a killed agent."""

from __future__ import annotations

from pathlib import Path

from kubeletpy.clock import Clock
from kubeletpy.images.records.files import RecordFiles
from kubeletpy.images.records.ledger import PullRecords
from kubeletpy.images.records.store import RecordStore
from kubeletpy.images.records.verify import Verification
from kubeletpy.metrics.registry import Metrics
from kubeletpy.remote.protocol import ImageService


def pull_records(root: Path, clock: Clock, images: ImageService) -> PullRecords:
    """Those of an agent; ``root`` is its root directory."""
    metrics = Metrics().pull_records
    store = RecordStore(RecordFiles(root), clock, metrics)
    return PullRecords(store, Verification(), images.list_images, metrics)
