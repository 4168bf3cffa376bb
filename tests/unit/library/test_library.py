"""kubeletpy.library: an agent inside a program, and its recorded interface."""

from __future__ import annotations

import asyncio
import json
import os
import re
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kubeletpy.base.kubernetes_version import OLDEST
from kubeletpy.base.text import snake_case
from kubeletpy.kubeapi.protocol import PODS
from kubeletpy.library import (
    ConfigError,
    Container,
    KubeClient,
    KubeconfigError,
    LaunchError,
    NodeAgent,
    PartialRuntime,
    PodSource,
    Show,
    SimpleRuntime,
    cri,
    guest_config,
    log_line,
)
from kubeletpy_up.api import LocalApi
from tools.gen_interface import (
    OUT,
    REMOVED,
    Change,
    changelog_text,
    digest,
    entries,
    interface,
    ledger,
    problems,
    render,
    unreleased,
)

# -- an agent in a program -----------------------------------------------------------------------


class Nothing(SimpleRuntime):
    """Containers that run until they get a signal."""

    def __init__(self) -> None:
        super().__init__()
        self.launched, self.ended, self.looked = (asyncio.Event() for _ in range(3))

    async def launch(self, container: Container) -> None:
        self.launched.set()

    async def result(self, container: Container) -> int:
        await self.ended.wait()
        return 0

    def send(self, container: Container, signum: int) -> None:
        self.ended.set()

    async def container_status(
        self, container_id: str, verbose: bool = False
    ) -> cri.ContainerStatusResponse:
        self.looked.set()
        return await super().container_status(container_id, verbose)


POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p"},
    "spec": {"containers": [{"name": "c", "image": "i"}], "dnsPolicy": "Default"},
}


class Pods:
    """A source that passes its `show` to the test; with `fails`, it returns at once."""

    def __init__(self, name: str = "given", fails: bool = False) -> None:
        self.name, self._fails = name, fails
        self.show: asyncio.Future[Show] = asyncio.get_running_loop().create_future()

    async def run(self, show: Show) -> None:
        self.show.set_result(show)
        if not self._fails:
            await asyncio.Event().wait()


def agent(root: Path, *sources: PodSource) -> tuple[NodeAgent, Nothing]:
    runtime = Nothing()
    config = guest_config(root, "n")
    made = NodeAgent(config, runtime=runtime, images=runtime, pod_sources=sources)
    return made, runtime


async def test_pods_of_a_source_start_and_end(tmp_path: Path) -> None:
    pods = Pods()
    node, runtime = agent(tmp_path, pods)
    async with node, asyncio.timeout(60):
        await node.registered()  # there is no API
        show = await pods.show
        show([POD])
        await runtime.launched.wait()
        (sandbox,) = runtime.sandboxes.values()
        assert sandbox.config.metadata.name == f"p-{node.node_name}"
        with pytest.raises(ValueError, match="metadata or spec is missing"):
            show([POD, {}])
        show([])
        await runtime.ended.wait()
    await node.stop()


class Together(Nothing):
    """Containers that start once a number of them start at the same time."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._barrier = asyncio.Barrier(number)

    async def launch(self, container: Container) -> None:
        await self._barrier.wait()
        self.launched.set()


async def test_no_limit_of_a_machine_delays_the_pods_of_a_guest(tmp_path: Path) -> None:
    number = 120
    pods, runtime = Pods(), Together(number)
    config = guest_config(tmp_path, "n")
    node = NodeAgent(config, runtime=runtime, images=runtime, pod_sources=[pods])
    async with node, asyncio.timeout(60):
        show = await pods.show
        show([{**POD, "metadata": {"name": f"p-{each}"}} for each in range(number)])
        await runtime.launched.wait()
    await runtime.close()


PLAIN_USER = """
import asyncio, json, logging, stat, sys
from pathlib import Path
from kubeletpy.library import KubeClient, NodeAgent, Resource, SimpleRuntime, guest_config
from kubeletpy_up.api import LocalApi

