"""Troubles with images, configuration, admission, exits and the API."""

from __future__ import annotations

import asyncio
from typing import Any

from kubeletpy.base.api.types import JSON
from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy_up.kinds.pods import _RUNTIME_CLASSES
from kubeletpy_up.requests import ADMIN
from tests.sim import scripts
from tests.sim.api import NODE
from tests.sim.troubles import NAME, Make, Trouble
from tests.sim.troubles_endings import running
from tests.sim.troubles_storage import begin
from tests.sim.user import PULL_SECRET, container, pod, sidecar
from tests.sim.world import World


def made(*containers: JSON, after: float = 0.0, **spec: Any) -> Make:
    """Create the pod of the trouble, which begins ``after`` seconds."""

    async def make(world: World) -> float:
        return after + await begin(
            world, pod(NAME, containers or [container("app", "run")], **spec)
        )

    return make


def no_pull(why: str, **spec: Any) -> Make:
    """Create a pod whose image cannot be pulled: the text is that of containerd."""

    async def make(world: World) -> float:
        async def refuse(image: str, auth: object) -> str:
            text = f'failed to pull and unpack image "{image}": failed to resolve image: {why}'
            raise CRIError("PullImage", text, target=image)

        setattr(world.runtime, "pull_image", refuse)  # noqa: B010
        return await begin(world, pod(NAME, [container("app", "run", scripts.REMOTE)], **spec))

    return make


def no_sandbox(why: str) -> Make:
    """Create a pod with a RuntimeClass whose handler the runtime does not have."""

    async def make(world: World) -> float:
        body = {"metadata": {"name": "gold"}, "handler": "gold"}
        world.registry.create(ADMIN, _RUNTIME_CLASSES, body)
        await asyncio.sleep(1)
        world.runtime.refuses = lambda config: why
        return await begin(world, pod(NAME, [container("app", "run")], runtimeClassName="gold"))

    return make


def variable(kind: str, name: str, key: str) -> JSON:
    """A container with an environment variable from a configMap or a secret."""
    source = {kind: {"name": name, "key": key}}
    return container("app", "run", env=[{"name": "A", "valueFrom": source}])


def mounting(**source: Any) -> Make:
    """Create a pod with such a volume."""
    mounted = container("app", "run", volumeMounts=[{"name": "v", "mountPath": "/v"}])
    return made(mounted, volumes=[{"name": "v", **source}])


def answering(code: int, text: bytes, **spec: Any) -> Make:
    """Create a pod whose probes and hooks run a command with that result."""

    async def make(world: World) -> float:
        world.runtime.commands["check"] = (0.0, cri.ExecSyncResponse(exit_code=code, stdout=text))
        return await begin(world, pod(NAME, **spec))

    return make


CHECK: JSON = {"exec": {"command": ["check", "db"]}}
PROBE: JSON = {**CHECK, "periodSeconds": 1, "failureThreshold": 1000}


async def _no_key(world: World) -> float:
    world.user.set_config_map("there", {"x": "y"})
    return await begin(world, pod(NAME, [variable("configMapKeyRef", "there", "zz")]))


async def _no_file_key(world: World) -> float:
    world.user.set_config_map("there", {"x": "y"})
    items = [{"key": "zz", "path": "zz"}]
    return await mounting(configMap={"name": "there", "items": items})(world)


async def _port(world: World) -> float:
    port = container("app", "run", ports=[{"containerPort": 80, "hostPort": 8080}])
    world.user.create(pod("holder", [port]))
    await world.converges(60)
    return await begin(world, pod(NAME, [port]))


async def _taint(world: World, key: str = "maintenance") -> None:
    taints = [{"key": key, "value": "now", "effect": "NoExecute"}]
    world.registry.patch(ADMIN, "nodes", NODE, {"spec": {"taints": taints}})
    await asyncio.sleep(3)


async def _tainted(world: World) -> float:
    await _taint(world)
    return await begin(world, pod(NAME, [container("app", "run")]))


async def _deleted_for_taint(world: World) -> float:
    await running(world, pod(NAME, [container("app", "stubborn")], grace=600))
    await _taint(world)
    world.user.delete(NAME)
    return world.clock.now()


async def _stop_hangs(world: World) -> float:
    await running(world, pod(NAME, [container("app", "run")], grace=2))

    async def hang(container_id: str, timeout: int) -> None:
        await asyncio.sleep(1e6)

    setattr(world.runtime, "stop_container", hang)  # noqa: B010
    world.user.delete(NAME)
    return world.clock.now()


async def _runtime_lost(world: World) -> float:
    await running(world, pod(NAME, [container("app", "run")]))
    world.runtime_down()
    return world.clock.now()


async def _api_lost(world: World) -> float:
    await running(world, pod(NAME, [container("app", "run")], restart="Never"))
    world.api_down()
    world.runtime.kill_container(world.runtime.running()[0], 3)
    return world.clock.now()


async def _restarted_agent(world: World) -> float:
    await running(world, pod(NAME, [container("app", "stubborn")], grace=600))
    world.user.delete(NAME)
    began = world.clock.now()
    await asyncio.sleep(30)
    await world.kill()
    world.start()
    return began


async def _sandbox_hangs(world: World) -> float:
    async def hang(config: object) -> str:
        await asyncio.sleep(1e6)
        return ""

    setattr(world.runtime, "run_pod_sandbox", hang)  # noqa: B010
    return await begin(world, pod(NAME, [container("app", "run")]))


async def _queued_pull(world: World) -> float:
    for what in ("run143", "stubborn", "slowstop"):
        world.user.create(pod(what, [container("app", what, scripts.SLOW)]))
        await asyncio.sleep(1)
    return await begin(world, pod(NAME, [container("app", "run", scripts.SLOW)]))


