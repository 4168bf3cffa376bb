"""Long constants: facts about the Kubernetes API, in files beside this one."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any


def load_json(name: str) -> Any:
    """Read a data file of this package; a fresh object each time."""
    return json.loads(resources.files(__package__).joinpath(name).read_bytes())
