"""cpuManagerPolicy static: whole CPUs for containers of Guaranteed pods. Pure.

Source: docs/reference/behaviour-resources.md, rq. A decision is a new :class:`CpuState`, which
:mod:`kubeletpy.resources.placement.managers` keeps and writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from decimal import Decimal

from kubeletpy.base.api import types as api
from kubeletpy.base.structs import Struct
from kubeletpy.kubeapi.events.reasons import AdmissionReason
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.resources import Amounts, container_amounts
from kubeletpy.resources.placement import model
from kubeletpy.resources.placement.options import CpuOptions
from kubeletpy.resources.placement.pick_cpus import NotEnoughCpus, pick
from kubeletpy.resources.placement.state import CpuState

STATIC_CPU_POLICY = "static"
CPU = "cpu"
SMT = AdmissionReason.SMT_ALIGNMENT_ERROR
NOTHING: frozenset[int] = frozenset()


def exclusive_cpus(pod: Pod, container: api.Container, *, pod_level: bool = False) -> int:
    """Count the CPUs of its own that a container gets. Raises ValueError for an invalid quantity.

    ``pod_level``: whether containers of pods with pod-level resources get any.
    """
    if not model.may_have_own(pod, container, pod_level=pod_level):
        return 0
    return _whole_cpus(container_amounts(container, "requests"))


def _whole_cpus(requests: Amounts) -> int:
    amount = requests.get(CPU, Decimal(0))
    return int(amount) if amount == int(amount) else 0


def exclusive_cpus_of_pod(pod: Pod) -> int:
    """Count the CPUs of their own that a pod's containers need at once."""
    return model.peak_requests(pod, lambda container: {CPU: exclusive_cpus(pod, container)})[CPU]


