"""Claims prepared and unprepared, by drivers that work, fail, hang, lie or are absent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.pods.environment import EnvironmentInputs
from kubeletpy.pods.pod import Pod
from kubeletpy.pods.runtime_status import ContainerConfigError
from kubeletpy.resources.dra.checkpoint import parse_checkpoint
from kubeletpy.resources.dra.claim_manager import CHECK_S
from kubeletpy.resources.dra.model import ClaimProblem
from kubeletpy.runtime_manager.protocol import ContainerAdditions
from tests.dra_driver.services import Given
from tests.kit.claims import DriverInProcess, Node, user

pytestmark = pytest.mark.virtual_time

A, B = "a.example.com", "b.example.com"


async def supplied(node: Node, pod: Pod) -> tuple[str, ...]:
    additions = ContainerAdditions(EnvironmentInputs())
    found = await node.manager.provide(pod, pod.containers[0], additions)
    return tuple(found.cdi_devices)


def on_disk(node: Node) -> dict[str, set[str]]:
    return {claim.name: set(claim.pods) for claim in parse_checkpoint(node.path.read_text())}


async def a_node(root: Path, *names: str) -> Node:
    node = Node(root, *(DriverInProcess(name) for name in names or (A,)))
    await node.register()
    return node


async def test_devices_of_a_pod_are_prepared_and_unprepared(tmp_path: Path) -> None:
    node = await a_node(tmp_path, A, B)
    node.api.allocate("one", ["uid-p"], A)
    node.api.allocate("two", ["uid-p"], A, B)
    pod = user("p", "one", "two")
    with pytest.raises(ContainerConfigError, match="ResourceClaim default/one is not prepared"):
        await supplied(node, pod)
    assert await node.problem(pod) == ""
    assert node.calls() == [("prepare", ("one", "two")), ("prepare", ("two",))]
    assert await supplied(node, pod) == (
        f"{A}/claim=one-uid-d0",
        f"{A}/claim=two-uid-d0",
        f"{B}/claim=two-uid-d0",
    )
    assert on_disk(node) == {"one": {"uid-p"}, "two": {"uid-p"}}
    assert node.manager.holds("uid-p")
    assert await node.problem(pod) == ""
    assert len(node.calls()) == 2
    await node.manager.unprepare("uid-p")
    assert on_disk(node) == {}
    assert not any(driver.services.prepared for driver in node.by_name.values())
    assert not node.manager.holds("uid-p")


async def test_a_container_gets_the_devices_of_its_request(tmp_path: Path) -> None:
    devices = [Given("big", ["r0"]), Given("small", ["r1"]), Given("all")]
    node = Node(tmp_path, DriverInProcess(A, allocation=lambda claim: devices))
    await node.register()
    node.api.allocate("c", ["uid-p"], A)
    pod = user("p", "c")
    assert await node.problem(pod) == ""
    pod.containers[0]["resources"] = {"claims": [{"name": "c", "request": "r1"}]}
    assert await supplied(node, pod) == (f"{A}/claim=c-uid-small", f"{A}/claim=c-uid-all")
    pod.containers[0]["resources"] = {}
    assert await supplied(node, pod) == ()


async def test_a_shared_claim_is_prepared_once_and_unprepared_by_the_last(tmp_path: Path) -> None:
    node = await a_node(tmp_path)
    node.api.allocate("c", ["uid-p", "uid-q"], A)
    p, q = user("p", "c"), user("q", "c")
    assert list(await asyncio.gather(node.problem(p), node.problem(q))) == ["", ""]
    assert node.calls() == [("prepare", ("c",))]
    await node.manager.unprepare("uid-p")
    assert on_disk(node) == {"c": {"uid-q"}}
    with pytest.raises(ContainerConfigError):
        await supplied(node, p)
    assert await supplied(node, q)
    await node.manager.unprepare("uid-q")
    assert node.calls() == [("prepare", ("c",)), ("unprepare", ("c",))]


async def test_a_partly_failed_prepare_yields_each_device_once(tmp_path: Path) -> None:
    """behaviour.md, u: ka65. The driver that succeeded is called again, and answers the same."""
    node = await a_node(tmp_path, A, B)
    node.api.allocate("c", ["uid-p"], A, B)
    pod, refusals = user("p", "c"), node.by_name[B].services.refuses
    refusals["c-uid"] = "no such device"
    assert "no such device" in await node.problem(pod)
    refusals.clear()
    assert await node.problem(pod) == ""
    assert await supplied(node, pod) == (f"{A}/claim=c-uid-d0", f"{B}/claim=c-uid-d0")
    (claim,) = parse_checkpoint(node.path.read_text())
    assert {driver: len(devices) for driver, devices in claim.drivers.items()} == {A: 1, B: 1}


async def test_a_pod_that_was_never_prepared_unprepares_nothing(tmp_path: Path) -> None:
    """behaviour.md, u: ka66. Its claims may be in use by others."""
    node = await a_node(tmp_path)
    node.api.allocate("c", ["uid-p"], A)
    assert await node.problem(user("p", "c")) == ""
    assert "is not reserved for this pod" in await node.problem(user("q", "c"))
    await node.manager.unprepare("uid-q")
    assert node.calls() == [("prepare", ("c",))]
    assert on_disk(node) == {"c": {"uid-p"}}


async def test_a_prepare_waits_for_an_unprepare_of_the_same_claim(tmp_path: Path) -> None:
    """behaviour.md, u: ka66. The devices that the second pod gets are prepared for it."""
    node = await a_node(tmp_path)
    node.api.allocate("c", ["uid-p", "uid-q"], A)
    p, q = user("p", "c"), user("q", "c")
    assert await node.problem(p) == ""
    slow = asyncio.Event()

    async def wait(method: str) -> None:
        if method == "NodeUnprepareResources":
            await slow.wait()

    node.by_name[A].wait = wait
    ending = asyncio.create_task(node.manager.unprepare("uid-p"))
    starting = asyncio.create_task(node.problem(q))
    await asyncio.sleep(5)
    assert not starting.done()
    assert node.calls() == [("prepare", ("c",))]
    slow.set()
    await ending
    assert await starting == ""
    assert [call for call, _ in node.calls()] == ["prepare", "unprepare", "prepare"]
    assert on_disk(node) == {"c": {"uid-q"}}
    assert await supplied(node, q)


def skipped(node: Node) -> dict[str, float | None]:
    """How many calls were skipped, by metric and driver."""
    found = {
        (call, driver): node.metrics.registry.get_sample_value(
            f"dra_node_{call}_skips_total", {"driver_name": driver}
        )
        for call in ("prepare", "unprepare")
        for driver in (A, B)
    }
    return {f"{call} {driver}": value for (call, driver), value in found.items() if value}


async def test_a_driver_that_the_allocation_exempts_is_not_called(tmp_path: Path) -> None:
    """It need not be registered. Source: docs/reference/behaviour-resources.md, ru."""
    node = await a_node(tmp_path, A)
    node.api.allocate("c", ["uid-p"], A, B, skips={B: ["*"]})
    pod = user("p", "c")
    assert await node.problem(pod) == ""
    assert await supplied(node, pod) == (f"{A}/claim=c-uid-d0",)
    assert await node.problem(pod) == "", "it is prepared"
    await node.manager.unprepare("uid-p")
    assert node.calls() == [("prepare", ("c",)), ("unprepare", ("c",))]
    assert on_disk(node) == {}
    assert skipped(node) == {f"prepare {B}": 1, f"unprepare {B}": 1}


async def test_a_claim_without_calls_needs_no_driver(tmp_path: Path) -> None:
    node = Node(tmp_path)
    both = ["NodePrepareResources", "NodeUnprepareResources"]
    node.api.allocate("c", ["uid-p"], A, skips={A: both})
    pod = user("p", "c")
    assert await node.problem(pod) == ""
    assert await supplied(node, pod) == ()
    await node.manager.unprepare("uid-p")
    assert on_disk(node) == {}
    assert skipped(node) == {f"prepare {A}": 1, f"unprepare {A}": 1}


async def test_only_unprepare_is_skipped(tmp_path: Path) -> None:
    node = await a_node(tmp_path, A)
    node.api.allocate("c", ["uid-p"], A, skips={A: ["NodeUnprepareResources"]})
    assert await node.problem(user("p", "c")) == ""
    await node.manager.unprepare("uid-p")
    assert node.calls() == [("prepare", ("c",))]
    assert on_disk(node) == {}


async def test_without_the_gate_such_a_claim_is_refused_and_one_in_use_released(
    tmp_path: Path,
) -> None:
    """The decision is in the checkpoint: an agent without the gate can end the pod."""
    node = Node(tmp_path)
    node.api.allocate("c", ["uid-p", "uid-q"], A, skips={A: ["*"]})
    assert await node.problem(user("p", "c")) == ""
    node.may_skip = False
    node.start()
    await node.manager.unprepare("uid-p")
    assert on_disk(node) == {}
    problem = await node.problem(user("q", "c"))
    assert "DRAOptionalNodeOperations feature gate is disabled on kubelet" in problem
    assert not node.manager.holds("uid-q")


async def test_without_its_driver_nothing_is_recorded_and_the_driver_wakes_the_pod(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path, DriverInProcess(A))
    node.api.allocate("c", ["uid-p"], A)
    pod = user("p", "c")
    assert A in await node.problem(pod)
    assert not node.manager.holds("uid-p")
    assert node.woken == []
    await node.register()
    assert node.woken == ["uid-p"]
    assert await node.problem(pod) == ""


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("refuses", "no such device"),
        ("silent", "did not answer for it"),
        ("hangs", "no answer"),
        ("down", "down"),
        ("lies", "no name of a CDI device"),
    ],
)
async def test_a_failed_prepare_is_unprepared(tmp_path: Path, fault: str, why: str) -> None:
    node = await a_node(tmp_path)
    node.api.allocate("c", ["uid-p"], A)
    driver, pod = node.by_name[A], user("p", "c")
    services = driver.services
    prepare: Any = services.NodePrepareResources

    async def hang(method: str) -> None:
        await asyncio.sleep(1e6)

    class Lying:
        def __getattr__(self, name: str) -> Any:
            return getattr(services, name)

        def NodePrepareResources(self, request: Any) -> Any:
            answer = prepare(request)
            if fault == "silent":
                answer.claims.clear()
            else:
                answer.claims["c-uid"].devices[0].cdi_device_ids[0] = "../../etc"
            return answer

    match fault:
        case "refuses":
            services.refuses["c-uid"] = "no such device"
        case "hangs":
            driver.wait = hang
        case "down":
            driver.up = False
        case _:
            driver.services = Lying()  # type: ignore[assignment]
    began = asyncio.get_running_loop().time()
    assert why in await node.problem(pod)
    assert asyncio.get_running_loop().time() - began == (45 if fault == "hangs" else 0)
    with pytest.raises(ContainerConfigError):
        await supplied(node, pod)
    assert node.manager.holds("uid-p")
    driver.services, driver.wait, driver.up = services, None, True
    services.refuses.clear()
    assert await node.problem(pod) == ""
    assert await supplied(node, pod)
    await node.manager.unprepare("uid-p")
    assert on_disk(node) == {}
    assert services.prepared == {}


async def test_after_a_restart_containers_have_their_devices_and_a_sandbox_prepares_again(
    tmp_path: Path,
) -> None:
    node = await a_node(tmp_path)
    node.api.allocate("c", ["uid-p"], A)
    pod = user("p", "c")
    await node.manager.prepare(pod)
    node.start()
    assert await supplied(node, pod) == (f"{A}/claim=c-uid-d0",)
    await node.register()
    assert await node.problem(pod) == ""
    assert node.calls() == [("prepare", ("c",)), ("prepare", ("c",))]
    assert await supplied(node, pod) == (f"{A}/claim=c-uid-d0",)


async def test_an_older_claim_of_the_name_is_unprepared_first(tmp_path: Path) -> None:
    node = await a_node(tmp_path)
    node.api.allocate("c", ["uid-p"], A)
    await node.manager.prepare(user("p", "c"))
    node.api.allocate("c", ["uid-q"], A, uid="newer")
    problem = await node.problem(user("q", "c"))
    assert "old ResourceClaim with same name c and different UID c-uid still exists" in problem
    await node.manager.unprepare("uid-p")
    assert await node.problem(user("q", "c")) == ""


async def test_a_claim_is_kept_until_all_its_drivers_unprepared_it(tmp_path: Path) -> None:
    node = await a_node(tmp_path, A, B)
    node.api.allocate("c", ["uid-p"], A, B)
    pod = user("p", "c")
    await node.manager.prepare(pod)
    node.by_name[B].services.refuses["c-uid"] = "busy"
    with pytest.raises(ClaimProblem, match="busy"):
        await node.manager.unprepare("uid-p")
    assert node.manager.holds("uid-p")
    with pytest.raises(ContainerConfigError):
        await supplied(node, pod)
    node.by_name[B].services.refuses.clear()
    await node.manager.unprepare("uid-p")
    assert on_disk(node) == {}


async def test_claims_of_removed_pods_are_unprepared(tmp_path: Path) -> None:
    node = await a_node(tmp_path)
    node.api.allocate("c", ["uid-p"], A)
    node.api.allocate("d", ["uid-q"], A)
    await node.manager.prepare(user("p", "c"))
    await node.manager.prepare(user("q", "d"))
    node.start()
    running = asyncio.create_task(node.manager.run())
    await asyncio.sleep(3 * CHECK_S)
    assert set(on_disk(node)) == {"c", "d"}  # the pods are not known yet
    node.manager.pods_known({"uid-q"})
    await asyncio.sleep(1)
    assert set(on_disk(node)) == {"c", "d"}  # the driver is absent
    await node.register()
    await asyncio.sleep(1)
    assert set(on_disk(node)) == {"d"}
    running.cancel()


async def test_which_claims_a_container_has(tmp_path: Path) -> None:
    node = await a_node(tmp_path, A, B)
    node.api.allocate("c", ["uid-p"], A, B)
    node.api.allocate("unused", ["uid-p"], A)
    pod = user("p", "c", "unused")
    container = pod.containers[0]
    container["resources"] = {"claims": [{"name": "c", "request": "r0"}, {"name": "c"}]}
    assert node.manager.container_claims(pod, container) == ()
    await node.manager.prepare(pod)
    (found,) = node.manager.container_claims(pod, container)
    assert (found.namespace, found.name) == ("default", "c")
    assert {
        driver: [each.name for each in devices] for driver, devices in found.devices.items()
    } == {A: ["d0"], B: ["d0"]}
    container["resources"] = {}
    assert node.manager.container_claims(pod, container) == ()


async def test_a_pod_newer_than_the_last_pod_list_keeps_its_claims(tmp_path: Path) -> None:
    node = await a_node(tmp_path)
    running = asyncio.create_task(node.manager.run())
    node.manager.pods_known({"uid-old"})
    node.api.allocate("c", ["uid-p"], A)
    await node.manager.prepare(user("p", "c"))
    await node.drivers.register(node.by_name[A].info("/e2"))  # again, as after an update
    await asyncio.sleep(3 * CHECK_S)
    assert on_disk(node) == {"c": {"uid-p"}}
    node.manager.pods_known(set())
    await asyncio.sleep(1)
    assert on_disk(node) == {}
    running.cancel()


async def test_progress_and_devices_of_a_pod(tmp_path: Path) -> None:
    node = await a_node(tmp_path, A, B)
    node.api.allocate("c", ["uid-p"], A, B)
    pod = user("p", "c")

    async def hang(method: str) -> None:
        await asyncio.sleep(10)

    node.by_name[B].wait = hang
    preparing = asyncio.create_task(node.problem(pod))
    await asyncio.sleep(5)
    (wait,) = node.manager.waits("uid-p")
    assert (wait.claims, wait.driver, wait.call) == ("default/c", B, "NodePrepareResources")
    assert (wait.since, wait.until) == (0, 45)
    assert node.manager.waits("uid-q") == []
    assert node.manager.held_by(pod) == []
    await preparing
    assert node.manager.waits("uid-p") == []
    (held,) = node.manager.held_by(pod)
    assert (held.resource, held.what) == ("claim c", f"{A}/pool/d0, {B}/pool/d0")
    ending = asyncio.create_task(node.manager.unprepare("uid-p"))
    await asyncio.sleep(1)
    assert [each.call for each in node.manager.waits("uid-p")] == ["NodeUnprepareResources"]
    await ending


async def test_a_claim_without_devices_of_drivers(tmp_path: Path) -> None:
    node = await a_node(tmp_path)
    node.api.allocate("c", ["uid-p"])
    pod = user("p", "c")
    assert await node.problem(pod) == ""
    assert await supplied(node, pod) == ()
    await node.manager.unprepare("uid-p")
    assert on_disk(node) == {}


async def test_a_claim_that_is_absent(tmp_path: Path) -> None:
    node = await a_node(tmp_path)
    assert "cannot be read" in await node.problem(user("p", "c"))


async def test_metrics(tmp_path: Path) -> None:
    node = await a_node(tmp_path)
    node.api.allocate("c", ["uid-p"], A)
    await node.manager.prepare(user("p", "c"))
    value = node.metrics.registry.get_sample_value
    assert value("dra_resource_claims_in_use", {"driver_name": A}) == 1
    assert value("dra_resource_claims_in_use", {"driver_name": "<any>"}) == 1
    labels = {"operation_name": "PrepareResources", "is_error": "false"}
    assert value("dra_operations_duration_seconds_count", labels) == 1
    call = {
        "driver_name": A,
        "method_name": "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources",
        "grpc_status_code": "OK",
    }
    assert value("dra_grpc_operations_duration_seconds_count", call) == 1
