"""topologyManagerPolicyOptions. Pure. Source: docs/reference/behaviour-resources.md, rt."""

from __future__ import annotations

from collections.abc import Mapping

from kubeletpy.base.structs import Struct
from kubeletpy.resources.placement.cpu_options import OptionError, boolean
from kubeletpy.resources.placement.hints import MAX_NODES

CLOSEST = "prefer-closest-numa-nodes"
MAX_ALLOWED = "max-allowable-numa-nodes"
FIELD = "topologyManagerPolicyOptions"


class TopologyOptions(Struct, frozen=True):
    """The options' values.

    Attributes:
        closest: of node sets of the same size, prefer the one whose nodes are closer together.
        max_nodes: on a machine with more NUMA nodes the agent does not start.
    """

    closest: bool = False
    max_nodes: int = MAX_NODES


def read_topology_options(given: Mapping[str, str]) -> TopologyOptions:
    """The options of the settings; names are valid. Raises OptionError."""
    max_nodes = MAX_NODES
    if (text := given.get(MAX_ALLOWED)) is not None:
        if not text.isdecimal() or int(text) < MAX_NODES:
            raise OptionError(FIELD, f"{MAX_ALLOWED} must be a number not below {MAX_NODES}")
        max_nodes = int(text)
    return TopologyOptions(boolean(FIELD, CLOSEST, given.get(CLOSEST, "false")), max_nodes)
