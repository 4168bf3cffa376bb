"""Registration, status writes and the lease, on virtual time."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from typing import Any, cast

import pytest

from kubeletpy.base.api.json_patch import strategic_merge
from kubeletpy.base.tasks import cancel_tasks
from kubeletpy.kubeapi.errors import AlreadyExists, Forbidden, NotFound, Unavailable
from kubeletpy.metrics.registry import Metrics
from kubeletpy.node.build import ImageSummary, NodeHealth, RuntimeInfo, initial_node
from kubeletpy.node.facts import NodeOptions
from kubeletpy.node.lease import LeaseKeeper, until_renewal
from kubeletpy.node.node_manager import NodeManager, NodeStartup, refusal, until_report
from kubeletpy.node.own_node import OwnNode
from tests.kit.events import Recorder
from tests.kit.machines import FACTS
from tests.kit.virtual_time import LoopClock

pytestmark = pytest.mark.virtual_time


def _keyed(key: str) -> Any:
    return {"x-kubernetes-patch-merge-key": key, "x-kubernetes-patch-strategy": "merge"}


SCHEMA: Any = {
    "properties": {
        "status": {"properties": {"conditions": _keyed("type"), "addresses": _keyed("type")}}
    }
}


class NodeApi:
    """Holds one node and one lease."""

    def __init__(self) -> None:
        self.node: dict[str, Any] | None = None
        self.lease: dict[str, Any] | None = None
        self.log: list[tuple[float, str]] = []
        self.down = False

    def _note(self, what: str) -> None:
        if self.down:
            raise Unavailable("down")
        self.log.append((asyncio.get_running_loop().time(), what))

    async def get(self, resource: Any, name: str, namespace: Any = None) -> Any:
        self._note(f"get {resource.plural}")
        if self.node is None:
            raise NotFound("no")
        return self.node

    async def create(self, resource: Any, obj: Any, namespace: Any = None) -> Any:
        self._note(f"create {resource.plural}")
        if resource.plural == "leases":
            self.lease = obj
            return obj
        if self.node is not None:
            raise AlreadyExists("yes")
        self.node = {**obj, "metadata": {**obj["metadata"], "uid": "node-uid"}}
        return self.node

    async def patch(self, resource: Any, name: str, patch: Any, *_: Any, **options: Any) -> Any:
        self._note(f"patch {resource.plural} {options.get('subresource', '')}".strip())
        if resource.plural == "leases":
            if self.lease is None:
                raise NotFound("no")
            return self.lease
        if self.node is None:
            raise NotFound('nodes "n" not found')
        for key, values in (patch.get("metadata") or {}).items():
            old = self.node["metadata"]
            notified = {**old, key: {**(old.get(key) or {}), **values}}
            self.node = {**self.node, "metadata": notified}
        if "status" in patch:
            self.node = strategic_merge(SCHEMA, self.node, {"status": patch["status"]})
        return self.node


def manager(
    api: NodeApi, health: Any, recorder: Recorder, metrics: Metrics | None = None, **options: Any
) -> NodeManager:
    async def images() -> list[Any]:
        return []

    return NodeManager(
        api,  # type: ignore[arg-type]
        LoopClock(),
        NodeOptions(name="n", **options),
        FACTS,
        node_ips=["10.0.0.1"],
        recorder=recorder,
        health=health,
        runtime_info=lambda: RuntimeInfo("containerd", "2"),
        list_images=images,
        startup=NodeStartup(
            Metrics().node if metrics is None else metrics.node,
            LoopClock(),
            booted_at=None,
            started_at=LoopClock().now(),
        ),
        rng=random.Random(1),
    )


def ready(api: NodeApi) -> str:
    assert api.node is not None
    (found,) = [c for c in api.node["status"]["conditions"] if c["type"] == "Ready"]
    return str(found["status"])


async def test_a_new_node_is_ready_with_its_first_write() -> None:
    api, recorder = NodeApi(), Recorder()
    task = asyncio.create_task(manager(api, NodeHealth, recorder).run())
    await asyncio.sleep(149)
    assert api.log == [(0.0, "get nodes"), (0.0, "create nodes")], (
        "nothing changed, so nothing more is written"
    )
    assert ready(api) == "True"
    assert api.node is not None
    assert api.node["metadata"]["labels"]["kubernetes.io/hostname"] == "n", "as overridden"
    assert {"type": "Hostname", "address": "n"} in api.node["status"]["addresses"]
    assert "NodeReady" in recorder.reasons
    await asyncio.sleep(450 + 10.4 - 149)
    assert [what for _, what in api.log[2:]] == ["patch nodes status"], "1.5 report periods"
    first = api.log[2][0]
    await asyncio.sleep(first + 299 - asyncio.get_running_loop().time())
    assert len(api.log) == 3
    await asyncio.sleep(1 + 10.4)
    assert len(api.log) == 4, "then one period"
    task.cancel()


@pytest.mark.parametrize(
    ("in_step", "chance", "seconds"),
    [(False, 0.0, 300), (False, 0.9, 300), (True, 0.0, 150), (True, 0.5, 300), (True, 1.0, 450)],
)
def test_reports_of_nodes_that_changed_together_drift_apart(
    in_step: bool, chance: float, seconds: float
) -> None:
    assert until_report(300, chance, in_step=in_step) == seconds


@pytest.mark.parametrize(
    ("in_step", "chance", "seconds"),
    [(True, 0.0, 0), (True, 0.5, 5), (True, 1.0, 10), (False, 0.0, 10), (False, 1.0, 10.4)],
)
def test_leases_of_nodes_that_began_together_drift_apart(
    in_step: bool, chance: float, seconds: float
) -> None:
    assert until_renewal(10, chance, in_step=in_step) == pytest.approx(seconds)


async def test_after_an_outage_a_fleet_spreads_its_status_and_leases() -> None:
    """A hundred nodes lost the same server; their later writes do not come in waves."""
    apis = [NodeApi() for _ in range(100)]
    for number, api in enumerate(apis):
        api.down = True
        rng = random.Random(number)
        of = manager(api, NodeHealth, Recorder())
        of._rng = rng
        keeper = LeaseKeeper(api, LoopClock(), "n", 40, node_uid=lambda: "u", rng=rng)  # type: ignore[arg-type]
        asyncio.create_task(of.run())
        asyncio.create_task(keeper.run())
    await asyncio.sleep(600)
    for api in apis:
        api.down = False
    await asyncio.sleep(600)
    for what, width, begin in (("patch leases", 1, 620), ("patch nodes status", 30, 620)):
        times = [when for api in apis for when, did in api.log if did == what and when >= begin]
        busiest = max(Counter(int(when / width) for when in times).values())
        assert busiest <= 30, f"{what}: {busiest} of 100 within {width} s"


async def test_a_change_of_health_is_written_at_once() -> None:
    api, health = NodeApi(), [NodeHealth()]
    recorder = Recorder()
    of = manager(api, lambda: health[0], recorder)
    task = asyncio.create_task(of.run())
    await asyncio.sleep(3)
    health[0] = NodeHealth(runtime_error="container runtime is down")
    of.poke()
    await asyncio.sleep(0.001)
    assert ready(api) == "False"
    assert recorder.reasons[-1] == "NodeNotReady"
    task.cancel()


async def test_a_node_that_another_program_has_just_created_is_taken_over() -> None:
    class Late(NodeApi):
        async def get(self, resource: Any, name: str, namespace: Any = None) -> Any:
            try:
                return await super().get(resource, name, namespace)
            finally:
                self.node = self.node or {"metadata": {"name": "n", "uid": "other"}, "status": {}}

    api = Late()
    of = manager(api, NodeHealth, Recorder())
    task = asyncio.create_task(of.run())
    await asyncio.sleep(1)
    assert of.uid == "other"
    assert ready(api) == "True"
    task.cancel()


async def test_a_known_node_is_taken_over_and_a_reboot_is_reported() -> None:
    api, recorder = NodeApi(), Recorder()
    api.node = {
        "metadata": {"name": "n", "uid": "old"},
        "status": {"nodeInfo": {"bootID": "before"}},
    }
    of = manager(api, NodeHealth, recorder)
    task = asyncio.create_task(of.run())
    await asyncio.sleep(1)
    assert [what for _, what in api.log] == ["get nodes", "patch nodes", "patch nodes status"]
    assert recorder.reasons[0] == "Rebooted"
    assert of.uid == "old"
    task.cancel()


SILENT = NodeHealth(runtime_error="not asked yet", unanswered=("not asked yet",))


async def _restarted(
    health: list[NodeHealth], **options: Any
) -> tuple[NodeApi, Recorder, NodeManager, asyncio.Task[None]]:
    """An agent that starts on a node that is Ready in the API."""
    api, recorder = NodeApi(), Recorder()
    before = asyncio.create_task(manager(api, NodeHealth, Recorder()).run())
    await asyncio.sleep(1)
    before.cancel()
    assert ready(api) == "True"
    api.log.clear()
    of = manager(api, lambda: health[0], recorder, **options)
    return api, recorder, of, asyncio.create_task(of.run())


def _written(api: NodeApi) -> list[float]:
    return [when for when, what in api.log if what == "patch nodes status"]


async def test_a_restart_alone_does_not_show_a_ready_node_as_not_ready() -> None:
    health = [SILENT]
    api, recorder, of, task = await _restarted(health)
    await asyncio.sleep(0.5)
    of.poke()  # something else has changed
    await asyncio.sleep(0.5)
    assert (_written(api), ready(api)) == ([], "True")
    health[0] = NodeHealth()
    of.poke()
    await asyncio.sleep(0.001)
    assert len(_written(api)) == 1, "without waiting for anything else"
    assert (ready(api), recorder.reasons) == ("True", [])
    task.cancel()


async def test_a_silent_component_is_reported_after_one_period() -> None:
    api, recorder, _, task = await _restarted([SILENT], status_update_s=7.0)
    await asyncio.sleep(6.9)
    assert ready(api) == "True"
    await asyncio.sleep(0.2)
    assert (ready(api), recorder.reasons) == ("False", ["NodeNotReady"])
    task.cancel()


async def test_a_problem_known_after_a_restart_is_reported_at_once() -> None:
    api, recorder, _, task = await _restarted([NodeHealth(runtime_error="it is down")])
    await asyncio.sleep(0.001)
    assert (ready(api), recorder.reasons) == ("False", ["NodeNotReady"])
    task.cancel()


async def test_a_problem_found_meanwhile_is_reported_at_once() -> None:
    health = [SILENT]
    api, recorder, of, task = await _restarted(health)
    await asyncio.sleep(1)
    health[0] = NodeHealth(runtime_error="it is down")
    of.poke()
    await asyncio.sleep(0.001)
    assert (ready(api), recorder.reasons) == ("False", ["NodeNotReady"])
    task.cancel()


async def test_registration_outlives_an_outage() -> None:
    api = NodeApi()
    api.down = True
    of = manager(api, NodeHealth, Recorder())
    task = asyncio.create_task(of.run())
    await asyncio.sleep(60)
    assert not of.registered.is_set()
    api.down = False
    await asyncio.sleep(10)
    assert of.registered.is_set()
    task.cancel()


async def test_a_deleted_node_is_not_registered_again_before_the_next_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api = NodeApi()
    of = manager(api, NodeHealth, Recorder())
    task = asyncio.create_task(of.run())
    await of.registered.wait()
    api.node = None
    await asyncio.sleep(600)
    assert [what for _, what in api.log].count("create nodes") == 1
    assert 'nodes "n" not found' in caplog.records[-1].__dict__["why"]
    task.cancel()
    again = asyncio.create_task(manager(api, NodeHealth, Recorder()).run())
    await asyncio.sleep(1)
    assert api.node is not None
    again.cancel()


async def test_a_write_whose_response_was_lost_is_repeated_in_full() -> None:
    """The API may have applied it while a lagging watch still shows the previous status."""
    api, listed, written = NodeApi(), ["a"], []
    of = manager(api, NodeHealth, Recorder())
    of.volumes_in_use = lambda: list(listed)
    of.volumes_in_use_written = lambda: written.append(list(listed))
    task = asyncio.create_task(of.run())
    await of.registered.wait()
    assert api.node is not None
    before = api.node
    of.newest = lambda: cast(Any, before)
    patch = api.patch

    async def done_but_not_answered(*args: Any, **options: Any) -> Any:
        await patch(*args, **options)
        raise Unavailable("the answer is lost")

    await asyncio.sleep(1)
    written.clear()
    api.patch = done_but_not_answered  # type: ignore[method-assign]
    listed.clear()
    of.poke()
    await asyncio.sleep(0.1)
    assert api.node["status"]["volumesInUse"] == []
    assert not written, "no response"
    api.patch = patch  # type: ignore[method-assign]
    listed.append("a")
    of.poke()
    await asyncio.sleep(15)
    assert api.node["status"]["volumesInUse"] == ["a"], "although that is what is shown"
    assert written[:1] == [["a"]]
    task.cancel()


async def test_the_lease_is_renewed_every_quarter_of_its_life() -> None:
    api, back = NodeApi(), list[float]()
    keeper = LeaseKeeper(
        api,  # type: ignore[arg-type]
        LoopClock(),
        "n",
        40,
        node_uid=lambda: "node-uid",
        answered_again=lambda: back.append(asyncio.get_running_loop().time()),
        rng=random.Random(1),
    )
    task = asyncio.create_task(keeper.run())
    await asyncio.sleep(100)
    times = [when for when, what in api.log if what == "patch leases"]
    # the first is answered with 404, and the lease is created
    assert times[1] - times[0] <= 10, "a random part of a period"
    assert all(10 <= later - sooner <= 10.4 for sooner, later in itertools.pairwise(times[1:]))
    assert api.lease is not None
    assert api.lease["metadata"]["ownerReferences"][0]["uid"] == "node-uid"
    assert back == [], "it was never away"
    api.down = True
    await asyncio.sleep(15)
    api.down = False
    count, ended = len(api.log), asyncio.get_running_loop().time()
    await asyncio.sleep(7)
    assert len(api.log) > count, "after an outage it does not wait a whole period"
    assert len(back) == 1
    assert back[0] > ended
    await asyncio.sleep(30)
    assert len(back) == 1
    task.cancel()


async def test_an_outage_cancels_the_list_of_images_which_is_requested_again() -> None:
    api = NodeApi()
    api.down = True
    of = manager(api, NodeHealth, Recorder())

    async def slow() -> list[Any]:
        await asyncio.sleep(0.5)
        return [ImageSummary(("local.test/app:1",), 1)]

    of.list_images = slow
    task = asyncio.create_task(of.run())
    await asyncio.sleep(0.05)
    assert asyncio.all_tasks() == {asyncio.current_task(), task}, "while it waits to retry"
    api.down = False
    await asyncio.sleep(5)
    assert api.node is not None
    assert [each["names"] for each in api.node["status"]["images"]] == [["local.test/app:1"]]
    await cancel_tasks((task,))


async def test_a_lease_follows_its_node() -> None:
    class Leases(NodeApi):
        async def patch(self, resource: Any, name: str, patch: Any, *_: Any, **options: Any) -> Any:
            found = await super().patch(resource, name, patch)
            self.lease = {**found, "metadata": {**found["metadata"], **patch.get("metadata", {})}}
            return self.lease

    api, uid = Leases(), [""]
    keeper = LeaseKeeper(
        api,  # type: ignore[arg-type]
        LoopClock(),
        "n",
        40,
        node_uid=lambda: uid[0],
        rng=random.Random(1),
    )
    task = asyncio.create_task(keeper.run())
    await asyncio.sleep(60)
    assert api.lease is None, "the API has no Node that would own it"
    assert keeper.problem() == ""
    for each in ("a", "b"):
        uid[0] = each
        keeper.node_replaced()
        await asyncio.sleep(1)
        assert api.lease is not None
        assert [owner["uid"] for owner in api.lease["metadata"]["ownerReferences"]] == [each]
    patched = len(api.log)
    await asyncio.sleep(20)
    assert len(api.log) <= patched + 3, "one request each time"
    task.cancel()


async def test_a_hanging_list_of_images_does_not_delay_the_status() -> None:
    api, health = NodeApi(), {"now": NodeHealth()}
    of = manager(api, lambda: health["now"], Recorder())

    async def never() -> list[Any]:
        await asyncio.Event().wait()
        return []

    of.list_images = never
    task = asyncio.create_task(of.run())
    await asyncio.sleep(100)
    health["now"] = NodeHealth(runtime_error="down")
    of.poke()
    await asyncio.sleep(5)
    assert ready(api) == "False"
    task.cancel()


def startup_of(metrics: Metrics) -> dict[str, float]:
    """The metrics kubelet_node_startup_NAME_duration_seconds that are not 0."""
    found = {}
    for line in metrics.render().decode().splitlines():
        name, _, value = line.removeprefix("kubelet_node_startup_").partition(" ")
        if line.startswith("kubelet_node_startup_") and float(value):
            found[name.removesuffix("_duration_seconds")] = float(value)
    return found


async def test_how_long_a_node_took_to_register_and_to_be_ready() -> None:
    api, health, metrics = NodeApi(), [NodeHealth(runtime_error="not yet")], Metrics()
    api.down = True
    of = manager(api, lambda: health[0], Recorder(), metrics)
    await asyncio.sleep(4)
    task = asyncio.create_task(of.run())
    await asyncio.sleep(1)
    api.down = False
    await of.registered.wait()
    registered_after = asyncio.get_running_loop().time() - 4
    assert startup_of(metrics) == {
        "pre_registration": pytest.approx(4),
        "registration": pytest.approx(registered_after),
    }
    assert registered_after >= 1
    await asyncio.sleep(6)
    assert "post_registration" not in startup_of(metrics), "it is not Ready"
    health[0] = NodeHealth()
    of.poke()
    await asyncio.sleep(0.1)
    assert startup_of(metrics)["post_registration"] == pytest.approx(6)
    task.cancel()


async def test_a_known_node_has_no_startup_metrics() -> None:
    api, metrics = NodeApi(), Metrics()
    api.node = {"metadata": {"name": "n", "uid": "node-uid"}, "status": {}}
    task = asyncio.create_task(manager(api, NodeHealth, Recorder(), metrics).run())
    await asyncio.sleep(30)
    assert ready(api) == "True"
    assert startup_of(metrics) == {}
    task.cancel()


async def test_allocatable_has_the_extended_resources_of_capacity_and_no_others() -> None:
    api = NodeApi()
    old = {"cpu": "2", "ephemeral-storage": "9Gi", "vendor.example/gpu": "2"}
    api.node = {
        "metadata": {"name": "n", "uid": "old"},
        "status": {"capacity": old, "volumesAttached": [], "allocatable": {"gone/x": "1"}},
    }
    of = manager(api, NodeHealth, Recorder(), local_storage=False)
    task = asyncio.create_task(of.run())
    await asyncio.sleep(1)
    for name in ("capacity", "allocatable"):
        found = api.node["status"][name]
        assert found["vendor.example/gpu"] == "2", name
        assert found["cpu"] == "4", name
        assert not {"ephemeral-storage", "gone/x"} & set(found), name
    await asyncio.sleep(145)
    assert [what for _, what in api.log].count("patch nodes status") == 1, "nothing has changed"
    task.cancel()


async def test_system_and_architecture_are_put_right_within_an_update_period() -> None:
    api = NodeApi()
    of = manager(api, NodeHealth, Recorder())
    task = asyncio.create_task(of.run())
    await asyncio.sleep(5)
    assert api.node is not None
    true = api.node["metadata"]["labels"]
    lies = {"kubernetes.io/os": "dummy", "kubernetes.io/arch": "dummy", "mine": "stays"}
    api.node = {**api.node, "metadata": {**api.node["metadata"], "labels": {**true, **lies}}}
    of.newest = lambda: cast(Any, api.node)
    await asyncio.sleep(10.5)
    assert api.node["metadata"]["labels"] == {**true, "mine": "stays"}
    await asyncio.sleep(100)
    assert [what for _, what in api.log] == [*("get nodes", "create nodes"), "patch nodes"], "once"
    task.cancel()


class Watched(NodeApi):
    """A node API with resource versions, for a watch that always shows the newest node."""

    def __init__(self) -> None:
        super().__init__()
        self.versions = itertools.count(1)

    def _note(self, what: str) -> None:
        super()._note(what)
        if self.node is not None:
            metadata = {**self.node["metadata"], "resourceVersion": str(next(self.versions))}
            self.node = {**self.node, "metadata": metadata}


def _as_in_the_agent(api: NodeApi, **options: Any) -> tuple[NodeManager, OwnNode]:
    """A manager and the node's own object, connected as the composition root does."""
    of = manager(api, NodeHealth, Recorder(), **options)
    supplied = NodeOptions(name="n", **options)
    initial = initial_node(FACTS, supplied, RuntimeInfo(), node_ips=["10.0.0.1"], now=0.0)
    own = OwnNode(
        "n", None, cast(Any, Recorder()), LoopClock(), initial=initial, written=lambda: of.node
    )
    of.newest = own.as_reported
    return of, own


