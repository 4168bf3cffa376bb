"""A prediction for a pod, as plain data, and the queries from which it is made. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from kubeletpy.base.structs import Struct
from kubeletpy.metrics.trace.model import Name, TraceCall
from kubeletpy.runtime_manager.config.settings import RuntimeSettings

if TYPE_CHECKING:
    from kubeletpy.metrics.trace.model import PodTrace
    from kubeletpy.node.eviction.report import EvictionOrder
    from kubeletpy.pods.pod import Pod
    from kubeletpy.pods.pod_manager import PodManager
    from kubeletpy.pods.runtime_status import Decision, PodRuntimeStatus, ProbeResults, SyncIntent
    from kubeletpy.remote.generated import api_pb2 as cri
    from kubeletpy.resources.admission.checks import Verdict
    from kubeletpy.resources.allocation.resources import Infeasible


class ForeseenOutcome(StrEnum):
    """The outcome of a request, as a fixed word for programs."""

    RUNS = "runs"
    """A new pod is admitted."""
    WAITS = "waits"
    """A new pod is admitted, and does not start before an object exists that it needs."""
    STUCK = "stuck"
    """A pod is admitted, and does not start as it is described."""
    PREEMPTS = "preempts"
    """A new pod is admitted once others were preempted."""
    REFUSED = "refused"
    """The node does not admit it: it would end Failed with this reason."""
    FORBIDDEN = "forbidden"
    """The API server accepts no such change of a pod: it has to be replaced."""
    UNSERVED = "unserved"
    """The API has no objects of that kind; a pod of the workload was judged."""
    UNCHANGED = "unchanged"
    """The node does nothing."""
    IN_PLACE = "in place"
    """Nothing restarts."""
    RESTARTS = "restarts"
    """At least one container restarts, in the same pod."""
    RECREATES = "recreates"
    """All containers restart, in a new sandbox."""
    ENDS = "ends"
    """The pod is stopped."""
    DEFERRED = "deferred"
    """A resize waits until there is room."""
    INFEASIBLE = "infeasible"
    """A resize can never be done here."""
    UNKNOWN = "unknown"
    """The agent has not seen the pod in the runtime yet."""


NOT_TO_BE = frozenset(
    {
        ForeseenOutcome.WAITS,
        ForeseenOutcome.STUCK,
        ForeseenOutcome.REFUSED,
        ForeseenOutcome.FORBIDDEN,
        ForeseenOutcome.UNSERVED,
        ForeseenOutcome.DEFERRED,
        ForeseenOutcome.INFEASIBLE,
        ForeseenOutcome.UNKNOWN,
    }
)
"""The node would not do what is requested, or not yet."""


class Act(Struct, frozen=True):
    """One thing that the node would do.

    Attributes:
        what: the step or call as explain and timeline name it, and its object.
        seconds: the median of earlier times on this node; None if there are none.
        samples: how many earlier times.
    """

    what: str
    why: str = ""
    seconds: float | None = None
    samples: int = 0


class ImageUse(Struct, frozen=True):
    """Where the image of some containers comes from.

    ``action``: ``use``, ``pull`` or ``refuse``; a pod whose image is refused waits permanently.
    """

    image: str
    containers: tuple[str, ...]
    action: str
    why: str


class PresentImage(Struct, frozen=True):
    """An image as the node has it. ``user``: the image's uid or user name; None for root."""

    exists: bool
    user: int | str | None = None


class StartFault(Struct, frozen=True):
    """A reason why an admitted pod would not start.

    Example: ``StartFault("container main", "InvalidImageName", "Failed to apply …")``.
    """

    subject: str
    reason: str
    message: str


class ForeseenVolume(Struct, frozen=True):
    """The contents of a volume; ``problem``: why containers could not start with it."""

    name: str
    what: str
    problem: str = ""


class NeedKind(StrEnum):
    """Kinds of objects that a pod refers to, named as in its manifest."""

    CLAIM = "claim"
    CONFIG_MAP = "configMap"
    SECRET = "secret"


class NeedState(StrEnum):
    """The state of an object that a pod needs, as far as it was checked."""

    NOT_CHECKED = "not checked"
    EXISTS = "exists"
    MISSING = "missing"
    LACKS_KEYS = "lacks keys"
    """It exists without a key that the pod needs."""
    UNBOUND = "not bound"
    """A claim that has no volume yet; it may get one once a pod uses it."""


class Need(Struct, frozen=True):
    """An object of the pod's namespace without which it does not start.

    Attributes:
        users: the volumes and containers that refer to it: ``volume data``, ``container main``.
        keys: those that it must have.
    """

    kind: NeedKind
    name: str
    users: tuple[str, ...]
    state: NeedState = NeedState.NOT_CHECKED
    keys: tuple[str, ...] = ()


