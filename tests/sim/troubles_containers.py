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
    Trouble("poststart-hook-that-does-not-end", _post_start_hangs),
    Trouble("liveness-probe-that-fails-again-and-again", _no_pulse, lasts=70.0),
    Trouble("startup-probe-that-never-succeeds", _never_up),
    Trouble("init-container-that-runs-on", _init_runs_on),
    Trouble(
        "only-init-container-keeps-failing",
        _only_init_fails,
        drawn=("StartContainer up", "back-off up", "crash backoff  up"),
    ),
    Trouble("restart-rule-keeps-a-container-restarting", _rules),
    Trouble("container-that-failed-and-is-not-restarted", _one_stays_down),
    Trouble("init-container-that-failed-for-good", _init_fails),
    Trouble("runtime-without-user-namespaces", _user_namespace),
    Trouble("image-volume-whose-image-is-in-no-registry", _image_volume),
    Trouble("image-volume-that-may-not-be-pulled", _image_volume_never),
    Trouble("image-volume-that-is-pulled-slowly", _image_volume_slow, lasts=12.0),
    Trouble("env-file-that-nobody-wrote", _no_env_file),
    Trouble("env-file-without-the-key", _no_env_key),
    Trouble("debug-container-whose-image-is-in-no-registry", _debug_image),
    Trouble("debug-container-whose-program-does-not-start", _debug_program),
)
