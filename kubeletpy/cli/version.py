"""``kubeletpy version``, and the output of ``kubelet --version=raw``.

Apart, as each command is: this one loads nothing else.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence

from kubeletpy.base.kubernetes_version import SUPPORTED, KubernetesVersion
from kubeletpy.base.version import VERSION


def main(arguments: Sequence[str] = ()) -> int:
    """Print the version; takes no arguments."""
    if arguments:
        print("usage: kubeletpy version")
        return 0 if arguments[0] in ("-h", "--help") else 2
    print(f"kubeletpy {VERSION} (Python {platform.python_version()})")
    print(f"Kubernetes {', '.join(map(str, SUPPORTED))}")
    return 0


def raw(version: KubernetesVersion) -> str:
    """In Go's format for the value, which tools parse."""
    major, minor = str(version).split(".")
    return (
        f'version.Info{{Major:"{major}", Minor:"{minor}", GitVersion:"{version.kubelet}", '
        f'Compiler:"{platform.python_implementation()}", Platform:"linux/{platform.machine()}"}}'
    )