class Runtime(SimpleRuntime):
    def __init__(self):
        super().__init__()
        self.found, self.ended = asyncio.get_running_loop().create_future(), asyncio.Event()

    async def launch(self, container):
        found = {}
        for mount in container.config.mounts:
            path = Path(mount.host_path)
            files = [each.name for each in path.iterdir()] if path.is_dir() else path.read_text()
            found[mount.container_path] = [stat.S_IMODE(path.stat().st_mode), files]
        self.found.set_result(found)

    async def result(self, container):
        await self.ended.wait()
        return 0

    def send(self, container, signum):
        self.ended.set()

# The API, the node and the pod in one process.
async def main(root, pod):
    local = LocalApi(root / "api", "n", port=0, service_account_volumes=True)
    endpoint, runtime = await local.start(), Runtime()
    client = await KubeClient.from_kubeconfig(str(endpoint.admin_kubeconfig))
    # The secret exists before the pod.
    secret = {"metadata": {"name": "s"}, "stringData": {"key": "value"}}
    secrets = Resource("", "v1", "secrets", namespaced=True, kind="Secret")
    await client.create(secrets, secret, "default")
    # The agent runs beside it. It registers its node.
    config = guest_config(root / "node", "n", kubeconfig=endpoint.node_kubeconfig)
    async with NodeAgent(config, runtime=runtime, images=runtime) as node:
        await node.registered()
        pods = Resource("", "v1", "pods", namespaced=True, kind="Pod")
        # It finds what its mounts have.
        await client.create(pods, pod, "default")
        print(json.dumps(await asyncio.wait_for(runtime.found, 60)))
    # The end. Each part is awaited.
    runtime.ended.set()
    await runtime.close()
    await client.close()
    await local.stop()

logging.basicConfig(level=logging.WARNING)
asyncio.run(main(Path(sys.argv[1]), json.loads(sys.argv[2])))
"""


def as_plain_user(root: Path) -> list[str]:
    """The command line that runs a program as a user without rights, but to read Python's files."""
    if os.geteuid() != 0:
        return []
    os.chown(root, 1000, 1000)
    for parent in root.parents:
        if parent.owner() == "root" and parent.name.startswith("pytest"):
            parent.chmod(0o755)
    readable = ("--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search")
    return ["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", *readable]