class StaticCpus(Struct, frozen=True):
    """The policy on one machine.

    Attributes:
        reserved: CPUs that are never a container's own.
        pod_level: what pods with pod-level resources get.
    """

    topology: model.CpuTopology
    reserved: frozenset[int]
    options: CpuOptions
    pod_level: model.PodLevelPlacement = model.PodLevelPlacement.NOTHING

    # -- the state as a whole -----------------------------------------------------------------

    def initial(self) -> CpuState:
        """The state in which no container has CPUs of its own."""
        everything = self.topology.ids
        return CpuState(
            STATIC_CPU_POLICY, everything - self.reserved if self.options.strict else everything
        )

    def problem(self, state: CpuState) -> str:
        """Return why a state that was read cannot be used; empty if it can."""
        pool, exclusive = state.pool, state.exclusive
        strict = self.options.strict
        if not pool:
            return "" if state.is_empty else "default cpuset cannot be empty"
        if strict and self.reserved & pool:
            return (
                f"some of strictly reserved cpus: {model.format_ids(self.reserved & pool)} are "
                f"present in defaultCpuSet: {model.format_ids(pool)}"
            )
        if not strict and not self.reserved <= pool:
            return (
                f"not all reserved cpus: {model.format_ids(self.reserved)} are present "
                f"in defaultCpuSet: {model.format_ids(pool)}"
            )
        held = [(uid, *part) for uid, parts in state.entries.items() for part in parts.items()]
        for uid, name, cpus in (*held, *((uid, "", cpus) for uid, cpus in state.pools.items())):
            if cpus & pool:
                return (
                    f"pod: {uid}, container: {name} cpuset: {model.format_ids(cpus)} overlaps "
                    f"with default cpuset {model.format_ids(pool)}"
                )
        available = self.topology.ids - self.reserved if strict else self.topology.ids
        if pool | exclusive != available:
            return (
                f"current set of available CPUs {model.format_ids(available)} doesn't match "
                f"with CPUs in state {model.format_ids(pool | exclusive)}"
            )
        return ""

    def in_one_cache(self, cpus: frozenset[int]) -> bool:
        """Whether they share one L3 cache."""
        return len({self.topology.cpus[each].uncore for each in cpus}) == 1

    def free(self, state: CpuState) -> frozenset[int]:
        """CPUs of the shared pool that are not reserved."""
        return state.pool - self.reserved

    def _assignable(self, state: CpuState, reusable: frozenset[int] = NOTHING) -> frozenset[int]:
        """CPUs that could become a container's own: with full-pcpus-only, those of free cores.

        ``reusable``: what the container may take from init containers.
        """
        free = self.free(state) | reusable
        if not self.options.full_cores:
            return free
        whole = (members for members in self.topology.cores.values() if members <= free)
        return NOTHING.union(*whole)

    def requested(self, pod: Pod, container: api.Container) -> int:
        """Count the CPUs of its own that a container gets. Raises ValueError."""
        allowed = self.pod_level is not model.PodLevelPlacement.NOTHING
        return exclusive_cpus(pod, container, pod_level=allowed)

    # -- hints --------------------------------------------------------------------------------

    def hints(self, state: CpuState, pod: Pod, container: api.Container | None) -> model.Hints:
        """Return where the CPUs could be; ``container`` None stands for the whole pod."""
        if container is None:
            pools = self.pod_level.pools(pod)
            return self._pool_hints(state, pod) if pools else self._pod_hints(state, pod)
        desired = self.requested(pod, container)
        if not desired:
            return {}
        if (held := state.container_cpus(pod.uid, container["name"])) is not None:
            return {CPU: self._masks(held, NOTHING, desired) if len(held) == desired else ()}
        reusable = self.reusable(state, pod, container)
        return {CPU: self._masks(self._assignable(state, reusable), reusable, desired)}

    def _pod_hints(self, state: CpuState, pod: Pod) -> model.Hints:
        desired = exclusive_cpus_of_pod(pod)
        if not desired:
            return {}
        held = NOTHING
        for container in model.containers_in_order(pod):
            found = state.container_cpus(pod.uid, container["name"])
            if found is not None:
                if len(found) != exclusive_cpus(pod, container):
                    return {CPU: ()}
                held |= found
        return {CPU: self._masks(self._assignable(state, held) | held, held, desired)}

    def _pool_hints(self, state: CpuState, pod: Pod) -> model.Hints:
        desired = _whole_cpus(model.pool_requests(pod))
        if not desired:
            return {}
        if self._check_pool(pod, desired):
            return {CPU: ()}
        held = state.pod_cpus(pod.uid)
        return {CPU: self._masks(held or self._assignable(state), NOTHING, len(held) or desired)}

    def _masks(
        self, usable_cpus: frozenset[int], reusable: frozenset[int], desired: int
    ) -> tuple[model.Hint, ...]:
        """Sets of nodes with this many CPUs, including all reusable ones."""
        cpus, nodes = self.topology.cpus, tuple(self.topology.nodes)
        has = model.sums(len(members) for members in self.topology.nodes.values())
        count = Counter(model.by_numa(cpus[each]) for each in usable_cpus)
        usable = model.sums(count[node] for node in nodes)
        needed = model.mask_of({model.by_numa(cpus[each]) for each in reusable})
        as_mask, narrowest, found = model.masks(nodes), len(nodes), []
        for index, positions in model.subsets(len(nodes)):
            if has[index] >= desired:
                narrowest = min(narrowest, len(positions))
            if usable[index] >= desired and needed & ~as_mask[index] == 0:
                found.append(as_mask[index])
        return tuple(model.Hint(mask, self._is_preferred(mask, narrowest)) for mask in found)

    def _is_preferred(self, mask: int, narrowest: int) -> bool:
        if mask.bit_count() == narrowest:
            return True
        if not self.options.by_socket:
            return False
        per_socket = len(self.topology.nodes) // len(self.topology.sockets)
        return len(self._sockets_of(mask)) == -(-narrowest // per_socket)

    # -- allocation ---------------------------------------------------------------------------

    def reusable(self, state: CpuState, pod: Pod, container: api.Container) -> frozenset[int]:
        """CPUs of the pod's init containers that have ended when this container starts."""
        return model.left_by_init_containers(
            pod, container["name"], lambda name: state.container_cpus(pod.uid, name) or NOTHING
        )

    def allocate(
        self, state: CpuState, pod: Pod, container: api.Container, hint: model.Hint
    ) -> CpuState:
        """The state after a container gets its CPUs; the same state if it gets none.

        Raises:
            AllocationRefused: not that many CPUs, or whole cores, are free.
        """
        desired = self.requested(pod, container)
        name = container["name"]
        if not desired or state.container_cpus(pod.uid, name) is not None:
            return state
        free = self._assignable(state, self.reusable(state, pod, container))
        return state.with_container(pod.uid, name, self._pick_near(free, desired, hint))

    def allocate_pool(self, state: CpuState, pod: Pod, hint: model.Hint) -> CpuState:
        """The state after a pod gets its pool, and each container its part of it.

        A pod keeps what it has. A pool that was recorded without the parts, by a kubelet that was
        interrupted, is divided again.

        Raises:
            AllocationRefused: not that many CPUs are free, or none is left to share.
        """
        desired = _whole_cpus(model.pool_requests(pod))
        pool = state.pools.get(pod.uid)
        have = state.entries.get(pod.uid, {}).keys()
        every = {container["name"] for container in model.containers_in_order(pod)}
        if not desired or every <= have or (have and pool is None):
            return state
        if why := self._check_pool(pod, desired):
            raise model.AllocationRefused(why, model.EMPTY_POOL)
        if pool is None:
            pool = self._pick_near(self._assignable(state), desired, hint)
        return state.with_pool(pod.uid, pool, self.divide(pod, pool, hint).parts)

    def divide(
        self, pod: Pod, pool: frozenset[int], hint: model.Hint
    ) -> model.Division[frozenset[int]]:
        """A pod's pool, divided among its containers. Raises AllocationRefused."""
        nodes = _width(hint)
        return model.divide(
            pod, pool, lambda each, left: self._pick(left, self.requested(pod, each), nodes)
        )

    def _check_pool(self, pod: Pod, desired: int) -> str:
        return model.check_pool(
            pod, Counter({CPU: desired}), lambda c: {CPU: self.requested(pod, c)}
        )

    def _pick_near(self, free: frozenset[int], count: int, hint: model.Hint) -> frozenset[int]:
        """CPUs of the hint's nodes first, then those of its sockets. Raises AllocationRefused."""
        self._check_cores(free, count)
        taken, nodes = NOTHING, _width(hint)
        for near in (*self._near(hint.mask), self.topology.ids):
            left = (free & near) - taken
            taken |= self._pick(left, min(count - len(taken), len(left)), nodes)
            nodes = 0  # it is the number of the hint's nodes, which have given all they have
        if len(taken) < count:
            raise _unexpected(NotEnoughCpus(count, len(free)))
        if self.options.full_cores and taken != self._with_siblings(taken):
            raise model.AllocationRefused(
                f"SMT Alignment Error: requested {count} cpus are not whole cores of those that "
                "are free: cores differ in their number of threads",
                SMT,
            )
        return taken

    def _pick(self, free: frozenset[int], count: int, nodes: int) -> frozenset[int]:
        try:
            return pick(self.topology, free, count, self.options.picking(self.topology), nodes)
        except NotEnoughCpus as error:
            raise _unexpected(error) from error

    def _check_cores(self, free: frozenset[int], desired: int) -> None:
        if not self.options.full_cores:
            return
        per_core = self.topology.threads_per_core
        if desired % per_core:
            raise model.AllocationRefused(
                f"SMT Alignment Error: requested {desired} cpus not multiple cpus per core "
                f"= {per_core}",
                SMT,
            )
        if desired > len(free):
            raise model.AllocationRefused(
                "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = "
                f"{len(free)}, requested CPUs = {desired}, CPUs per core = {per_core}",
                SMT,
            )

    def _with_siblings(self, ids: Iterable[int]) -> frozenset[int]:
        cores = {self.topology.cpus[each].core for each in ids}
        return frozenset(cpu.id for cpu in self.topology.cpus.values() if cpu.core in cores)

    def _near(self, mask: int | None) -> Iterator[frozenset[int]]:
        """The CPUs of a hint's nodes; with align-by-socket, those of its sockets after them."""
        if mask is None:
            return
        cpus = self.topology.cpus.values()
        yield frozenset(cpu.id for cpu in cpus if mask >> cpu.numa & 1)
        if self.options.by_socket:
            sockets = self._sockets_of(mask)
            yield frozenset(cpu.id for cpu in cpus if cpu.socket in sockets)

    def _sockets_of(self, mask: int) -> frozenset[int]:
        nodes = set(model.nodes_of(mask))
        return frozenset(cpu.socket for cpu in self.topology.cpus.values() if cpu.numa in nodes)


def _width(hint: model.Hint) -> int:
    """How many NUMA nodes a hint has; 0: any will do."""
    return 0 if hint.mask is None else hint.mask.bit_count()


def _unexpected(error: NotEnoughCpus) -> model.AllocationRefused:
    return model.AllocationRefused(f"Allocate failed due to {error}, which is unexpected")
