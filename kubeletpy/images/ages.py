"""When images were first detected and last used, kept across restarts of the agent.

One small file below the root directory, ``{"images": {id: [first detected, last used]}}`` in Unix
seconds, replaced atomically. The kubelet forgets this at each restart and then treats every image
as new (docs/reference/behaviour-resources.md, rg). Must never raise for the file's content: without
it all images are new, which removes too little and never too much.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

from kubeletpy.base.host.files import write_private
from kubeletpy.images.gc_selection import ImageRecord

log = logging.getLogger(__name__)

FILE = "image_ages.json"
MOST_IMAGES = 10_000
"""Images kept; if there are more, the most recently used ones."""
MOST_BYTES = 4 << 20
"""Longest file read: room for that many images, and some more."""
LONGEST_ID = 200

Ages = Mapping[str, tuple[float, float]]
"""Image id -> (first detected, last used or 0), Unix seconds."""


class ImageAges:
    """The file. Blocking: call it on a thread."""

    def __init__(self, root: Path) -> None:
        """``root``: the agent's root directory."""
        self._path = root / FILE

    def load(self, now: float) -> Ages:
        """The known ages; empty if unreadable. No time is later than ``now``."""
        try:
            with self._path.open("rb") as file:
                data = file.read(MOST_BYTES + 1)
        except FileNotFoundError:
            return {}
        except OSError as error:
            log.warning("ages of images not read: all count as new", extra={"why": str(error)})
            return {}
        try:
            return read_ages(data, now)
        except ValueError as error:
            log.warning(
                "ages of images not read: all count as new",
                extra={"path": str(self._path), "why": str(error)},
            )
            return {}

    def save(self, records: Iterable[ImageRecord]) -> None:
        """Replace the known ages."""
        try:
            write_private(self._path, written(records))
        except OSError as error:
            log.warning("ages of images not kept", extra={"why": str(error)})


def read_ages(data: bytes, now: float) -> Ages:
    """Parse a file, omitting nonsensical entries. Raises ValueError: it is not such a file.

    A future time, left by a clock that was set back, is treated as ``now``.
    """
    if len(data) > MOST_BYTES:
        raise ValueError("it is too long")
    try:
        document = json.loads(data)
        entries = list(document["images"].items())
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"it contains no ages: {type(error).__name__}: {error}") from error
    found: dict[str, tuple[float, float]] = {}
    for name, times in entries[:MOST_IMAGES]:
        if isinstance(times, list) and len(times) == 2 and all(_is_time(time) for time in times):
            first, used = (min(float(time), now) for time in times)
            found[name] = first, used
    return found


def written(records: Iterable[ImageRecord]) -> str:
    """The text of the file."""
    kept = [record for record in records if len(record.id) <= LONGEST_ID]
    if len(kept) > MOST_IMAGES:
        kept.sort(key=lambda record: max(record.last_used, record.first_detected), reverse=True)
        del kept[MOST_IMAGES:]
    images = {record.id: [round(record.first_detected), round(record.last_used)] for record in kept}
    return json.dumps({"images": images}, separators=(",", ":"))


def _is_time(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return value >= 0 and (isinstance(value, int) or math.isfinite(value))
