"""The volume manager on real directories and mounts: set up, update, restart, take down."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import threading
import time
from pathlib import Path
from typing import Any, cast

import pytest

from kubeletpy.base.host.errors import FaultKind
from kubeletpy.kubeapi.errors import NoAnswerYet, Unavailable
from kubeletpy.kubeapi.protocol import SECRETS
from kubeletpy.kubeapi.tracked_object import ObjectKey
from kubeletpy.node.facts import NodeAddresses
from kubeletpy.pods.environment import EnvironmentInputs, NodeFacts, build_environment
from kubeletpy.pods.pod import Pod
from kubeletpy.podworkers.pod_directories import PodDirectories, remove_orphan
from kubeletpy.runtime_manager.protocol import ContainerAdditions
from kubeletpy.volumes.claims.model import VolumeError
from kubeletpy.volumes.containers.container_mounts import ContainerMounts
from kubeletpy.volumes.containers.environment import ContainerEnvironment, EnvFile, parse_env_file
from kubeletpy.volumes.files.disk import mount
from kubeletpy.volumes.node.accounts import VolumeAccounts
from kubeletpy.volumes.node.node_volumes import OUTCOMES_A_TURN
from kubeletpy.volumes.pod_volumes.payload import format_map
from kubeletpy.volumes.pod_volumes.set_up import SetUpOutcome, set_up_all
from kubeletpy.volumes.projected.token_claims import TokenKey
from tests.kit.costs import slowness
from tests.kit.volumes import CONFIG, FIELD, HUSH, SECRET, Node, node, pod_of

__all__ = ["node"]


async def test_a_config_map_and_its_changes(node: Node) -> None:
    node.api.put("cfg", data={"a": "1"})
    pod = pod_of(CONFIG)
    mounts = await node.volumes.set_up(pod)
    assert mounts["c"][0].host_path == str(node.path("configmap"))
    assert (node.path("configmap") / "a").read_text() == "1"
    node.api.put("cfg", data={"a": "2"})
    await node.woken.wait()
    await node.volumes.set_up(pod)
    assert (node.path("configmap") / "a").read_text() == "2"
    assert node.mounts == []


async def test_secrets_are_in_memory_and_gone_afterwards(node: Node) -> None:
    node.api.put("s", SECRETS, data={"k": HUSH})
    await node.volumes.set_up(pod_of(SECRET))
    assert node.mounts == [str(node.path("secret"))]
    assert (node.path("secret") / "k").read_text() == "hush"
    await node.volumes.tear_down("u")
    assert node.mounts == []
    assert not node.path("secret").exists()
    assert node.objects.watches == 0
    await node.volumes.tear_down("u")


async def test_a_sync_without_changes_is_cheap(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.api.put("cfg", data={"a": "1"})
    node.api.put("s", SECRETS, data={"k": HUSH})
    sources = [{"serviceAccountToken": {"path": "t"}}, {"configMap": {"name": "cfg"}}]
    pod = pod_of(
        CONFIG,
        {"name": "s", "secret": {"secretName": "s"}},
        {"name": "p", "projected": {"sources": sources}},
        {"name": "d", "downwardAPI": {"items": [FIELD]}},
        {"name": "e", "emptyDir": {}},
    )
    await node.volumes.set_up(pod)

    def touched(*_: Any) -> Any:
        raise AssertionError("files were read")

    monkeypatch.setattr("kubeletpy.volumes.pod_volumes.set_up.set_up_all", touched)
    begun = time.thread_time()
    for _ in range(100):
        await node.volumes.set_up(pod)
    spent = time.thread_time() - begun
    assert spent / 100 < 0.001 * slowness(), "the files themselves take 10 ms"


async def test_downward_values_follow_the_pod(node: Node) -> None:
    volume = {"name": "v", "downwardAPI": {"items": [FIELD]}}
    pod = pod_of(volume)
    await node.volumes.set_up(pod)
    changed = cast(Any, {**pod.object, "metadata": {**pod.metadata, "labels": {"app": "y"}}})
    await node.volumes.set_up(Pod(changed))
    assert (node.path("downward-api") / "app").read_text() == "y"


async def test_many_large_downward_items_do_not_block_the_loop(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread renders them, when a field that they show has changed."""
    field = {"fieldRef": {"fieldPath": "metadata.annotations"}}
    items = [{"path": str(number), **field} for number in range(100)]
    pod = pod_of({"name": "v", "downwardAPI": {"items": items}})
    noted = {"large": "\n" * 250_000}
    pod = Pod(cast(Any, {**pod.object, "metadata": {**pod.metadata, "annotations": noted}}))
    rendered: list[str] = []

    def render(values: Any) -> str:
        rendered.append(threading.current_thread().name)
        return format_map(values)

    monkeypatch.setattr("kubeletpy.volumes.pod_volumes.payload.format_map", render)
    for _ in range(3):
        await node.volumes.set_up(pod)
    assert len(rendered) == 1
    assert rendered != [threading.main_thread().name]
    assert (node.path("downward-api") / "99").stat().st_size == 500_000 + len('large=""')