async def test_other_reservations_are_in_the_api_with_the_first_status_after_a_restart() -> None:
    api = Watched()
    reserved = {"max_pods": 20, "kube_reserved": {"cpu": "1"}, "declared_features": ("A",)}
    of, _ = _as_in_the_agent(api, **reserved)
    before = asyncio.create_task(of.run())
    await asyncio.sleep(1)
    assert api.node is not None
    assert api.node["status"]["allocatable"]["pods"] == "20"
    before.cancel()
    # others have written meanwhile
    deadlock = {"type": "KernelDeadlock", "status": "False"}
    status = api.node["status"]
    status = {**status, "conditions": [*status["conditions"], deadlock], "volumesAttached": [1]}
    metadata = {**api.node["metadata"], "annotations": {"mine": "stays"}}
    metadata["labels"] = {**metadata["labels"], "mine": "stays"}
    spec = {"taints": [{"key": "mine"}], "unschedulable": True}
    api.node = {**api.node, "status": status, "metadata": metadata, "spec": spec}
    api.log.clear()

    of, own = _as_in_the_agent(api)
    after = asyncio.create_task(of.run())
    await asyncio.sleep(1)
    status = api.node["status"]
    assert status["capacity"]["pods"] == status["allocatable"]["pods"] == "110"
    assert status["allocatable"]["cpu"] == "4"
    assert "declaredFeatures" not in status
    assert own.current()["status"]["allocatable"]["pods"] == "110"
    assert deadlock in status["conditions"]
    assert status["volumesAttached"] == [1]
    assert api.node["spec"] == spec
    for of_node in (api.node["metadata"]["labels"], api.node["metadata"]["annotations"]):
        assert of_node["mine"] == "stays"
    await asyncio.sleep(140)
    assert [what for _, what in api.log].count("patch nodes status") == 1, "and only once"
    after.cancel()


def test_credentials_of_another_node_are_named_with_the_remedy() -> None:
    text = (
        'nodes "b" is forbidden: User "system:node:a" cannot get resource "nodes" in API group "" '
        "at the cluster scope: node 'a' cannot read 'b', only its own Node object"
    )
    message = refusal(Forbidden(text), "b")
    assert message.startswith("the credentials are those of node a, and this node is named b")
    assert "--hostname-override=a" in message
    for other in (Forbidden(text.replace("node:a", "node:b")), Unavailable(text), Forbidden("no")):
        assert refusal(other, "b") == str(other)
