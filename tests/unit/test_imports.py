"""What a process loads before it needs it."""

from __future__ import annotations

import subprocess
import sys

LAZY = {
    "cryptography": {"kubeletpy.host.x509", "kubeletpy.host.signing"},
    "dbus_fast": {"kubeletpy.shutdown.dbus"},
}
"""Libraries that cost much, and the modules that load them: each is imported where it is used."""

_CODE = """
import importlib, pkgutil, sys, kubeletpy
for each in pkgutil.walk_packages(kubeletpy.__path__, "kubeletpy."):
    if each.name not in {skipped!r} and not each.name.endswith("__main__"):
        importlib.import_module(each.name)
sys.exit(", ".join(sorted({libraries!r} & set(sys.modules))) or 0)
"""


def test_libraries_that_cost_much_are_loaded_where_they_are_used() -> None:
    skipped = {module for modules in LAZY.values() for module in modules}
    code = _CODE.format(skipped=skipped, libraries=set(LAZY))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
