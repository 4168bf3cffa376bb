"""``kubeletpy version``."""

from __future__ import annotations

import platform
from collections.abc import Sequence

from kubeletpy.version import VERSION


def main(arguments: Sequence[str] = ()) -> int:
    """Print the version; takes no arguments."""
    if arguments:
        print("usage: kubeletpy version")
        return 0 if arguments[0] in ("-h", "--help") else 2
    print(f"kubeletpy {VERSION} (Python {platform.python_version()})")
    return 0
