"""cpuManagerPolicyOptions: what they mean, and which can be combined. Pure.

Source: docs/reference/behaviour-resources.md, rq.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kubeletpy.base.structs import Struct
from kubeletpy.resources.placement.pick_cpus import PickOptions
from kubeletpy.resources.placement.topology import CpuTopology

FIELD = "cpuManagerPolicyOptions"
FULL_CORES = "full-pcpus-only"
ACROSS_NUMA = "distribute-cpus-across-numa"
BY_SOCKET = "align-by-socket"
ACROSS_CORES = "distribute-cpus-across-cores"
STRICT = "strict-cpu-reservation"
BY_UNCORE = "prefer-align-cpus-by-uncorecache"
GATES = {
    BY_SOCKET: "CPUManagerPolicyAlphaOptions",
    ACROSS_CORES: "CPUManagerPolicyAlphaOptions",
    ACROSS_NUMA: "CPUManagerPolicyBetaOptions",
}
"""The feature gates that some options require."""
EXCLUSIVE = (
    (FULL_CORES, ACROSS_CORES),
    (ACROSS_NUMA, ACROSS_CORES),
    (BY_UNCORE, ACROSS_CORES),
    (BY_UNCORE, ACROSS_NUMA),
)
TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))


class OptionError(Exception):
    """Placement settings that are impossible, on this machine or anywhere.

    ``field`` is the setting, and the text states what would be right.
    """

    def __init__(self, field: str, why: str) -> None:
        super().__init__(why)
        self.field = field


class CpuOptions(Struct, frozen=True):
    """Which are on."""

    full_cores: bool = False
    across_numa: bool = False
    by_socket: bool = False
    across_cores: bool = False
    strict: bool = False
    by_uncore: bool = False

    def picking(self, topology: CpuTopology) -> PickOptions:
        """The options that affect which CPUs are picked."""
        group = 0
        if self.across_numa:
            group = topology.threads_per_core if self.full_cores else 1
        return PickOptions(
            group, self.across_cores, self.by_uncore, self.by_socket, self.full_cores
        )


def read_cpu_options(given: Mapping[str, str], enabled: Callable[[str], bool]) -> CpuOptions:
    """The options of the settings.

    Args:
        given: names that are known (the settings are checked), and their values.
        enabled: whether a feature gate is on.

    Raises:
        OptionError: a value is invalid, a gate is off, or two options exclude each other.
    """
    on = {name for name, text in given.items() if boolean(FIELD, name, text)}
    for name in sorted(given):
        gate = GATES.get(name)
        if gate is not None and not enabled(gate):
            raise OptionError(FIELD, f"{name} needs the feature gate {gate}")
    for a, b in EXCLUSIVE:
        if a in on and b in on:
            raise OptionError(FIELD, f"{a} and {b} can not be used together")
    return CpuOptions(
        full_cores=FULL_CORES in on,
        across_numa=ACROSS_NUMA in on,
        by_socket=BY_SOCKET in on,
        across_cores=ACROSS_CORES in on,
        strict=STRICT in on,
        by_uncore=BY_UNCORE in on,
    )


def check_sockets(options: CpuOptions, topology: CpuTopology, *, single_node: bool) -> None:
    """Whether CPUs can be aligned by socket on this machine. Raises OptionError.

    ``single_node``: topologyManagerPolicy is single-numa-node.
    """
    if not options.by_socket:
        return
    if single_node:
        raise OptionError(
            FIELD,
            f"{BY_SOCKET} and topologyManagerPolicy single-numa-node can not be used together",
        )
    if len(topology.sockets) > len(topology.nodes):
        raise OptionError(
            FIELD, f"{BY_SOCKET} is not for machines with more sockets than NUMA nodes"
        )


def boolean(field: str, name: str, text: str) -> bool:
    """An option that is on or off. Raises OptionError."""
    if text in TRUE:
        return True
    if text in FALSE:
        return False
    raise OptionError(field, f"{name} must be true or false, not {text[:40]!r}")
