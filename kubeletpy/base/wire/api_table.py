"""The table of field numbers that the agent carries: what its resources consist of.

Apart from :mod:`.api_messages`, which is pure: this reads a file.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import cast

from kubeletpy.base.wire.api_messages import Table


def load_table() -> Table:
    """Read the table: a copy of part of docs/reference/api-wire.json (tools/gen_local_data.py)."""
    return cast("Table", json.loads(Path(__file__).with_name("api-wire.json").read_text()))
