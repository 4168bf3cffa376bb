"""Troubles with restart rules, user namespaces, image volumes, env files, debug containers."""

from __future__ import annotations

import asyncio

from kubeletpy.api.types import JSON
from tests.sim import scripts
from tests.sim.troubles import NAME, Trouble
from tests.sim.troubles_storage import begin
from tests.sim.user import container, pod
from tests.sim.world import World


async def _rules(world: World) -> float:
    rule = {"action": "Restart", "exitCodes": {"operator": "In", "values": [3]}}
    made = container("app", "fail", restartPolicy="Never", restartPolicyRules=[rule])
    return await begin(world, pod(NAME, [made], restart="Never"))


async def _one_stays_down(world: World) -> float:
    made = [container("app", "run"), container("worker", "failslow", restartPolicy="Never")]
    began = await begin(world, pod(NAME, made))
    return began + 13  # it runs for 12 s


async def _init_fails(world: World) -> float:
    init = [container("setup", "failslow")]
    began = await begin(world, pod(NAME, [container("app", "run")], init=init, restart="Never"))
    return began + 13


async def _user_namespace(world: World) -> float:
    return await begin(world, pod(NAME, [container("app", "run")], hostUsers=False))


def _with_image(reference: str, **more: str) -> JSON:
    volume = {"name": "models", "image": {"reference": reference, **more}}
    mounts = [{"name": "models", "mountPath": "/models"}]
    return pod(NAME, [container("app", "run", volumeMounts=mounts)], volumes=[volume])


async def _image_volume(world: World) -> float:
    return await begin(world, _with_image(f"{scripts.MISSING}/weights:1"))


async def _image_volume_never(world: World) -> float:
    return await begin(world, _with_image(f"{scripts.REMOTE}/weights:1", pullPolicy="Never"))


async def _image_volume_slow(world: World) -> float:
    return await begin(world, _with_image(f"{scripts.SLOW}/weights:1"))


def _with_env_file() -> JSON:
    source = {"fileKeyRef": {"volumeName": "cfg", "path": "app.env", "key": "PORT"}}
    mounts = [{"name": "cfg", "mountPath": "/cfg"}]
    init = [container("setup", "doneslow", volumeMounts=mounts)]
    made = container("app", "run", env=[{"name": "PORT", "valueFrom": source}])
    return pod(NAME, [made], init=init, volumes=[{"name": "cfg", "emptyDir": {}}])


async def _no_env_file(world: World) -> float:
    began = await begin(world, _with_env_file())
    return began + 9  # its init container runs for 8 s


async def _no_env_key(world: World) -> float:
    began = await begin(world, _with_env_file())
    await asyncio.sleep(4)
    (directory,) = (world.root / "kubelet" / "pods").glob("*/volumes/*/cfg")
    (directory / "app.env").write_text("HOST='db'\n")
    return began + 9


async def _debug_image(world: World) -> float:
    world.user.create(pod(NAME, [container("app", "run")]))
    await world.converges(30)
    await asyncio.sleep(60)
    world.user.debug(NAME, container("debug", "tools", scripts.MISSING))
    return world.clock.now()


async def _debug_program(world: World) -> float:
    world.user.create(pod(NAME, [container("app", "run")]))
    await world.converges(30)
    await asyncio.sleep(60)
    world.user.debug(NAME, container("debug", "badstart"))
    return world.clock.now()


TROUBLES = (
    Trouble(
        name="a restart rule keeps a container restarting",
        kind="restart rules",
        make=_rules,
        what=("container app", "exit code 3"),
        waits=("app", "restart|backoff"),
        todo=("kubectl logs", "-c app"),
    ),
    Trouble(
        name="a container that failed and is not restarted",
        kind="restart rules",
        make=_one_stays_down,
        what=("container worker", "7", "not (re)?start|no restart|never restart"),
        waits=("worker",),
        todo=("kubectl logs", "-c worker"),
    ),
    Trouble(
        name="an init container that failed for good",
        kind="restart rules",
        make=_init_fails,
        what=("container setup", "7"),
        todo=("kubectl logs", "-c setup"),
    ),
    Trouble(
        name="a runtime without user namespaces",
        kind="user namespaces",
        make=_user_namespace,
        what=("user namespace|hostUsers", "runtime|handler"),
        waits=("user namespace|hostUsers",),
        todo=("hostUsers", "runtime|node|true"),
    ),
    Trouble(
        name="an image volume whose image is in no registry",
        kind="image volumes",
        make=_image_volume,
        what=("models", r"missing\.test/weights:1", "not found"),
        waits=("image",),
        todo=("image.*name|reference", "models|tag"),
    ),
    Trouble(
        name="an image volume that may not be pulled",
        kind="image volumes",
        make=_image_volume_never,
        what=("models", r"remote\.test/weights:1", "Never"),
        waits=("image",),
        todo=("IfNotPresent|load the image",),
    ),
    Trouble(
        name="an image volume that is pulled slowly",
        kind="image volumes",
        make=_image_volume_slow,
        what=(r"slow\.test/weights:1", "pulled"),
        waits=("image pull",),
        todo=("registry",),
        lasts=12.0,
    ),
    Trouble(
        name="an env file that nobody wrote",
        kind="env files",
        make=_no_env_file,
        what=("container app", r"app\.env", "cfg"),
        waits=(r"app\.env",),
        todo=("init container|write", r"app\.env|file|cfg"),
        wrong=("create it in namespace",),
    ),
    Trouble(
        name="an env file without the key",
        kind="env files",
        make=_no_env_key,
        what=("container app", r"app\.env", "PORT"),
        waits=("PORT",),
        todo=("PORT|key", r"app\.env|file|optional"),
        wrong=("create it in namespace",),
    ),
    Trouble(
        name="a debug container whose image is in no registry",
        kind="ephemeral containers",
        make=_debug_image,
        what=("debug", r"missing\.test/tools:1|not found"),
        waits=("debug",),
        todo=("image's name|debug",),
    ),
    Trouble(
        name="a debug container whose program does not start",
        kind="ephemeral containers",
        make=_debug_program,
        what=("debug", "failed to start task|StartError"),
        waits=("debug",),
        todo=("kubectl debug|debug container|command|program",),
    ),
)
