"""``kubeletpy version``, and what ``kubelet --version=raw`` says."""

from __future__ import annotations

import platform
from collections.abc import Sequence

from kubeletpy.version import KUBELET, KUBERNETES_MINOR, VERSION


def main(arguments: Sequence[str] = ()) -> int:
    """Print the version; takes no arguments."""
    if arguments:
        print("usage: kubeletpy version")
        return 0 if arguments[0] in ("-h", "--help") else 2
    print(f"kubeletpy {VERSION} (Python {platform.python_version()})")
    return 0


def raw() -> str:
    """In Go's format for the value, which tools parse."""
    major, minor = KUBERNETES_MINOR.split(".")
    return (
        f'version.Info{{Major:"{major}", Minor:"{minor}", GitVersion:"{KUBELET}", '
        f'Compiler:"{platform.python_implementation()}", Platform:"linux/{platform.machine()}"}}'
    )
