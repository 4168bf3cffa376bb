"""The state file: the kubelet's checksums; reading returns what was written."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kubeletpy.base.structs import replace
from kubeletpy.pods.environment import EnvironmentInputs
from kubeletpy.pods.pod import Pod
from kubeletpy.resources.dra.checkpoint import checksum, parse_checkpoint, render
from kubeletpy.resources.dra.claim_manager import ClaimState
from kubeletpy.resources.dra.model import ClaimDevice, ClaimInfo, ClaimProblem
from kubeletpy.resources.placement.state import StateError
from kubeletpy.runtime_manager.protocol import ContainerAdditions
from tests.kit.claims import DriverInProcess, Node, user
from tests.kit.virtual_time import on_virtual_time

HEAD = '{"kind":"DRACheckpoint","apiVersion":"checkpoint.dra.kubelet.k8s.io/v1"'
DEVICE = ClaimDevice("pool", "d0", ("r0", "r1"), ("a.example.com/claim=x",), "share")
CLAIMS = [
    ClaimInfo("u1", "a", "n", frozenset({"p", "q"}), {"a.example.com": (DEVICE,)}, restored=True),
    ClaimInfo("u2", "b", "n", frozenset({"p"}), {"b.example.com": ()}, restored=True),
]


@pytest.mark.parametrize(("claims", "expected"), [("null", 4010664294), ("[]", 2361995144)])
def test_sums_of_the_kubelet(claims: str, expected: int) -> None:
    """Source: docs/reference/behaviour-resources.md, rx."""
    data = f'{HEAD},"ClaimInfoStateList":{claims}}}'
    assert checksum(data) == expected
    assert parse_checkpoint(json.dumps({"Checksum": expected, "Data": data}, indent=1)) == []


def test_no_claims_are_written_as_the_kubelet_does() -> None:
    assert json.loads(render([])) == {
        "Data": f'{HEAD},"ClaimInfoStateList":null}}',
        "Checksum": 4010664294,
    }


@pytest.mark.parametrize(
    ("skips", "expected"),
    [
        pytest.param("", 2466046042, id="1.35, 1.36"),
        pytest.param(',"skipNodeOperations":["NodePrepareResources"]', 772576046, id="1.37"),
    ],
)
def test_files_of_each_version_are_read_and_written_as_they_were(skips: str, expected: int) -> None:
    """The checksums are those of kubelets; docs/reference/state-files.csv."""
    data = (
        f'{HEAD},"ClaimInfoStateList":[{{"ClaimUID":"claim-uid","ClaimName":"claim",'
        '"Namespace":"ns","PodUIDs":{"uid-a":{}},"DriverState":{"gpu.example.com":{"Devices":['
        '{"PoolName":"pool","DeviceName":"d0","ShareID":null,"RequestNames":["r"],'
        f'"CDIDeviceIDs":["gpu.example.com/c=d0"]}}]{skips}}}}}}}]}}'
    )
    whole = {"Data": data, "Checksum": expected}
    claims = parse_checkpoint(json.dumps({**whole, "newer": 1}))
    assert json.loads(render(claims)) == whole
    newer = data.replace('"ClaimName"', '"Newer":{},"ClaimName"')
    assert parse_checkpoint(json.dumps({"Data": newer, "Checksum": checksum(newer)})) == claims


def test_written_claims_are_read_back() -> None:
    assert parse_checkpoint(render(reversed(CLAIMS))) == CLAIMS


def test_letters_are_written_as_they_are() -> None:
    """The checksum is of the bytes, in which Go does not escape letters of any alphabet."""
    text = render([replace(CLAIMS[0], name="ä")])
    assert '\\"ClaimName\\":\\"ä\\"' in text
    assert [claim.name for claim in parse_checkpoint(text)] == ["ä"]


def test_names_and_order_of_the_fields() -> None:
    data = json.loads(render(CLAIMS[:1]))["Data"]
    assert data == (
        f'{HEAD},"ClaimInfoStateList":[{{"ClaimUID":"u1","ClaimName":"a","Namespace":"n",'
        '"PodUIDs":{"p":{},"q":{}},"DriverState":{"a.example.com":{"Devices":[{"PoolName":"pool",'
        '"DeviceName":"d0","ShareID":"share","RequestNames":["r0","r1"],'
        '"CDIDeviceIDs":["a.example.com/claim=x"]}]}}}]}'
    )


def test_skipped_calls_are_kept_as_the_kubelet_writes_them() -> None:
    """Agents before 1.37 ignore the field and read the rest."""
    claim = replace(CLAIMS[0], restored=True, skips={"a.example.com": ("*",)})
    text = render([claim])
    assert (
        '"CDIDeviceIDs":["a.example.com/claim=x"]}],"skipNodeOperations":["*"]}'
        in json.loads(text)["Data"]
    )
    assert parse_checkpoint(text) == [claim]


def _wrapped(data: str) -> str:
    return json.dumps({"Data": data, "Checksum": checksum(data)})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        render(CLAIMS).replace('"Checksum": ', '"Checksum": 1').replace('sum":', 'sum":1'),
        _wrapped("{}"),
        _wrapped('{"kind":"DRACheckpoint","apiVersion":"v9"}'),
        _wrapped(f'{HEAD},"ClaimInfoStateList":[{{}}]}}'),
        _wrapped(f'{HEAD},"ClaimInfoStateList":[1]}}'),
        _wrapped(f'{HEAD},"ClaimInfoStateList":{{"a":1}}}}'),
        _wrapped(
            f'{HEAD},"ClaimInfoStateList":[{{"ClaimUID":1,"ClaimName":"a","Namespace":"n"}}]}}'
        ),
        "[" * 100_000,
    ],
)
def test_invalid_state_files_are_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(StateError):
        parse_checkpoint(text)
    path = tmp_path / "dra_manager_state"
    path.write_text(text)
    with pytest.raises(StateError, match="Drain the node and remove the file"):
        ClaimState(path, lambda claims: None)


# Random histories of pods, drivers and agents, with invariants after each step and at the end.

DRIVERS = ("a.example.com", "b.example.com", "c.example.com")
PODS, HISTORIES_CLAIMS = 6, 4
UNTIL_DEATH = 25.0
FAULTS_END = 400.0
SEEDS = 20


class Story:
    """Pods that share claims, on drivers that fail until FAULTS_END."""

    def __init__(self, root: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.node = Node(root, *(DriverInProcess(name) for name in DRIVERS))
        users: dict[str, list[str]] = {}
        self.pods: dict[str, Pod] = {}
        for number in range(PODS):
            claims = self.rng.sample(range(HISTORIES_CLAIMS), self.rng.randint(1, 3))
            names = [f"c{claim}" for claim in claims]
            pod = user(f"p{number}", *names)
            self.pods[pod.uid] = pod
            for name in names:
                users.setdefault(name, []).append(pod.uid)
        self.users = users
        for name, uids in users.items():
            drivers = self.rng.sample(DRIVERS, self.rng.randint(1, 2))
            self.node.api.allocate(name, uids, *drivers)
        self.ends = {uid: self.rng.uniform(50, 700) for uid in self.pods}
        self.sandboxes: set[str] = set()
        """Pods whose containers may run: the death of the agent does not end them."""
        self.over: set[str] = set()
        self.deaths = 0
        for driver in self.node.by_name.values():
            driver.wait = self._waits(driver)

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def _waits(self, driver: DriverInProcess) -> Any:
        async def wait(method: str) -> None:
            faulty = self.now < FAULTS_END
            await asyncio.sleep(self.rng.choice((0.01, 1, 60 if faulty else 2)))
            driver.up = not (faulty and self.rng.random() < 0.3)

        return wait

    def left(self) -> list[str]:
        """The pods that have not finished."""
        return sorted(set(self.pods) - self.over)

    def watch_unprepare(self) -> None:
        """No driver is called to unprepare devices that a container may use."""
        for driver in self.node.by_name.values():
            calls = driver.services
            for call, claims in calls.history[getattr(self, f"_seen_{calls.name}", 0) :]:
                for claim in claims if call == "unprepare" else ():
                    running = self.sandboxes.intersection(self.users[claim])
                    assert not running, f"{claim} given back while {running} run"
            setattr(self, f"_seen_{calls.name}", len(calls.history))

    def check_devices(self, uid: str) -> None:
        """All claims of the pod are prepared with all their drivers."""
        for claim, uids in self.users.items():
            if uid not in uids:
                continue
            results = self.node.api.claims[claim]["status"]["allocation"]["devices"]["results"]
            for result in results:
                prepared = self.node.by_name[result["driver"]].services.prepared
                assert f"{claim}-uid" in prepared, f"{uid} runs without {claim}"

    async def worker(self, uid: str) -> None:
        """Runs a pod from its current state; retries like the step of the worker."""
        pod, manager, wait = self.pods[uid], self.node.manager, 1.0
        while uid not in self.sandboxes and self.now < self.ends[uid]:
            try:
                await manager.prepare(pod)
                self.sandboxes.add(uid)
            except ClaimProblem:
                await asyncio.sleep(wait)
                wait = min(wait * 2, 60.0)
        while uid in self.sandboxes and self.now < self.ends[uid]:
            additions = ContainerAdditions(EnvironmentInputs())
            supplied = await manager.provide(pod, pod.containers[0], additions)
            assert supplied.cdi_devices
            self.check_devices(uid)
            self.watch_unprepare()
            await asyncio.sleep(self.rng.uniform(1, 20))
        self.sandboxes.discard(uid)
        while manager.holds(uid):
            with suppress(ClaimProblem):
                await manager.unprepare(uid)
            self.watch_unprepare()
            await asyncio.sleep(5)
        self.over.add(uid)

    async def life(self) -> None:
        """One run of the agent; drivers register at random times."""
        async with asyncio.TaskGroup() as tasks:
            sweeper = tasks.create_task(self.node.manager.run())
            workers = [tasks.create_task(self.worker(uid)) for uid in self.left()]
            for driver in self.node.by_name.values():
                await asyncio.sleep(self.rng.uniform(0, 5))
                await self.node.drivers.register(driver.info())
            # a pod that was force-deleted has no worker any more
            self.node.manager.pods_known(self.left())
            await asyncio.gather(*workers)
            sweeper.cancel()

    async def run(self) -> None:
        """Runs until all pods have finished."""
        while len(self.over) < len(self.pods):
            life = asyncio.create_task(self.life())
            within = self.rng.uniform(0, UNTIL_DEATH) if self.now < FAULTS_END else None
            await asyncio.wait([life], timeout=within)
            if not life.done():
                life.cancel()
                self.deaths += 1
                await asyncio.gather(life, return_exceptions=True)
                self.node.start()
            else:
                life.result()
        for driver in self.node.by_name.values():
            assert driver.services.prepared == {}
        assert parse_checkpoint(self.node.path.read_text()) == []


@pytest.mark.parametrize("seed", range(SEEDS))
@on_virtual_time
async def test_history(tmp_path: Path, seed: int) -> None:
    story = Story(tmp_path, seed)
    await story.run()
    assert story.deaths