def test_a_guest_of_a_plain_user_does_without_mounts(tmp_path: Path) -> None:
    mounts = [
        {"name": "s", "mountPath": "/secret"},
        {"name": "s", "mountPath": "/key", "subPath": "key"},
        {"name": "m", "mountPath": "/memory"},
        {"name": "e", "mountPath": "/part", "subPath": "a/b"},
    ]
    pod = {
        "metadata": {"name": "p"},
        "spec": {
            "securityContext": {"runAsUser": 2000, "fsGroup": 2000},
            "containers": [{"name": "c", "image": "i", "volumeMounts": mounts}],
            "volumes": [
                {"name": "s", "secret": {"secretName": "s"}},
                {"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
                {"name": "e", "emptyDir": {}},
            ],
        },
    }
    command = [*as_plain_user(tmp_path), sys.executable, "-c", PLAIN_USER]
    done = subprocess.run(
        [*command, str(tmp_path), json.dumps(pod)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd="/",
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    tokens = found["/var/run/secrets/kubernetes.io/serviceaccount"]
    assert [found["/secret"][0], found["/memory"][0], tokens[0]] == [0o700] * 3
    assert "key" in found["/secret"][1]
    assert {"ca.crt", "namespace", "token"} <= set(tokens[1])
    assert found["/key"][1] == "value"
    assert found["/part"][1] == []
    assert done.stderr.count("the kernel refuses mounts to this user") == 1


@pytest.mark.parametrize(
    ("name", "of_a_guest", "of_the_user"),
    [
        ("registryPullQPS", 0, 5),
        ("eventRecordQPS", 0, 50),
        ("kubeAPIQPS", 0, 50),
        ("maxPods", 10_000, 110),
        ("serializeImagePulls", False, True),
        ("maxParallelImagePulls", None, 3),
        ("podPidsLimit", -1, 100),
        ("evictionHard", {}, {"memory.available": "1Mi"}),
        ("imageGCHighThresholdPercent", 100, 90),
    ],
)
def test_a_guest_has_only_the_limits_that_its_program_sets(
    tmp_path: Path, name: str, of_a_guest: object, of_the_user: object
) -> None:
    default = guest_config(tmp_path, "n")
    chosen = guest_config(tmp_path, "n", settings={name: of_the_user})
    assert getattr(default.settings, snake_case(name)) == of_a_guest
    assert getattr(chosen.settings, snake_case(name)) == of_the_user


def test_a_guest_has_no_cluster_dns_unless_its_program_names_it(tmp_path: Path) -> None:
    assert guest_config(tmp_path, "n").node.no_cluster_dns
    chosen = guest_config(tmp_path, "n", settings={"clusterDNS": ["10.96.0.10"]})
    assert chosen.settings.cluster_dns == ("10.96.0.10",)
    assert not guest_config(tmp_path, "n", flags=["--no-cluster-dns=false"]).node.no_cluster_dns


async def test_another_agent_continues_with_what_runs(tmp_path: Path) -> None:
    pods = Pods()
    node, runtime = agent(tmp_path, pods)
    async with node, asyncio.timeout(60):
        (await pods.show)([POD])
        await runtime.launched.wait()
    before = set(runtime.containers)
    assert before
    runtime.looked.clear()
    again = Pods()
    config = guest_config(tmp_path, "n")
    other = NodeAgent(config, runtime=runtime, images=runtime, pod_sources=[again])
    async with other, asyncio.timeout(60):
        show = await again.show
        show([POD])
        await runtime.looked.wait()
        assert set(runtime.containers) == before
        assert not runtime.ended.is_set()
        show([])
        await runtime.ended.wait()
    await runtime.close()


async def test_a_source_that_ends_ends_the_agent(tmp_path: Path) -> None:
    node, _ = agent(tmp_path, Pods(fails=True))
    await node.start()
    with pytest.raises(ExceptionGroup) as caught:
        await node.wait()
    assert "the source of pods given has ended" in repr(caught.value)
    with pytest.raises(ExceptionGroup):
        await node.stop()


@pytest.mark.parametrize(
    ("names", "stated"),
    [
        (["api"], "can't be named 'api'"),
        (["a", "b", "a"], "each source of pods needs a name of its own"),
    ],
)
async def test_names_of_sources(tmp_path: Path, names: list[str], stated: str) -> None:
    node, _ = agent(tmp_path, *map(Pods, names))
    with pytest.raises(ValueError, match=stated):
        await node.start()


async def test_an_agent_is_started_once(tmp_path: Path) -> None:
    node, _ = agent(tmp_path)
    for early in (node.wait, node.registered):
        with pytest.raises(RuntimeError, match="does not run"):
            await early()
    await node.stop()
    async with node:
        with pytest.raises(RuntimeError, match="started before"):
            await node.start()


async def test_an_api_of_the_program(tmp_path: Path) -> None:
    local, runtime = LocalApi(tmp_path / "api", "n", port=0), Nothing()
    endpoint = await local.start()
    client = await KubeClient.from_kubeconfig(str(endpoint.node_kubeconfig))
    config = guest_config(tmp_path / "agent", "n")
    try:
        async with NodeAgent(config, runtime=runtime, images=runtime, api=client) as node:
            await node.registered()
        assert local.registry.find("nodes", "", "n") is not None
        await local.stop()
        config = guest_config(tmp_path / "other", "n")
        async with NodeAgent(config, runtime=runtime, images=runtime, api=client) as node:
            with pytest.raises(TimeoutError):
                await node.registered(within=0.1)
    finally:
        await client.close()
        await local.stop()


async def test_logs_of_a_guest_are_read_through_the_api(tmp_path: Path) -> None:
    """A silent container has an empty log from its start, also after a rotation."""
    local, runtime = LocalApi(tmp_path / "api", "n", port=0), Nothing()
    endpoint = await local.start()
    client = await KubeClient.from_kubeconfig(str(endpoint.admin_kubeconfig))
    token = json.loads(endpoint.admin_kubeconfig.read_text())["users"][0]["user"]["token"]
    config = guest_config(tmp_path / "node", "n", kubeconfig=endpoint.node_kubeconfig, server=True)
    tls = ssl.create_default_context(cafile=str(tmp_path / "api" / "pki" / "ca.crt"))
    headers = {"Authorization": f"Bearer {token}"}
    try:
        async with (
            NodeAgent(config, runtime=runtime, images=runtime) as node,
            aiohttp.ClientSession(endpoint.url, headers=headers) as session,
            asyncio.timeout(60),
        ):
            await node.registered()
            await client.create(PODS, POD, "default")
            await runtime.launched.wait()
            url = "/api/v1/namespaces/default/pods/p/log"
            async with session.get(url, ssl=tls) as response:
                assert (response.status, await response.read()) == (200, b"")
            (container,) = runtime.containers.values()
            container.log_path.write_bytes(log_line(b"hello\n"))
            async with session.get(url, ssl=tls) as response:
                assert await response.read() == b"hello\n"
            container.log_path.rename(tmp_path / "rotated")
            await runtime.reopen_container_log(container.id)
            assert container.log_path.read_bytes() == b""
    finally:
        await runtime.close()
        await client.close()
        await local.stop()


@pytest.mark.parametrize(
    ("kubeconfig", "message"),
    [(None, "needs a kubeconfig"), ({"server": "https://x"}, "needs certificate-authority")],
)
def test_a_guest_that_serves_knows_its_clients(
    tmp_path: Path, kubeconfig: dict[str, str] | None, message: str
) -> None:
    path = None
    if kubeconfig is not None:
        path = tmp_path / "kubeconfig"
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        document = {
            "clusters": [{"name": "c", "cluster": kubeconfig}],
            "contexts": [context],
            "current-context": "c",
        }
        path.write_text(json.dumps(document))
    with pytest.raises(KubeconfigError, match=message):
        guest_config(tmp_path, "n", kubeconfig=path, server=True)


async def test_a_runtime_that_does_not_answer(tmp_path: Path) -> None:
    runtime = PartialRuntime()
    node = NodeAgent(guest_config(tmp_path, "n"), runtime=runtime, images=runtime)
    with pytest.raises(LaunchError, match="the given runtime can't be used: Version"):
        await node.start()


def test_a_wrong_setting_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="maxPods"):
        guest_config(tmp_path, "n", settings={"maxPods": "many"})
    assert guest_config(tmp_path, "n", settings={"maxPods": 7}).settings.max_pods == 7


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"settings": {"syncFreqency": "10s"}}, "no such field; did you mean syncFrequency?"),
        ({"settings": {"MaxPods": 7}}, "MaxPods is 7: no such field; did you mean maxPods?"),
        (
            {"settings": {"authentication": {"anonymus": {}}}},
            "authentication.anonymus is {}: no such field; did you mean anonymous?",
        ),
        (
            {"settings": {"registerWithTaints": [{"key": "a", "effect": "NoExecute", "val": "b"}]}},
            'registerWithTaints[0].val is "b": no such field; did you mean value?',
        ),
        ({"settings": {"maxPods": -1}}, "maxPods is -1: must be at least 0"),
        ({"settings": {"maxPods": 7.5}}, "maxPods is 7.5: must be a whole number"),
        ({"settings": {"podLogsDir": Path("/x")}}, 'podLogsDir is "/x": must be a text'),
        ({"settings": {"featureGates": {"Nope": True}}}, "featureGates.Nope is true"),
        ({"settings": {"kind": "Kubelet"}}, 'kind is "Kubelet": must be'),
        ({"flags": ["--max-pod=7"]}, "--max-pod: no such flag; did you mean --max-pods?"),
        ({"flags": "--max-pods=7"}, "flags is --max-pods=7: must be a list of flags"),
        ({"node_name": "No_Name"}, '--hostname-override is "No_Name": must be a node\'s name'),
        ({"node_name": ""}, "node_name: must not be empty"),
    ],
)
def test_a_wrong_argument_of_a_guest_is_named(
    arguments: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        guest_config(tmp_path, **{"node_name": "n", **arguments})


def test_none_leaves_the_value_of_a_guest(tmp_path: Path) -> None:
    settings = guest_config(tmp_path, "n", settings={"podLogsDir": None, "maxPods": None}).settings
    assert settings.pod_logs_dir == str(tmp_path / "log" / "pods")
    assert settings.max_pods == 10_000


def test_a_guest_keeps_a_new_field_at_an_older_server(tmp_path: Path) -> None:
    """The version of the server is known later: what it does not have is left out there."""
    config = guest_config(tmp_path, "n", settings={"defaultPodSysctls": {}})
    older = config.of_version(OLDEST)
    assert any("defaultPodSysctls is {}: does not exist" in each for each in older.warnings)


# -- the interface -------------------------------------------------------------------------------


def test_the_interface_is_recorded_with_every_change() -> None:
    public = interface()
    assert problems(public, ledger(), changelog_text()) == []
    assert OUT.read_text() == render(public), "run tools/gen_interface.py"


TEXT = """\
## [Unreleased]

- The library has
  `f` and `g`.
- `f` takes a number.

## [1.0.0]

- Other.
"""
OLD, NEW = "def f() -> None", "def f(n: int) -> None"
FIRST = Change("m.f", digest(OLD), "The library")


@pytest.mark.parametrize(
    ("public", "changes", "wrong"),
    [
        ({"m.f": OLD}, [FIRST], ""),
        ({"m.f": OLD}, [], "m.f: has changed without a line"),
        ({"m.f": NEW}, [FIRST], "m.f: has changed without a line"),
        ({}, [FIRST], "m.f: was removed without a line"),
        ({"m.f": NEW}, [FIRST, Change("m.f", digest(NEW), "takes a number")], ""),
        ({"m.f": NEW}, [FIRST, Change("m.f", digest(NEW), "has `f`")], "two changes cite one line"),
        ({"m.f": NEW}, [FIRST, Change("m.f", digest(NEW), "Other")], "is not named by the line"),
        ({"m.f": NEW}, [FIRST, Change("m.f", digest(NEW), "no such")], "0 lines of CHANGELOG.md"),
        ({"m.f": NEW}, [FIRST, Change("m.f", digest(NEW), "`")], "2 lines of CHANGELOG.md"),
        ({}, [FIRST, Change("m.f", REMOVED, "takes a number")], ""),
    ],
)
def test_a_change_needs_a_line_of_its_own(
    public: dict[str, str], changes: list[Change], wrong: str
) -> None:
    stated = problems(public, changes, TEXT)
    assert len(stated) == bool(wrong)
    assert wrong in "".join(stated)


def test_fragments_are_the_unreleased_lines(tmp_path: Path) -> None:
    (tmp_path / "CHANGELOG.md").write_text("## [1.0.0]\n\n- Other.\n")
    (tmp_path / "changes").mkdir()
    (tmp_path / "changes" / "README.md").write_text("How to.")
    (tmp_path / "changes" / "+f.added.md").write_text("`f` is\nnew.\n")
    text = changelog_text(tmp_path / "CHANGELOG.md", tmp_path / "changes")
    assert entries(text) == ["`f` is new.", "Other."]
    assert entries(unreleased(text)) == ["`f` is new."]


def test_wrapped_lines_are_joined() -> None:
    assert entries(TEXT) == ["The library has `f` and `g`.", "`f` takes a number.", "Other."]