class Squeezed(Struct, frozen=True):
    """An eviction threshold that the pod's requests would bring near, if it uses all of them.

    In bytes. ``left`` is what would be available then; it may be negative. ``crossed``: the node
    would evict pods.
    """

    signal: str
    available: int
    requested: int
    threshold: int
    left: int
    crossed: bool


class Foreseen(Struct, frozen=True):
    """A prediction for a pod.

    Attributes:
        message: why, for a refusal; the message of the API server or the node.
        victims: pods that would be preempted.
        restarts: containers that restart.
        acts: in order.
        faults: why it would not start.
        needs: objects without which a new pod does not start; the agent does not check them.
        fits: how many of the requested replicas the node would admit without preempting; None if
            only one was requested, or none runs.
        evictions: in which order pods would be evicted, this one among them.
        seconds: sum of the medians of ``acts``; None without a history for one of them.
        hints: how to make such a change.
        unsure: circumstances that this answer can't take into account.
    """

    namespace: str
    name: str
    node: str
    outcome: ForeseenOutcome
    reason: str = ""
    message: str = ""
    victims: tuple[str, ...] = ()
    restarts: tuple[str, ...] = ()
    acts: tuple[Act, ...] = ()
    images: tuple[ImageUse, ...] = ()
    volumes: tuple[ForeseenVolume, ...] = ()
    faults: tuple[StartFault, ...] = ()
    needs: tuple[Need, ...] = ()
    squeezed: tuple[Squeezed, ...] = ()
    evictions: tuple[EvictionOrder, ...] = ()
    seconds: float | None = None
    fits: int | None = None
    hints: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()


class Durations:
    """How long steps and calls took on this node, as far as their traces are kept.

    Only successful ones count. The times of pulls are kept by image, too.
    """

    def __init__(self, traces: Iterable[PodTrace]) -> None:
        self._by_name: dict[tuple[Name, str], list[float]] = defaultdict(list)
        for trace in traces:
            for span in trace.start:
                if span.ended is None or span.error or span.name is TraceCall.BACK_OFF:
                    continue
                took = span.ended - span.began
                self._by_name[span.name, ""].append(took)
                if span.name is TraceCall.PULL_IMAGE:
                    self._by_name[span.name, span.detail].append(took)

    def act(self, name: Name, what: str = "", why: str = "", *, like: str = "") -> Act:
        """Return an act with the median of earlier times.

        ``like``: an image, the own pulls of which count if there were any; else all pulls count.
        """
        from statistics import median  # used with a request; 2 ms of imports

        times = self._by_name.get((name, like)) or self._by_name.get((name, "")) or []
        text = f"{name} {what}" if what else str(name)
        return Act(text, why, median(times) if times else None, len(times))


def total(acts: Iterable[Act]) -> float | None:
    """Return how long acts take one after the other, or None if that is not known of each."""
    known = [act.seconds for act in acts]
    seconds = [each for each in known if each is not None]
    return sum(seconds) if seconds and len(seconds) == len(known) else None


class NodeQueries(Struct, frozen=True):
    """The queries that the foreseer makes of the agent.

    Attributes:
        image_status: an image that the runtime may have; raises CRIError.
        judge: whether a pod would be admitted beside the others, and which ones it would preempt.
        others: the admitted pods but one, by uid.
        place: where on the machine a pod would go; raises AllocationRefused.
        allocated: a pod with the resources allocated to it.
        resized: a pod as it would be run after a resize.
        seen: what the runtime has of a pod (by uid); None if it was not read yet.
        probes: the results of a pod's probes.
        intends: what the runtime sync would do.
        traces: of the pods that this agent has started.
        levels: the node's eviction thresholds with what is left
            (:class:`kubeletpy.node.eviction.report.Level`).
        evictions: in which order pods would be evicted, with a pod among them and others (uids)
            removed.
        memory_volumes: whether a resize may change the size limits of volumes in memory.
        settings: of the node's sandboxes and containers.
    """

    node_name: str
    pods: PodManager
    image_status: Callable[[cri.ImageSpec], Awaitable[cri.ImageStatusResponse]]
    judge: Callable[[Pod, Sequence[Pod]], tuple[Verdict, Sequence[Pod]]]
    others: Callable[[str], Sequence[Pod]]
    place: Callable[[Pod], Sequence[Decision]]
    allocated: Callable[[Pod], Pod]
    resized: Callable[[Pod], Pod | Infeasible]
    seen: Callable[[str], PodRuntimeStatus | None]
    probes: Callable[[Pod], ProbeResults]
    intends: Callable[[Pod, PodRuntimeStatus, ProbeResults], SyncIntent]
    traces: Iterable[PodTrace]
    levels: Callable[[], Sequence[Mapping[str, Any]]]
    evictions: Callable[[Pod, Collection[str]], Awaitable[Sequence[EvictionOrder]]]
    memory_volumes: bool
    settings: RuntimeSettings = RuntimeSettings()