TROUBLES = (
    Trouble(
        "registry-that-refuses-the-connection",
        no_pull(
            'failed to do request: Head "https://127.0.0.1:1/v2/none/manifests/1": dial tcp '
            "127.0.0.1:1: connect: connection refused"
        ),
        drawn=(
            "pull image remote.test",
            "connect: connection refused",
            "back-off",
            "image backoff",
        ),
    ),
    Trouble("no-such-tag", no_pull("r.example/app:nope: not found")),
    Trouble(
        "registry-that-requires-credentials",
        no_pull(
            "pull access denied, repository does not exist or may require authorization: "
            "authorization failed: no basic auth credentials"
        ),
    ),
    Trouble(
        "pull-secret-that-does-not-exist",
        no_pull("401 Unauthorized", imagePullSecrets=[{"name": "regcred"}]),
    ),
    Trouble(
        "pull-secret-for-another-registry",
        no_pull("401 Unauthorized", imagePullSecrets=[{"name": PULL_SECRET}]),
    ),
    Trouble(
        "name-that-no-image-can-have",
        made({**container("app", "run"), "image": "UPPER case"}),
        drawn=("look up image UPPER", "  failed: Failed to apply default", "image  app"),
    ),
    Trouble(
        "image-that-may-not-be-pulled",
        made(container("app", "run", scripts.REMOTE, imagePullPolicy="Never")),
    ),
    Trouble(
        "image-that-waits-for-others",
        _queued_pull,
        lasts=10.0,
        settings={"maxParallelImagePulls": 1, "serializeImagePulls": False},
    ),
    Trouble(
        "container-that-keeps-failing",
        made(container("app", "fail")),
        drawn=("StartContainer app", "back-off app", "crash backoff  app"),
    ),
    Trouble(
        "container-that-runs-again-after-failures", made(container("app", "flakyrun")), lasts=60.0
    ),
    Trouble(
        "container-that-has-ended-well",
        made(container("job", "done"), container("app", "run"), restart="OnFailure"),
    ),
    Trouble("pod-that-has-failed", made(container("app", "failslow"), restart="Never", after=12)),
    Trouble(
        "program-that-does-not-exist",
        made(container("app", "badstart")),
        drawn=("StartContainer app", 'exec: "/nope"', "back-off app", "crash backoff"),
    ),
    Trouble(
        "poststart-hook-that-fails",
        answering(
            7, b"no database", containers=[container("app", "run", lifecycle={"postStart": CHECK})]
        ),
        drawn=("postStart hook app", "  failed: ", "StopContainer app", "crash backoff  app"),
    ),
    Trouble(
        "readiness-probe-that-fails",
        answering(1, b"no route", containers=[container("app", "run", readinessProbe=PROBE)]),
    ),
    Trouble(
        "sidecar-whose-startup-probe-fails",
        answering(
            1,
            b"no route",
            containers=[container("app", "run")],
            init=[{**sidecar("proxy"), "startupProbe": PROBE}, container("migrate", "done")],
        ),
        drawn=("StartContainer proxy", "not ready yet", "probe  proxy  for", "no route"),
    ),
    Trouble(
        "readiness-gate-that-nobody-opens",
        made(readinessGates=[{"conditionType": "example.com/open"}]),
    ),
    Trouble(
        "configmap-that-does-not-exist",
        made(variable("configMapKeyRef", "nope", "a")),
        drawn=("CreateContainer app", "  failed: CreateContainerConfigError", "start error"),
    ),
    Trouble("key-that-the-configmap-does-not-have", _no_key),
    Trouble(
        "volume-of-a-secret-that-does-not-exist",
        mounting(secret={"secretName": "db"}),
        drawn=("volumes", '  failed: volume "v": secret "db" not found', "volume"),
    ),
    Trouble("volume-of-a-key-that-does-not-exist", _no_file_key),
    Trouble(
        "trust-bundle-without-its-feature-gate",
        mounting(projected={"sources": [{"clusterTrustBundle": {"name": "x", "path": "x"}}]}),
        settings={"featureGates": {"ClusterTrustBundleProjection": False}},
    ),
    Trouble(
        "image-that-runs-as-root",
        made(container("app", "run", securityContext={"runAsNonRoot": True})),
    ),
    Trouble(
        "runtime-without-the-handler-containerd",
        no_sandbox('failed to get sandbox runtime: no runtime for "gold" is configured'),
        drawn=("RunPodSandbox attempt 0", "no runtime for", "retry"),
    ),
    Trouble(
        "runtime-without-the-handler-cri-o",
        no_sandbox("failed to find runtime handler gold from runtime list map[runc:0xc0]"),
    ),
    Trouble("sandbox-that-is-never-created", _sandbox_hangs),
    Trouble(
        "host-port-that-another-pod-has",
        _port,
        drawn=("it was never Ready", "admission", "  failed: NodePorts: "),
    ),
    Trouble("taint-that-it-does-not-tolerate", _tainted),
    Trouble(
        "more-cpu-than-the-node-has",
        made(container("app", "run", resources={"requests": {"cpu": "900"}})),
    ),
    Trouble("deleted-for-a-taint", _deleted_for_taint),
    Trouble("runtime-that-hangs-while-it-stops-a-container", _stop_hangs),
    Trouble("pod-that-ends-through-a-restart-of-the-agent", _restarted_agent, lasts=20.0),
    Trouble("runtime-that-is-lost-while-the-pod-runs", _runtime_lost),
    Trouble("api-that-is-lost-while-the-pod-ends", _api_lost),
)
