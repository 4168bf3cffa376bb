"""The table of field numbers that the agent carries: what its resources consist of.

Apart from :mod:`.api_messages`, which is pure: this reads a file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

from kubeletpy.base.api import types as api
from kubeletpy.base.wire.api_messages import Table, consisting_of
from kubeletpy.base.wire.api_objects import ApiObjects

_POD = "core/Pod"


def load_table() -> Table:
    """Read the table: a copy of part of docs/reference/api-wire.json (tools/gen_local_data.py)."""
    return cast("Table", json.loads(Path(__file__).with_name("api-wire.json").read_text()))


def pod_list(raw: bytes) -> list[api.Pod]:
    """The pods of a protobuf PodList without an envelope. Raises api_objects.Malformed."""
    objects = ApiObjects(consisting_of(load_table(), (_POD,)), zeros=False)
    return cast("list[api.Pod]", objects.items(_POD, raw))
