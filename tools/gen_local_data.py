"""Copy the tables that the programs read at run time into their packages.

    python tools/gen_local_data.py            # copies
    python tools/gen_local_data.py --check    # exits 1 if a copy is not the table

The wheels have no docs; this is all that they need of them: the embedded API's tables, and of
api-wire.json what the agent's resources consist of.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import shutil
import sys
from pathlib import Path

from kubeletpy.base.wire.api_messages import consisting_of
from kubeletpy.base.wire.api_objects import message_name
from kubeletpy.kubeapi import protocol
from kubeletpy.volumes.projected import trust_bundles
from kubeletpy.volumes.projected.pod_certificates import certificates as pod_certificates

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
DATA = ROOT / "up" / "kubeletpy_up" / "data"
FILES = (
    "api-resources.json",
    "api-schema.json",
    "api-schema-more.json",
    "api-wire.json",
    "openapi-v2-document.json",
)
WIRE = "api-wire.json"
OWN_WIRE = ROOT / "kubeletpy" / "base" / "wire" / "api-wire.json"
ABOUT_ALL = ("meta/Status", "meta/ListMeta", "meta/DeleteOptions")


def of_the_agent() -> str:
    """The messages of api-wire.json that the agent sends and receives, one a line."""
    table = consisting_of(json.loads((REFERENCE / WIRE).read_text()), roots())
    lines = (
        f"{json.dumps(name)}:{json.dumps(table[name], separators=(',', ':'))}" for name in table
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


def roots() -> list[str]:
    """The kinds that the agent requests, and the messages that are part of all of them."""
    requested = [each for each in vars(protocol).values() if isinstance(each, protocol.Resource)]
    requested += [*trust_bundles.VERSIONS, *pod_certificates.VERSIONS]
    named = [message_name(each.api_version, each.kind) for each in requested]
    return [*named, "authentication.k8s.io/TokenRequest", *ABOUT_ALL]


def main() -> int:
    """Entry point; see the module docstring."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        _, stale, missing = filecmp.cmpfiles(REFERENCE, DATA, FILES, shallow=False)
        if not OWN_WIRE.exists() or OWN_WIRE.read_text() != of_the_agent():
            stale.append(str(OWN_WIRE.relative_to(ROOT)))
        if stale or missing:
            named = ", ".join([*stale, *missing])
            print(f"out of date: {named}; run tools/gen_local_data.py", file=sys.stderr)
            return 1
        return 0
    for name in FILES:
        shutil.copyfile(REFERENCE / name, DATA / name)
    OWN_WIRE.write_text(of_the_agent())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