async def test_volumes_of_a_pod_have_a_size_together(node: Node) -> None:
    node.api.put("cfg", data={"a": "x" * 1_000_000})
    items = [{"key": "a", "path": str(number)} for number in range(40)]
    source = {"configMap": {"name": "cfg", "items": items}}
    with pytest.raises(VolumeError, match='volume "w": its files have over'):
        await node.volumes.set_up(pod_of({"name": "v", **source}, {"name": "w", **source}))
    (stated,) = node.events
    assert stated.startswith('FailedMount: MountVolume.SetUp failed for volume "w"')
    assert str(64 << 20) in stated


async def test_that_the_api_has_not_answered_yet_is_no_event_before_it_lasts(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(key: ObjectKey) -> None:
        raise NoAnswerYet("no answer from the API yet")

    monkeypatch.setattr(node.volumes.objects, "get", silent)
    pod = pod_of(CONFIG)
    with pytest.raises(VolumeError, match="no answer") as caught:
        await node.volumes.set_up(pod)
    assert caught.value.reported, "nobody else sends an event instead"
    assert node.events == []
    monkeypatch.setattr("kubeletpy.volumes.pod_volumes.planned.EVENT_AFTER_S", 0.0)
    with pytest.raises(VolumeError, match="no answer"):
        await node.volumes.set_up(pod)
    (stated,) = node.events
    assert stated.endswith("no answer from the API yet")


async def test_a_missing_object_is_named_once_and_the_rest_is_made(node: Node) -> None:
    pod = pod_of(CONFIG, {"name": "e", "emptyDir": {}})
    with pytest.raises(VolumeError) as caught:
        await node.volumes.set_up(pod)
    assert caught.value.reported
    stated = 'MountVolume.SetUp failed for volume "v" : configmap "cfg" not found'
    assert node.events == [f"FailedMount: {stated}"]
    assert node.path("empty-dir", "e").is_dir()
    node.api.put("cfg", data={})
    await node.woken.wait()
    assert "c" in await node.volumes.set_up(pod)


async def test_a_full_disk_is_named_and_reported_as_data(node: Node) -> None:
    mount("tmpfs", str(node.pods_dir), "tmpfs", 0, "size=1m")
    filler = node.pods_dir / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    node.api.put("cfg", data={"a": "1"})
    with pytest.raises(VolumeError) as caught:
        await node.volumes.set_up(pod_of(CONFIG))
    cause = caught.value.cause
    assert cause is not None
    fault = cause.fault
    assert fault is not None
    assert (fault.kind, fault.mount_point) == (FaultKind.SPACE, str(node.pods_dir))
    (event,) = node.events
    assert f"No space left on device (file system {node.pods_dir}: 100% of 1.0 MiB" in event
    assert f": '{node.pods_dir}/" in event
    filler.unlink()
    assert "c" in await node.volumes.set_up(pod_of(CONFIG))


async def test_a_volume_in_use_outlives_its_object(node: Node) -> None:
    node.api.put("s", SECRETS, data={"k": HUSH})
    pod = pod_of(SECRET)
    await node.volumes.set_up(pod)
    node.api.remove("s", SECRETS)
    await node.woken.wait()
    assert "c" in await node.volumes.set_up(pod)
    assert len(node.events) == 1
    await node.restart()
    node.api.down = Unavailable("no API")
    assert "c" in await node.volumes.set_up(pod)
    assert (node.path("secret") / "k").read_text() == "hush"


async def test_a_restart_changes_nothing_that_is_right(node: Node) -> None:
    node.api.put("s", SECRETS, data={"k": HUSH})
    pod = pod_of(SECRET, {"name": "e", "emptyDir": {"medium": "Memory"}})
    await node.volumes.set_up(pod)
    (node.path("empty-dir", "e") / "mine").write_text("kept")
    before, version = node.mounts, (node.path("secret") / "..data").readlink()
    await node.restart()
    await node.volumes.set_up(pod)
    assert node.mounts == before
    assert (node.path("secret") / "..data").readlink() == version
    assert (node.path("empty-dir", "e") / "mine").read_text() == "kept"


@pytest.mark.parametrize("step", range(1, 12))
async def test_a_kill_during_set_up_is_recovered(
    node: Node, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent is killed at each call that changes the disk, in turn."""
    node.api.put("s", SECRETS, data={"k": HUSH})
    pod = pod_of(SECRET, {"name": "e", "emptyDir": {}}, securityContext={"fsGroup": 42})
    left = step

    class Kill(BaseException):
        pass

    def dying(real: Any) -> Any:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                raise Kill
            return real(*args, **kwargs)

        return wrapped

    with monkeypatch.context() as patch:
        for name in ("mkdir", "chmod", "symlink_to", "replace", "touch"):
            patch.setattr(Path, name, dying(getattr(Path, name)))
        patch.setattr("kubeletpy.volumes.files.disk.mount", dying(_mount))
        patch.setattr("kubeletpy.volumes.pod_volumes.set_up.give_to_group", dying(_give))
        with contextlib.suppress(Kill):
            await node.volumes.set_up(pod)
    await node.restart()
    await node.volumes.set_up(pod)
    assert node.mounts == [str(node.path("secret"))]
    assert (node.path("secret") / "k").read_text() == "hush"
    assert node.path("empty-dir", "e").stat().st_gid == 42
    assert stat.S_IMODE(node.path("empty-dir", "e").stat().st_mode) == 0o2777
    await node.volumes.tear_down("u")
    assert node.mounts == []


def _mount(*args: Any, **kwargs: Any) -> None:
    from kubeletpy.volumes.files.disk import mount

    mount(*args, **kwargs)


def _give(*args: Any, **kwargs: Any) -> None:
    from kubeletpy.volumes.files.safe_path import give_to_group

    give_to_group(*args, **kwargs)


async def test_modes_and_owners_of_an_fs_group(node: Node) -> None:
    node.api.put("cfg", data={"a": "1"})
    sources = [{"serviceAccountToken": {"path": "t"}}]
    pod = pod_of(
        CONFIG,
        {"name": "p", "projected": {"sources": sources}},
        securityContext={"fsGroup": 42, "runAsUser": 7},
    )
    await node.volumes.set_up(pod)
    config = node.path("configmap")
    assert stat.S_IMODE(config.stat().st_mode) == 0o2777
    assert ((config / "a").stat().st_gid, (config / "a").stat().st_mode & 0o777) == (42, 0o644)
    token = (node.path("projected", "p") / "t").stat()
    assert (token.st_uid, token.st_gid, token.st_mode & 0o777) == (7, 42, 0o640)


TOKEN = {"serviceAccountToken": {"path": "t", "expirationSeconds": 3607}}
PROJECTED = {"name": "p", "projected": {"sources": [TOKEN]}}


async def test_a_restarted_agent_takes_the_token_from_the_volume(node: Node) -> None:
    node.api.signs = True
    pod, file = pod_of(PROJECTED), node.path("projected", "p") / "t"
    await node.volumes.set_up(pod)
    before = file.read_text()
    for _ in range(2):
        await node.restart()
        await node.volumes.set_up(pod)
    assert (file.read_text(), node.api.calls["create"]) == (before, 1)
    # its other tokens, and those of other pods, are not in that file
    await node.tokens.get(pod, TokenKey("default", "vault", 3607))
    await node.volumes.set_up(pod_of(PROJECTED, uid="u2"))
    assert node.api.calls["create"] == 3
    await node.volumes.tear_down("u2")


async def test_a_token_from_disk_that_is_due_serves_until_there_is_a_new_one(node: Node) -> None:
    node.api.signs, node.api.issued_ago = True, 3000
    pod, file = pod_of(PROJECTED), node.path("projected", "p") / "t"
    await node.volumes.set_up(pod)
    before = file.read_text()
    await node.restart()
    node.api.down = Unavailable("connection refused")
    await node.volumes.set_up(pod)
    assert (file.read_text(), node.events) == (before, [])
    await node.restart()
    node.api.down, node.api.issued_ago = None, 0
    await node.volumes.set_up(pod)
    assert file.read_text() != before


async def test_files_of_a_terminating_pod_are_updated_and_its_token_is_renewed(node: Node) -> None:
    node.api.signs = True
    node.api.put("cfg", data={"a": "1"})
    node.api.put("s", SECRETS, data={"k": HUSH})
    down = {"name": "d", "downwardAPI": {"items": [FIELD]}}
    volumes = (CONFIG, {"name": "s", "secret": {"secretName": "s"}}, PROJECTED, down)
    pod, token = pod_of(*volumes), node.path("projected", "p") / "t"
    await node.volumes.set_up(pod)
    before = token.read_text()
    await node.volumes.refresh(pod)
    assert token.read_text() == before
    for restarts in (False, True):  # while the pod terminates
        if restarts:
            await node.restart()
            await node.volumes.refresh(pod)
        node.woken.clear()
        node.api.put("cfg", data={"a": f"2{restarts}"})
        await node.woken.wait()
        node.tokens._kept["u"][TokenKey("default", "", 3607)].renew_at = 0.0
        labels = {"app": f"y{restarts}"}
        changed = {**pod.object, "metadata": {**pod.object["metadata"], "labels": labels}}
        await node.volumes.refresh(Pod(cast(Any, changed)))
        assert (node.path("configmap") / "a").read_text() == f"2{restarts}"
        assert (node.path("downward-api", "d") / "app").read_text() == f"y{restarts}"
        assert token.read_text() != before
        before = token.read_text()
    assert node.events == []
    await node.volumes.tear_down("u")
    assert node.objects.watches == 0


async def test_a_terminating_pod_gets_no_volume_that_it_did_not_have(node: Node) -> None:
    node.api.put("cfg", data={"a": "1"})
    pod = pod_of(CONFIG, {"name": "e", "emptyDir": {}}, PROJECTED)
    await node.volumes.refresh(pod)
    assert not (node.pods_dir / "u").exists()
    assert not node.api.calls["create"]


async def test_a_volume_of_a_terminating_pod_outlives_its_object_without_an_event(
    node: Node,
) -> None:
    node.api.put("cfg", data={"a": "1"})
    pod = pod_of(CONFIG)
    await node.volumes.set_up(pod)
    node.api.remove("cfg")
    await node.woken.wait()
    with pytest.raises(VolumeError, match='not updated: volume "v": configmap'):
        await node.volumes.refresh(pod)
    assert (node.path("configmap") / "a").read_text() == "1"
    assert node.events == []


@pytest.mark.parametrize("left", ["", "token-1", "\N{SNOWMAN}", "x" * 100_000])
async def test_a_file_that_holds_no_token_is_replaced(node: Node, left: str) -> None:
    node.api.signs = True
    pod, file = pod_of(PROJECTED), node.path("projected", "p") / "t"
    await node.volumes.set_up(pod)
    await node.restart()
    file.write_text(left)
    await node.volumes.set_up(pod)
    assert node.api.calls["create"] == 2
    assert file.read_text().count(".") == 2


async def test_orphans_are_taken_down_but_not_what_comes_back(node: Node) -> None:
    node.api.put("s", SECRETS, data={"k": HUSH})
    pod = pod_of(SECRET, {"name": "e", "emptyDir": {}})
    await node.volumes.set_up(pod)
    (node.path("empty-dir", "e") / "data").write_text("x")
    problem = remove_orphan(node.pods_dir / "u", node.volumes.release_orphan)
    assert problem is not None
    assert "in use" in problem
    assert len(node.mounts) == 1
    await node.restart()
    assert remove_orphan(node.pods_dir / "u", node.volumes.release_orphan) is None
    assert node.mounts == []
    assert list(node.pods_dir.iterdir()) == []


async def test_data_of_unknown_volumes_is_left(node: Node) -> None:
    foreign = node.pods_dir / "u" / "volumes" / "kubernetes.io~csi" / "v"
    foreign.mkdir(parents=True)
    (foreign / "vol_data.json").write_text("{}")
    problem = remove_orphan(node.pods_dir / "u", node.volumes.release_orphan)
    assert problem is not None
    assert "left in a volume directory" in problem
    assert (foreign / "vol_data.json").exists()


async def test_taking_down_follows_no_links(node: Node) -> None:
    outside = node.root / "outside"
    outside.mkdir()
    (outside / "file").write_text("x")
    await node.volumes.set_up(pod_of({"name": "e", "emptyDir": {}}))
    (node.path("empty-dir", "e") / "link").symlink_to(outside)
    await node.volumes.tear_down("u")
    assert (outside / "file").exists()


@pytest.mark.parametrize(
    ("kind", "make", "good"),
    [
        ("", "nothing", True),
        ("Directory", "directory", True),
        ("Directory", "nothing", False),
        ("Directory", "file", False),
        ("DirectoryOrCreate", "nothing", True),
        ("DirectoryOrCreate", "file", False),
        ("File", "file", True),
        ("File", "directory", False),
        ("FileOrCreate", "nothing", True),
        ("FileOrCreate", "directory", False),
        ("Socket", "file", False),
        ("CharDevice", "file", False),
        ("BlockDevice", "nothing", False),
        ("Sock", "file", False),
    ],
)
async def test_host_paths(node: Node, kind: str, make: str, good: bool) -> None:
    path = node.root / "host"
    if make == "directory":
        path.mkdir()
    if make == "file":
        path.touch()
    pod = pod_of({"name": "v", "hostPath": {"path": str(path), "type": kind}})
    if not good:
        with pytest.raises(VolumeError, match="hostPath type check failed"):
            await node.volumes.set_up(pod)
        return
    assert (await node.volumes.set_up(pod))["c"][0].host_path == str(path)
    if kind == "DirectoryOrCreate":
        assert path.stat().st_mode & 0o777 == 0o755
    if kind == "FileOrCreate":
        assert path.stat().st_mode & 0o777 == 0o644
    assert path.exists() or kind == ""


async def test_huge_pages_that_the_node_has_not(node: Node) -> None:
    pod = pod_of({"name": "v", "emptyDir": {"medium": "HugePages-7Mi"}})
    pod.containers[0]["resources"] = {"limits": {"hugepages-7Mi": "7Mi"}}
    with pytest.raises(VolumeError, match="no huge pages of 7168 KiB"):
        await node.volumes.set_up(pod)


async def test_a_canceled_set_up_ends_before_the_take_down(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.api.put("s", SECRETS, data={"k": HUSH})
    begun, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slow(*supplied: Any) -> list[SetUpOutcome]:
        loop.call_soon_threadsafe(begun.set)
        assert go_on.wait(10)
        return set_up_all(*supplied)

    monkeypatch.setattr("kubeletpy.volumes.pod_volumes.set_up.set_up_all", slow)
    task = asyncio.create_task(node.volumes.set_up(pod_of(SECRET)))
    await begun.wait()
    task.cancel()
    await asyncio.wait([task])
    taken_down = asyncio.create_task(node.volumes.tear_down("u"))
    await asyncio.sleep(0.05)
    assert not taken_down.done()
    go_on.set()
    await taken_down
    assert node.mounts == []


async def test_an_open_file_holds_the_end_up_for_a_moment_only(node: Node) -> None:
    node.api.put("s", SECRETS, data={"k": HUSH})
    await node.volumes.set_up(pod_of(SECRET))
    file = os.open(node.path("secret") / "k", os.O_RDONLY)
    with pytest.raises(VolumeError, match=rf"busy: .*; it is in use by process {os.getpid()} \("):
        await node.volumes.tear_down("u")
    assert (node.path("secret") / "k").read_text() == "hush"
    asyncio.get_running_loop().call_later(0.08, os.close, file)
    await node.volumes.tear_down("u")
    assert node.mounts == []


async def test_a_restart_leaves_the_modes_that_containers_gave(node: Node) -> None:
    pod = pod_of({"name": "v", "emptyDir": {}}, securityContext={"fsGroup": 42})
    await node.volumes.set_up(pod)
    mine = node.path("empty-dir") / "mine"
    mine.touch()
    mine.chmod(0o600)
    await node.restart()
    await node.volumes.set_up(pod)
    assert stat.S_IMODE(mine.stat().st_mode) == 0o600


async def test_an_environment_reads_objects_and_files(node: Node) -> None:
    node.api.put("cfg", data={"a": "1"})
    node.api.put("s", SECRETS, data={"k": HUSH})
    pod = pod_of({"name": "e", "emptyDir": {}})
    file = {"volumeName": "e", "path": "d/env", "key": "K"}
    pod.containers[0]["env"] = [
        {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        {"name": "F", "valueFrom": {"fileKeyRef": cast(Any, file)}},
    ]
    pod.containers[0]["envFrom"] = [{"configMapRef": {"name": "cfg"}}]
    await node.volumes.set_up(pod)
    env = node.path("empty-dir", "e") / "d" / "env"
    env.parent.mkdir()
    env.write_text("K='v'\n")
    environment = ContainerEnvironment(node.pods_dir, node.objects)
    sources = (await inputs_of(environment, pod)).sources
    assert sources is not None
    assert sources.config_map("cfg") == {"a": "1"}
    assert sources.config_map("other") is None
    assert sources.secret("s") == {"k": "hush"}
    assert sources.file_key(cast(Any, file)) == "v"
    env.unlink()
    env.symlink_to("/etc/hostname")
    sources = (await inputs_of(environment, pod)).sources
    assert sources is not None
    with pytest.raises(ValueError, match='file "d/env" in volume "e" cannot be read'):
        sources.file_key(cast(Any, file))
    env.unlink()
    os.mkfifo(env)
    sources = (await inputs_of(environment, pod)).sources
    assert sources is not None
    with pytest.raises(ValueError, match="not a regular file"):
        sources.file_key(cast(Any, file))


async def inputs_of(
    environment: ContainerEnvironment, pod: Pod, ips: tuple[str, ...] = ()
) -> EnvironmentInputs:
    supplied = ContainerAdditions(EnvironmentInputs(facts=NodeFacts(pod_ips=ips)))
    return (await environment.provide(pod, pod.containers[0], supplied)).environment


async def test_many_variables_of_a_file_and_of_a_secret_are_read_once(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.api.put("s", SECRETS, data={f"k{number}": HUSH for number in range(2500)})
    pod = pod_of({"name": "e", "emptyDir": {}})
    pod.containers[0]["env"] = [
        {"name": f"V{number}", "valueFrom": cast(Any, origin)}
        for number in range(2500)
        for origin in (
            {"fileKeyRef": {"volumeName": "e", "path": "env", "key": f"K{number}"}},
            {"secretKeyRef": {"name": "s", "key": f"k{number}"}},
        )
    ]
    pod.spec["enableServiceLinks"] = False
    await node.volumes.set_up(pod)
    lines = [f"K{number}='{'v' * 10}'\n" for number in range(2500)]
    (node.path("empty-dir", "e") / "env").write_text("".join(lines))
    parsed: list[int] = []

    def parse(text: str) -> EnvFile:
        parsed.append(len(text))
        return parse_env_file(text)

    monkeypatch.setattr("kubeletpy.volumes.containers.environment.parse_env_file", parse)
    environment = ContainerEnvironment(node.pods_dir, node.objects)
    inputs = await inputs_of(environment, pod)
    begun = time.thread_time()
    assert len(build_environment(pod, pod.containers[0], inputs)) == 2500
    assert time.thread_time() - begun < 1, "half a minute when each variable reads all"
    assert len(parsed) == 1


async def test_env_files_have_a_size_together(node: Node) -> None:
    pod = pod_of({"name": "e", "emptyDir": {}})
    await node.volumes.set_up(pod)
    keys = [{"volumeName": "e", "path": f"f{number}", "key": "K"} for number in range(70)]
    for key in keys:
        (node.path("empty-dir", "e") / key["path"]).write_text(f"K='{'v' * 65_000}'\n")
    pod.containers[0]["env"] = [
        {"name": key["path"].upper(), "valueFrom": {"fileKeyRef": cast(Any, key)}} for key in keys
    ]
    environment = ContainerEnvironment(node.pods_dir, node.objects)
    sources = (await inputs_of(environment, pod)).sources
    assert sources is not None
    assert sources.file_key(cast(Any, keys[0])) == "v" * 65_000
    with pytest.raises(ValueError, match="together have over 4194304 bytes"):
        sources.file_key(cast(Any, keys[-1]))


@pytest.mark.parametrize(
    ("host_network", "ips", "pod_ips"),
    [(False, ("10.0.0.1",), ("10.0.0.1",)), (False, (), ()), (True, (), ("192.168.0.9",))],
)
async def test_a_container_on_the_hosts_network_has_the_nodes_address(
    node: Node, host_network: bool, ips: tuple[str, ...], pod_ips: tuple[str, ...]
) -> None:
    pod = pod_of(hostNetwork=host_network)
    environment = ContainerEnvironment(node.pods_dir, node.objects, host_ips=("192.168.0.9",))
    assert (await inputs_of(environment, pod, ips)).facts.pod_ips == pod_ips


async def test_a_containers_addresses_begin_with_the_family_of_the_node(node: Node) -> None:
    nodes = ("fd00::9", "192.168.0.9")
    environment = ContainerEnvironment(node.pods_dir, node.objects, host_ips=nodes)
    facts = (await inputs_of(environment, pod_of(), ("10.0.0.1", "fd00:1::1"))).facts
    assert facts.pod_ips == ("fd00:1::1", "10.0.0.1")


async def test_a_containers_variables_have_the_nodes_address_of_now(node: Node) -> None:
    addresses = NodeAddresses(["192.168.0.9"])
    environment = ContainerEnvironment(node.pods_dir, node.objects, host_ips=addresses)
    pod = pod_of(hostNetwork=True)
    addresses.replace(["192.168.0.10"])
    facts = (await inputs_of(environment, pod)).facts
    assert facts.host_ips == facts.pod_ips == ("192.168.0.10",)


async def test_sub_paths_are_mounted_when_a_container_starts(node: Node) -> None:
    uses = [{"name": "e", "mountPath": "/x", "subPathExpr": "of/$(POD)"}]
    pod = pod_of({"name": "e", "emptyDir": {}}, uses=uses, enableServiceLinks=False)
    field = {"fieldRef": {"fieldPath": "metadata.name"}}
    pod.containers[0]["env"] = [{"name": "POD", "valueFrom": cast(Any, field)}]
    mounts = (await node.volumes.set_up(pod))["c"]
    environment = ContainerEnvironment(node.pods_dir, node.objects)
    inputs = await inputs_of(environment, pod, ("10.0.0.1",))
    maker = ContainerMounts(node.pods_dir)
    supplied = ContainerAdditions(inputs, mounts)
    prepared = (await maker.provide(pod, pod.containers[0], supplied)).mounts
    target = node.pods_dir / "u" / "volume-subpaths" / "e" / "c" / "0"
    assert [mount.host_path for mount in prepared] == [
        str(target),
        str(node.pods_dir / "u" / "etc-hosts"),
    ]
    assert os.path.samestat(target.stat(), (node.path("empty-dir", "e") / "of" / "p").stat())
    await node.volumes.tear_down("u")
    assert node.mounts == []
    assert not target.exists()


async def test_a_sweep_is_followed_by_another_until_nothing_is_found(node: Node) -> None:
    again: list[str] = []
    swept: list[tuple[int, int]] = []
    directories = PodDirectories(
        node.pods_dir,
        again=lambda: again.append("again"),
        swept=lambda found, left: swept.append((found, left)),
    )
    foreign = node.pods_dir / "u" / "volumes" / "kubernetes.io~csi" / "v" / "data"
    foreign.mkdir(parents=True)
    kept = foreign / "file"
    kept.touch()
    for times, keep in ((1, ()), (2, ()), (2, ("u",))):
        directories.sweep_soon(keep)
        await directories.close()
        assert len(again) == times
    kept.unlink()
    for _ in range(2):
        directories.sweep_soon(())
        await directories.close()
    assert len(again) == 3
    assert swept == [(1, 1), (1, 1), (0, 0), (1, 0), (0, 0)]


async def test_a_pod_that_comes_while_the_threads_are_busy_keeps_its_directory(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    known: set[str] = set()
    removed: list[str] = []
    swept: list[tuple[int, int]] = []
    directories = PodDirectories(
        node.pods_dir,
        release=removed.append,
        swept=lambda found, left: swept.append((found, left)),
        desired=lambda uid: uid in known,
    )
    (node.pods_dir / "gone").mkdir(parents=True)
    directories.sweep_soon(())
    known.add("new")
    (node.pods_dir / "new").mkdir()
    await directories.close()
    assert removed == ["gone"]
    assert (node.pods_dir / "new").is_dir()
    assert swept == [(1, 0)]
    assert not caplog.records


async def test_disks_of_others_that_do_not_answer_hold_up_their_pods_only(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    monkeypatch.setattr(
        "kubeletpy.volumes.files.safe_path.prepare", lambda path, kind: answers.wait(30)
    )
    removed = {"name": "v", "hostPath": {"path": "/mnt/gone", "type": "Directory"}}
    held = [
        asyncio.ensure_future(node.volumes.set_up(pod_of(removed, uid=f"u{number}")))
        for number in range(40)
    ]
    try:
        async with asyncio.timeout(10):
            await asyncio.wait(held, timeout=0.2)
            await node.volumes.set_up(pod_of({"name": "v", "emptyDir": {}}))
        assert not any(each.done() for each in held)
    finally:
        answers.set()
    await asyncio.gather(*held)


async def test_no_thread_for_a_volume_is_a_problem_of_its_pod(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = pod_of({"name": "v", "hostPath": {"path": "/", "type": "Directory"}})

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(VolumeError, match=r"unmounted volumes=\[v\]: .*no thread can be made"):
            await node.volumes.set_up(pod)
    assert (await node.volumes.set_up(pod))["c"][0].host_path == "/"


async def test_a_thousand_volumes_are_counted_in_several_turns(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    counted = VolumeAccounts.worked

    def worked(self: VolumeAccounts, uid: str, outcomes: Any, now: float) -> None:
        sizes.append(len(outcomes))
        counted(self, uid, outcomes, now)

    monkeypatch.setattr(VolumeAccounts, "worked", worked)
    pod = pod_of(*({"name": f"v{n}", "emptyDir": {}} for n in range(1000)))
    await node.volumes.set_up(pod)
    assert sizes == [OUTCOMES_A_TURN, 1000 - OUTCOMES_A_TURN]
