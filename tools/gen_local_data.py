"""Write the part of api-wire.json that the agent needs into its package.

    python tools/gen_local_data.py            # writes it
    python tools/gen_local_data.py --check    # exits 1 if it is not what the table gives

The agent's wheel has no docs. The embedded API's has the tables in its folder ``data``, and
the reference links to them.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from kubeletpy.base.wire.api_messages import consisting_of
from kubeletpy.base.wire.api_objects import message_name
from kubeletpy.kubeapi import protocol
from kubeletpy.volumes.projected import trust_bundles
from kubeletpy.volumes.projected.pod_certificates import certificates as pod_certificates

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"
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
    if not parser.parse_args().check:
        OWN_WIRE.write_text(of_the_agent())
    elif not OWN_WIRE.exists() or OWN_WIRE.read_text() != of_the_agent():
        print(f"out of date: {OWN_WIRE}; run tools/gen_local_data.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
