"""Troubles with restart rules, user namespaces, image volumes, env files, debug containers."""

from __future__ import annotations

import asyncio

from kubeletpy.base.api.types import JSON
from kubeletpy.remote.generated import api_pb2 as cri
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


async def _post_start_hangs(world: World) -> float:
    world.runtime.commands["wait-for"] = (1e6, cri.ExecSyncResponse())
    hook = {"postStart": {"exec": {"command": ["wait-for", "db:5432"]}}}
    made = [container("app", "run", lifecycle=hook), container("next", "run")]
    return await begin(world, pod(NAME, made))


async def _no_pulse(world: World) -> float:
    answer = cri.ExecSyncResponse(exit_code=1, stdout=b"no pulse")
    world.runtime.commands["pulse"] = (0.0, answer)
    probe = {"exec": {"command": ["pulse", "--now"]}, "periodSeconds": 1, "failureThreshold": 4}
    began = await begin(world, pod(NAME, [container("app", "run", livenessProbe=probe)]))
    return began + 4


async def _never_up(world: World) -> float:
    world.runtime.commands["up"] = (0.0, cri.ExecSyncResponse(exit_code=1))
    probe = {"exec": {"command": ["up"]}, "periodSeconds": 1, "failureThreshold": 10**6}
    return await begin(world, pod(NAME, [container("app", "run", startupProbe=probe)]))


async def _init_runs_on(world: World) -> float:
    return await begin(world, pod(NAME, [container("app", "run")], init=[container("up", "run")]))


async def _only_init_fails(world: World) -> float:
    return await begin(world, pod(NAME, [container("app", "run")], init=[container("up", "fail")]))


TROUBLES = (
    Trouble(
        name="a postStart hook that does not end",
        kind="hooks and probes",
        make=_post_start_hangs,
        what=("not running", "container app", "postStart", "wait-for db:5432", "nothing limits"),
        waits=("hook app", "wait-for db:5432"),
        todo=("wait-for db:5432", "time limit", "kubectl delete pod -n default web"),
        wrong=("--now",),
    ),
    Trouble(
        name="a liveness probe that fails again and again",
        kind="hooks and probes",
        make=_no_pulse,
        what=("container app", "liveness", "no pulse"),
        waits=("backoff app",),
        todo=("pulse --now", "after 4 failures", "no pulse", "kubectl logs"),
    ),
    Trouble(
        name="a startup probe that never succeeds",
        kind="hooks and probes",
        make=_never_up,
        what=("container app", "startup"),
        waits=("probe app",),
        todo=("command 'up'", "1000000 failures", r"\d+ so far", "kubectl logs"),
    ),
    Trouble(
        name="an init container that runs on",
        kind="hooks and probes",
        make=_init_runs_on,
        what=("initializing", "container up"),
        waits=("init container up",),
        todo=("kubectl logs", "-c up", "nothing limits", "activeDeadlineSeconds"),
    ),
    Trouble(
        name="the only init container keeps failing",
        kind="hooks and probes",
        make=_only_init_fails,
        what=("^not running: init container up", "exit code 3"),
        waits=("backoff up",),
        todo=("kubectl logs", "-c up"),
    ),
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
