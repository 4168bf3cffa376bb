"""Which CPUs are kept for the system under cpuManagerPolicy static. Pure.

Source: docs/reference/behaviour-resources.md, rq.
"""

from __future__ import annotations

from kubeletpy.base.structs import replace
from kubeletpy.resources.placement.cpu_options import CpuOptions, OptionError
from kubeletpy.resources.placement.id_lists import format_ids
from kubeletpy.resources.placement.pick_cpus import NotEnoughCpus, pick
from kubeletpy.resources.placement.topology import CpuTopology


def reserve(
    topology: CpuTopology, listed: frozenset[int], count: int, options: CpuOptions
) -> frozenset[int]:
    """The CPUs that are kept from containers: those listed, or else the given number.

    Raises:
        OptionError: there is nothing to reserve, or there are not that many CPUs.
    """
    if count <= 0:
        raise OptionError(
            "cpuManagerPolicy",
            "static needs CPUs that are no container's: set systemReserved.cpu, kubeReserved.cpu "
            "or reservedSystemCPUs",
        )
    if listed:
        reserved = listed
    else:
        try:
            picking = replace(options.picking(topology), largest_cores=False)
            reserved = pick(topology, topology.ids, count, picking)
        except NotEnoughCpus as error:
            raise OptionError(
                "cpuManagerPolicy", f"static can't reserve {count} CPUs: {error}"
            ) from error
    if not reserved <= topology.ids:
        missing = format_ids(reserved - topology.ids)
        raise OptionError("reservedSystemCPUs", f"these CPUs are not online: {missing}")
    return reserved
