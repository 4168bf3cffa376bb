"""Complete answers, over fake queries that change nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pytest
from msgspec import to_builtins

from kubeletpy.base.structs import replace
from kubeletpy.kubeapi.events.reasons import AdmissionReason
from kubeletpy.node.eviction.decide import Signal
from kubeletpy.node.eviction.report import EvictionOrder
from kubeletpy.observe.foresee.foreseer import MAX_IMAGES, UID, Foreseer, Nonsense
from kubeletpy.observe.foresee.model import (
    Act,
    Foreseen,
    ForeseenOutcome,
    ForeseenVolume,
    ImageUse,
    Need,
    NeedKind,
    NodeQueries,
    Squeezed,
)
from kubeletpy.observe.foresee.render import plan
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.pod_manager import PodManager
from kubeletpy.pods.runtime_status import Decision, PodRuntimeStatus, ProbeResults, SyncIntent
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.resources.admission.checks import (
    Admitted,
    Preempt,
    Refused,
    Rejection,
    Shortage,
    Verdict,
)
from kubeletpy.resources.allocation.resources import Infeasible
from kubeletpy.resources.placement.model import AllocationRefused
from tests.kit.observe import container, pod

RACE = "another pod may come first, and the scheduler decides whether this node gets the pod at all"
MIB = 2**20
ORDER = EvictionOrder((Signal.MEMORY,), False, (), (), 0, 0)


class Images:
    """Has ``a:1``; fails for ``broken:1``."""

    def __init__(self) -> None:
        self.requested: list[str] = []

    async def image_status(self, image: Any, verbose: bool = False) -> Any:
        self.requested.append(image.image)
        if image.image == "broken:1":
            raise CRIError("ImageStatus", "gone")
        found = cri.ImageStatusResponse()
        if image.image == "a:1":
            found.image.id = "sha256:a"
        return found


class FakeNode:
    """A node with the pod ``p``; each test sets what the node would do."""

    def __init__(self, *running: Pod) -> None:
        self.verdict: Verdict = Admitted()
        self.victims: Sequence[Pod] = ()
        self.refused: Exception | None = None
        self.placed: Sequence[Decision] = ()
        self.infeasible: Infeasible | None = None
        self.status: PodRuntimeStatus | None = PodRuntimeStatus("u", "p", "ns")
        self.intents: dict[str, SyncIntent] = {}
        """Intents by image of the first container, or by its CPU request."""
        self.images = Images()
        self.order_asked: list[tuple[Pod, Collection[str]]] = []
        pods = PodManager()
        for each in running:
            pods.put(each)
        self.queries = NodeQueries(
            "n1",
            pods,
            self.images.image_status,
            judge=lambda requested, others: (self.verdict, self.victims),
            others=lambda uid: (),
            place=self._place,
            allocated=lambda requested: requested,
            resized=lambda requested: self.infeasible or requested,
            seen=lambda uid: self.status,
            probes=lambda requested: ProbeResults(),
            intends=self._intends,
            traces=(),
            levels=lambda: [
                {"signal": "memory.available", "available": 90 * MIB, "threshold": 40 * MIB}
            ],
            evictions=self._order,
            memory_volumes=True,
        )

    async def _order(self, requested: Pod, without: Collection[str]) -> Sequence[EvictionOrder]:
        self.order_asked.append((requested, without))
        return [ORDER]

    def _place(self, requested: Pod) -> Sequence[Decision]:
        if self.refused is not None:
            raise self.refused
        return self.placed

    def _intends(self, requested: Pod, status: Any, probes: Any) -> SyncIntent:
        first = requested.containers[0]
        cpu = ((first.get("resources") or {}).get("requests") or {}).get("cpu", "")
        return self.intents.get(cpu or first["image"], SyncIntent(()))

    async def new(self, *containers: Any, **more: Any) -> Foreseen:
        spec = {"containers": list(containers) or [container("a")], **more}
        return await Foreseer(self.queries).foresee(
            {"pod": {"kind": "Pod", "metadata": {"name": "new"}, "spec": spec}}
        )

    async def patched(self, spec: Any, kind: str = "strategic") -> Foreseen:
        requested = {"namespace": "ns", "name": "p", "patch": {"spec": spec}, "type": kind}
        return await Foreseer(self.queries).foresee(requested)


def answer(
    outcome: ForeseenOutcome, name: str = "p", namespace: str = "ns", **more: Any
) -> Foreseen:
    return Foreseen(namespace, name, "n1", outcome, **more)


async def test_a_new_pod() -> None:
    node = FakeNode()
    node.placed = [Decision("pod goes to NUMA node 0", "cpu")]
    first = container(
        "a",
        resources={"requests": {"memory": "64Mi"}},
        volumeMounts=[{"name": "v", "mountPath": "/v"}],
    )
    found = await node.new(first, container("b"), volumes=[{"name": "v", "emptyDir": {}}])
    assert found == answer(
        ForeseenOutcome.RUNS,
        "new",
        "default",
        acts=(
            Act("pod goes to NUMA node 0", "cpu"),
            Act("volumes v", "containers mount them"),
            Act("RunPodSandbox", "the pod has no sandbox"),
            Act("CreateContainer a"),
            Act("StartContainer a"),
            Act("pull image b:1", "the node does not have it; imagePullPolicy is IfNotPresent"),
            Act("CreateContainer b"),
            Act("StartContainer b"),
        ),
        images=(
            ImageUse("a:1", ("a",), "use", "the node has it; imagePullPolicy is IfNotPresent"),
            ImageUse(
                "b:1", ("b",), "pull", "the node does not have it; imagePullPolicy is IfNotPresent"
            ),
        ),
        volumes=(ForeseenVolume("v", "an empty directory"),),
        squeezed=(
            Squeezed("memory.available", 90 * MIB, 64 * MIB, 40 * MIB, 26 * MIB, crossed=True),
        ),
        evictions=(ORDER,),
        unsure=(RACE,),
    )


async def test_a_new_pod_names_the_objects_that_it_needs() -> None:
    first = container("a", envFrom=[{"secretRef": {"name": "key"}}])
    found = await FakeNode().new(first)
    assert found.needs == (Need(NeedKind.SECRET, "key", ("container a",)),)


async def test_victims_of_a_new_pod() -> None:
    node = FakeNode()
    node.verdict = Preempt((Shortage("cpu", 2, 1, 2),))
    node.victims = [pod(name="low"), pod(name="lower")]
    found = await node.new()
    assert (found.outcome, found.victims) == (ForeseenOutcome.PREEMPTS, ("ns/low", "ns/lower"))
    ((requested, without),) = node.order_asked
    assert (requested.name, without) == ("new", {"uid-low", "uid-lower"}), "they have ended by then"


async def test_a_pod_that_is_refused_is_in_no_order() -> None:
    node = FakeNode()
    node.verdict = Refused(Rejection(AdmissionReason("OutOfpods"), "no room"))
    assert (await node.new()).evictions == ()
    assert node.order_asked == []


async def test_a_resize_is_ranked_with_its_new_requests() -> None:
    node = FakeNode(RUNNING)
    found = await node.patched(cpu("2"))
    ((requested, _),) = node.order_asked
    assert requested.containers[0]["resources"]["requests"] == {"cpu": "2"}
    assert found.evictions == (ORDER,)
    node.order_asked.clear()
    assert (await node.patched({"activeDeadlineSeconds": 5})).evictions == ()
    assert node.order_asked == []


@pytest.mark.parametrize(
    ("refused", "reason", "message"),
    [
        (None, "OutOfcpu", "none left"),
        (
            AllocationRefused("no place", AdmissionReason("TopologyAffinityError")),
            "TopologyAffinityError",
            "no place",
        ),
        (ValueError("bad quantity"), "UnexpectedAdmissionError", "bad quantity"),
    ],
)
async def test_a_new_pod_is_refused(refused: Exception | None, reason: str, message: str) -> None:
    node = FakeNode()
    node.refused, node.verdict = (
        refused,
        Refused(Rejection(AdmissionReason("OutOfcpu"), "none left")),
    )
    assert await node.new() == answer(
        ForeseenOutcome.REFUSED, "new", "default", reason=reason, message=message, unsure=(RACE,)
    )
    assert node.images.requested == []


async def test_a_pod_with_too_many_references_is_refused() -> None:
    env = [{"configMapRef": {"name": f"c{n}"}} for n in range(1001)]
    found = await FakeNode().new(container("a", envFrom=env))
    assert (found.outcome, found.reason) == (ForeseenOutcome.REFUSED, "UnexpectedAdmissionError")
    assert found.message.startswith("the pod refers to 1001 configMaps")


async def test_the_runtime_is_queried_once_per_image_up_to_a_limit() -> None:
    node = FakeNode()
    many = [container(f"c{n}", image=f"i{n}:1") for n in range(MAX_IMAGES + 5)]
    found = await node.new(*many, container("a"), container("b", image="a:1"))
    assert len(node.images.requested) == MAX_IMAGES
    assert found.images[-1].why.startswith("the runtime did not report")
    [only] = (await FakeNode().new(container("x", image="broken:1"))).images
    assert only.why.startswith("the runtime did not report")


RUNNING = pod(container("a", resources={"requests": {"cpu": "1"}}), container("b"))


def cpu(amount: str) -> Any:
    return {"containers": [{"name": "a", "resources": {"requests": {"cpu": amount}}}]}


RESIZE = ("resources are changed with `kubectl patch --subresource resize`",)


async def test_another_image() -> None:
    node = FakeNode(pod())
    kill = Decision("kill container a", "its image changed")
    node.intents["a:2"] = SyncIntent((kill,), stopped=("a",), started=("a",))
    found = await node.patched({"containers": [{"name": "a", "image": "a:2"}]})
    why = "the node does not have it; imagePullPolicy is IfNotPresent"
    assert found == answer(
        ForeseenOutcome.RESTARTS,
        restarts=("a",),
        acts=(
            Act("kill container a", "its image changed"),
            Act("pull image a:2", why),
            Act("CreateContainer a"),
            Act("StartContainer a"),
        ),
        images=(ImageUse("a:2", ("a",), "pull", why),),
    )


async def test_a_resize() -> None:
    node = FakeNode(RUNNING)
    node.intents["2"] = SyncIntent((Decision("resize container a", "cpu"),), resized=("a",))
    acts = (Act("resize container a", "cpu"),)
    assert await node.patched(cpu("2")) == answer(
        ForeseenOutcome.IN_PLACE, acts=acts, evictions=(ORDER,), hints=RESIZE
    )
    node.verdict, node.victims = Preempt((Shortage("cpu", 2, 1, 2),)), [pod(name="low")]
    assert (await node.patched(cpu("2"))).victims == ("ns/low",)
    node.verdict = Refused(Rejection(AdmissionReason("OutOfcpu"), "none left"))
    assert await node.patched(cpu("2")) == answer(
        ForeseenOutcome.DEFERRED, reason="OutOfcpu", message="none left", hints=RESIZE
    )
    node.infeasible = Infeasible("swap", "not with swap")
    assert await node.patched(cpu("2")) == answer(
        ForeseenOutcome.INFEASIBLE, reason="Infeasible", message="not with swap", hints=RESIZE
    )


def marked(**metadata: Any) -> Pod:
    made: Any = dict(pod().object)
    made["metadata"] = {**made["metadata"], **metadata}
    return Pod(made)


async def test_unchanged_and_forbidden_patches() -> None:
    node = FakeNode(RUNNING)
    assert await node.patched({}) == answer(ForeseenOutcome.UNCHANGED)
    found = await node.patched({"hostNetwork": True})
    assert (found.outcome, found.reason) == (ForeseenOutcome.FORBIDDEN, "Forbidden")
    static = marked(annotations={"kubernetes.io/config.source": "file"})
    found = await FakeNode(static).patched({"hostNetwork": True})
    assert (found.outcome, found.message) == (
        ForeseenOutcome.RECREATES,
        "another manifest is another pod: this one ends, and that one is started",
    )
    image = {"containers": [{"name": "a", "image": "a:2"}]}
    ending = marked(deletionTimestamp="2026-01-01T00:00:00Z")
    assert await FakeNode(ending).patched(image) == answer(
        ForeseenOutcome.ENDS, message="it is being deleted"
    )
    node = FakeNode(pod())
    node.status = None
    assert await node.patched(image) == answer(
        ForeseenOutcome.UNKNOWN, message="the runtime has not reported on it yet"
    )


async def test_a_file_is_laid_over_the_pod_of_its_name() -> None:
    node = FakeNode(pod(container("a", env=[{"name": "X", "value": "1"}]), nodeName="n1"))
    metadata = {"name": "p", "namespace": "ns"}
    requested = {"kind": "Pod", "metadata": metadata, "spec": {"containers": [container("a")]}}
    assert await Foreseer(node.queries).foresee({"pod": requested}) == answer(
        ForeseenOutcome.UNCHANGED
    )


async def test_a_json_patch_names_containers_by_index() -> None:
    node = FakeNode(pod(container("a"), container("b")))
    operations = [{"op": "replace", "path": "/spec/containers/1/image", "value": "c:1"}]
    requested = {"namespace": "ns", "name": "p", "patch": operations, "type": "json"}
    node.intents = {"c:1": SyncIntent((), started=("a",))}
    assert (await Foreseer(node.queries).foresee(requested)).outcome is ForeseenOutcome.UNCHANGED
    operations[0]["path"] = "/spec/containers/0/image"
    found = await Foreseer(node.queries).foresee(requested)
    assert (found.outcome, found.restarts) == (ForeseenOutcome.RESTARTS, ("a",))


REMOVE_SPEC = {"op": "remove", "path": "/spec"}


async def test_a_merge_patch_replaces_lists() -> None:
    found = await FakeNode(RUNNING).patched({"containers": [container("a")]}, "merge")
    assert found.outcome is ForeseenOutcome.FORBIDDEN
    assert "spec.containers[b]" in found.message


@pytest.mark.parametrize(
    ("requested", "why"),
    [
        ({}, "there is no pod in the request"),
        ({"pod": []}, "there is no pod in the request"),
        ({"pod": {"kind": "Service"}}, "it is no pod: kind is not Pod, or it has no metadata"),
        ({"pod": {"kind": "Pod"}}, "it is no pod: kind is not Pod, or it has no metadata"),
        ({"pod": {"kind": "Pod", "metadata": {"name": "x"}}}, "it is no pod: "),
        (
            {"pod": {"kind": "Pod", "metadata": {"name": "x"}, "spec": {"containers": []}}},
            "it is no pod: ",
        ),
        ({"namespace": "ns", "name": "q", "patch": {}}, "no pod ns/q on this node"),
        ({"namespace": "ns", "name": "p", "patch": []}, "the patch is no object"),
        ({"namespace": "ns", "name": "p", "patch": {"spec": []}}, "the patch is no object"),
        ({"namespace": "ns", "name": "p", "patch": {"spec": [1]}}, "the patch is no object"),
        (
            {"namespace": "ns", "name": "p", "patch": {}, "type": "apply"},
            "a patch is of type strategic, merge, json, not apply",
        ),
        (
            {"namespace": "ns", "name": "p", "patch": {}, "type": "json"},
            "a JSON patch is a list of operations",
        ),
        (
            {"namespace": "ns", "name": "p", "patch": [REMOVE_SPEC], "type": "json"},
            "it is no pod: ",
        ),
        (
            {"namespace": "ns", "name": "p", "patch": {"spec": {"containers": [{}]}}},
            "map: {} does not contain declared merge key: name",
        ),
    ],
)
async def test_nonsense(requested: Any, why: str) -> None:
    with pytest.raises(Nonsense) as caught:
        await Foreseer(FakeNode(RUNNING).queries).foresee(requested)
    assert str(caught.value).startswith(why)


async def test_a_new_pod_has_an_unused_uid() -> None:
    seen: list[str] = []

    def others(uid: str) -> Sequence[Pod]:
        seen.append(uid)
        return ()

    queries = replace(FakeNode().queries, others=others)
    await Foreseer(queries).foresee(
        {
            "pod": {
                "kind": "Pod",
                "metadata": {"name": "x"},
                "spec": {"containers": [container("a")]},
            }
        }
    )
    assert seen == [UID]


async def test_a_pod_that_never_starts_is_no_pod_that_runs() -> None:
    found = await FakeNode().new(container("a", image="NGINX:Lat est"))
    assert (found.outcome, found.reason) == (ForeseenOutcome.STUCK, "InvalidImageName")
    assert found.message.startswith('container a: Failed to apply default image tag "NGINX:')
    assert [each.subject for each in found.faults] == ["container a"]


async def test_a_pod_that_no_api_server_accepts_is_not_judged() -> None:
    found = await FakeNode().new(container("a"), container("a"))
    assert found.outcome is ForeseenOutcome.FORBIDDEN
    assert found.message == 'the API server refuses it: 2 containers have the name "a"'


async def test_the_user_of_an_image_on_the_node_is_judged() -> None:
    first = container("a", securityContext={"runAsNonRoot": True})
    found = await FakeNode().new(first)
    assert (found.outcome, found.reason) == (ForeseenOutcome.STUCK, "CreateContainerConfigError")
    assert "image will run as root" in found.message


async def test_a_change_to_an_invalid_image_starts_nothing() -> None:
    node = FakeNode(pod(container("a")))
    node.intents["A B"] = SyncIntent((), stopped=("a",), started=("a",))
    found = await node.patched({"containers": [container("a", image="A B")]})
    assert (found.outcome, found.reason) == (ForeseenOutcome.STUCK, "InvalidImageName")


async def test_how_many_replicas_fit() -> None:
    seen: list[int] = []

    def judge(one: Pod, others: Sequence[Pod]) -> tuple[Verdict, Sequence[Pod]]:
        seen.append(len({one.uid, *(each.uid for each in others)}))
        if len(others) < 3:
            return Admitted(), ()
        return Refused(Rejection(AdmissionReason("OutOfcpu"), "full")), ()

    queries = replace(FakeNode().queries, judge=judge, others=lambda uid: ())
    manifest = {
        "kind": "Pod",
        "metadata": {"name": "new"},
        "spec": {"containers": [container("a")]},
    }
    found = [
        (await Foreseer(queries).foresee({"pod": manifest, "replicas": count})).fits
        for count in (1, 2, 5)
    ]
    assert found == [None, 2, 3]
    assert seen[-4:] == [1, 2, 3, 4], "each replica counts for the next ones"


# Output of ``kubeletpy plan``.


def reported(outcome: ForeseenOutcome, **more: Any) -> str:
    return plan(to_builtins(Foreseen("ns", "web", "n1", outcome, **more)))


@pytest.mark.parametrize(
    ("outcome", "more", "line"),
    [
        (ForeseenOutcome.RUNS, {}, "n1 would admit and start it"),
        (ForeseenOutcome.UNCHANGED, {}, "nothing would happen on n1"),
        (ForeseenOutcome.IN_PLACE, {}, "it would be resized in place; nothing restarts"),
        (
            ForeseenOutcome.REFUSED,
            {"reason": "OutOfcpu", "message": "none left"},
            "n1 would refuse it: OutOfcpu: none left; it would be Failed for good",
        ),
        (
            ForeseenOutcome.FORBIDDEN,
            {"reason": "Forbidden", "message": "the API lets nobody"},
            "the API lets nobody",
        ),
        (
            ForeseenOutcome.RESTARTS,
            {"restarts": ("a", "b")},
            "a, b would restart; the pod, its address and its volumes stay",
        ),
        (ForeseenOutcome.RECREATES, {}, "all of its containers would restart, in a new sandbox"),
        (
            ForeseenOutcome.RECREATES,
            {"message": "another pod"},
            "all of its containers would restart, in a new sandbox: another pod",
        ),
        (
            ForeseenOutcome.ENDS,
            {"message": "it is being deleted"},
            "it would end: it is being deleted",
        ),
        (
            ForeseenOutcome.DEFERRED,
            {"reason": "OutOfcpu", "message": "none"},
            "the resize would wait until there is room: OutOfcpu: none",
        ),
        (
            ForeseenOutcome.INFEASIBLE,
            {"reason": "Infeasible", "message": "swap"},
            "the resize would never be done: Infeasible: swap",
        ),
        (
            ForeseenOutcome.UNKNOWN,
            {"message": "not asked"},
            "the outcome is not known yet: not asked",
        ),
    ],
)
def test_the_first_line_is_the_answer(
    outcome: ForeseenOutcome, more: dict[str, Any], line: str
) -> None:
    assert reported(outcome, **more) == f"ns/web: {line}\n"


def test_the_complete_text() -> None:
    mib = 2**20
    assert reported(
        ForeseenOutcome.PREEMPTS,
        victims=("ns/low",),
        acts=(
            Act("RunPodSandbox", "the pod has no sandbox", 0.5, 1),
            Act("pull image a:1", "", 2.0, 3),
            Act("CreateContainer a", "why"),
        ),
        images=(ImageUse("a:1", ("a", "b"), "pull", "the node does not have it"),),
        volumes=(ForeseenVolume("v", "configMap c"), ForeseenVolume("w", "nothing", "no volume")),
        squeezed=(
            Squeezed("memory.available", 300 * mib + 5, 64 * mib, 100 * mib, 1, crossed=False),
            Squeezed("nodefs.available", 2 * mib, mib, 3 * mib, 1, crossed=True),
        ),
        seconds=2.5,
        hints=("do it so",),
        unsure=("the rest",),
    ) == (
        "ns/web: n1 would admit it, and preempt others for it\n"
        "\n"
        "Preempts\n"
        "  ns/low\n"
        "\n"
        "Would (about 2500 ms, by the medians of this node)\n"
        "  RunPodSandbox      about 500 ms (once before)  the pod has no sandbox\n"
        "  pull image a:1     about 2000 ms (3 times before)\n"
        "  CreateContainer a  why\n"
        "\n"
        "Images\n"
        "  pull a:1  for a, b: the node does not have it\n"
        "\n"
        "Volumes\n"
        "  v  configMap c\n"
        "  w  nothing: no volume\n"
        "\n"
        "Eviction thresholds\n"
        "  memory.available  300Mi available, 64Mi requested, threshold 100Mi: "
        "not reached if it uses all of that\n"
        "  nodefs.available  2Mi available, 1Mi requested, threshold 3Mi: "
        "pods would be evicted if it uses all of that\n"
        "\n"
        "How\n"
        "  do it so\n"
        "\n"
        "Not known\n"
        "  the rest\n"
    )


NEAR = Squeezed("memory.available", 3, 2, 2, 1, crossed=True)
FAR = Squeezed("memory.available", 3, 1, 1, 2, crossed=False)


@pytest.mark.parametrize(
    ("squeezed", "crossed", "orders"),
    [
        ((), False, []),
        ((FAR,), False, []),
        ((NEAR,), False, ["memory.available (enough now)"]),
        ((), True, ["pid.available (short of it now)"]),
        ((NEAR,), True, ["memory.available (enough now)", "pid.available (short of it now)"]),
    ],
)
def test_the_order_of_evictions_is_part_of_the_text_only_under_pressure(
    squeezed: tuple[Squeezed, ...], crossed: bool, orders: list[str]
) -> None:
    evictions = (
        EvictionOrder((Signal.MEMORY,), False, (), (), 0, 0),
        EvictionOrder((Signal.PIDS,), crossed, (), (), 0, 0),
        EvictionOrder((Signal.NODEFS,), False, (), (), 0, 0),
    )
    text = reported(ForeseenOutcome.RUNS, squeezed=squeezed, evictions=evictions)
    assert [line.strip() for line in text.splitlines() if line.endswith(" now)")] == orders
    assert ("Eviction order" in text) == bool(orders)
    answer = to_builtins(Foreseen("ns", "web", "n1", ForeseenOutcome.RUNS, evictions=evictions))
    assert plan(answer, evictions=True).count(" now)") == 3


def test_a_long_act_does_not_widen_its_column() -> None:
    text = reported(ForeseenOutcome.RESTARTS, acts=(Act("x" * 90, "why"), Act("y", "so")))
    assert f"\n  {'x' * 79}…  why\n" in text
    assert f"\n  y{' ' * 59}  so\n" in text


def test_a_long_reason_is_cut() -> None:
    whole, cut = "x" * 600, "x" * 599 + "…"
    assert reported(ForeseenOutcome.FORBIDDEN, message=whole) == f"ns/web: {whole}\n"
    assert reported(ForeseenOutcome.FORBIDDEN, message=whole + "x") == f"ns/web: {cut}\n"


def test_nobody_writes_to_the_terminal_but_us() -> None:
    bad = "x\x1b[2J\ny"
    text = reported(
        ForeseenOutcome.REFUSED,
        message=bad,
        victims=(bad,),
        acts=(Act(bad, bad),),
        images=(ImageUse(bad, (bad,), bad, bad),),
        volumes=(ForeseenVolume(bad, bad, bad),),
        hints=(bad,),
        unsure=(bad,),
    )
    assert "\x1b" not in text
    assert "\ny" not in text
