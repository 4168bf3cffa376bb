"""The people and controllers of a simulated cluster: they make, change and delete pods."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Sequence
from typing import Any

from kubeletpy.base.api.quantity import milli_value
from kubeletpy.base.api.types import JSON
from kubeletpy.pods.pod import CONFIG_MIRROR
from kubeletpy_up.errors import ApiError
from kubeletpy_up.registry.registry import Registry
from kubeletpy_up.requests import ADMIN, DeleteOptions
from tests.sim import scripts
from tests.sim.api import NODE
from tests.sim.convergence import TOO_BIG
from tests.sim.history import History
from tests.sim.truth import Truth

NAMESPACE = "default"
PULL_SECRET = "pull-secret"


def container(name: str, what: str, host: str = scripts.LOCAL, **more: Any) -> JSON:
    """A container of an image that behaves so."""
    return {"name": name, "image": f"{host}/{what}:1", **more}


def sidecar(name: str, what: str = "run") -> JSON:
    """A restartable init container."""
    return container(name, what, restartPolicy="Always")


def resources(cpu: str, memory: str = "64Mi") -> JSON:
    """Requests, and limits twice the cpu."""
    limits = {"cpu": f"{2 * milli_value(cpu)}m", "memory": memory}
    return {"requests": {"cpu": cpu, "memory": "32Mi"}, "limits": limits}


def pod(
    name: str,
    containers: Sequence[JSON],
    *,
    init: Sequence[JSON] = (),
    restart: str = "Always",
    grace: int = 5,
    **spec: Any,
) -> JSON:
    """A pod bound to the node."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "nodeName": NODE,
            "restartPolicy": restart,
            "terminationGracePeriodSeconds": grace,
            "containers": list(containers),
            **({"initContainers": list(init)} if init else {}),
            **spec,
        },
    }


def pull_secret() -> JSON:
    """The credentials of scripts.SECRET."""
    auth = {"username": scripts.USERNAME, "password": scripts.PASSWORD}
    data = json.dumps({"auths": {scripts.SECRET: auth}}).encode()
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": PULL_SECRET, "namespace": NAMESPACE},
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": base64.b64encode(data).decode()},
    }


class User:
    """Acts as an administrator, at once, without faults: what is done is done."""

    def __init__(self, registry: Registry, truth: Truth, history: History) -> None:
        self._registry = registry
        self._truth = truth
        self._history = history
        self._made = 0

    def create(self, obj: JSON) -> JSON:
        """Create a pod; the object."""
        made = self._registry.create(ADMIN, "pods", obj, NAMESPACE)
        self._note(f"create pod {made['metadata']['name']} {made['metadata']['uid'][:8]}")
        return made

    def create_secret(self, obj: JSON) -> None:
        """Create a secret."""
        self._registry.create(ADMIN, "secrets", obj, NAMESPACE)

    def set_config_map(self, name: str, data: dict[str, str]) -> None:
        """Create or change a configMap."""
        if self._registry.find("configmaps", NAMESPACE, name) is None:
            obj = {"metadata": {"name": name}, "data": data}
            self._registry.create(ADMIN, "configmaps", obj, NAMESPACE)
        else:
            self._registry.patch(ADMIN, "configmaps", name, {"data": data}, NAMESPACE)

    def get(self, name: str) -> JSON | None:
        """A pod, None when there is none."""
        return self._registry.find("pods", NAMESPACE, name)

    def pods(self) -> list[JSON]:
        """All pods that the node's own agent did not make."""
        objects = (entry.object for _, entry in self._registry.store.entries("pods"))
        return [
            obj
            for obj in objects
            if CONFIG_MIRROR not in (obj["metadata"].get("annotations") or {})
        ]

    def delete(self, name: str, grace: int | None = None) -> None:
        """Delete a pod; grace 0 is by force."""
        obj = self.get(name)
        if obj is None:
            return
        if truth := self._truth.pods.get(obj["metadata"]["uid"]):  # a mirror pod has none
            truth.forced = truth.forced or grace == 0
            truth.released = truth.terminal
        self._note(f"delete pod {name} grace={grace}")
        self._registry.delete(
            ADMIN, "pods", name, NAMESPACE, DeleteOptions(grace_period_seconds=grace)
        )

    def set_image(self, name: str, index: int, image: str) -> None:
        """Change the image of a regular container."""
        self._note(f"pod {name}: container {index} gets image {image}")
        self._replace(name, f"/spec/containers/{index}/image", image)

    def resize(self, name: str, index: int, new: JSON) -> None:
        """Change the resources of a regular container."""
        self._note(f"pod {name}: container {index} is resized to {new}")
        self._replace(name, f"/spec/containers/{index}/resources", new, "resize")

    def resize_volume(self, name: str, index: int, size: str) -> None:
        """Change the size of a volume in memory."""
        self._note(f"pod {name}: volume {index} is resized to {size}")
        self._replace(name, f"/spec/volumes/{index}/emptyDir/sizeLimit", size, "resize")

    def resize_whole(self, name: str, new: JSON) -> None:
        """Change the resources of a pod as a whole."""
        self._note(f"pod {name} is resized to {new}")
        self._replace(name, "/spec/resources", new, "resize")

    def _replace(self, name: str, path: str, new: Any, subresource: str = "") -> None:
        patch = [{"op": "replace", "path": path, "value": new}]
        self._registry.patch(
            ADMIN,
            "pods",
            name,
            patch,
            NAMESPACE,
            patch_type="application/json-patch+json",
            subresource=subresource,
        )

    def annotate(self, name: str, value: str) -> None:
        """Change an annotation, which must change nothing in the runtime."""
        self._note(f"pod {name}: annotation {value}")
        patch = {"metadata": {"annotations": {"example.com/note": value}}}
        self._registry.patch(ADMIN, "pods", name, patch, NAMESPACE)

    def debug(self, name: str, ephemeral: JSON) -> None:
        """Add an ephemeral container."""
        self._note(f"pod {name}: ephemeral container {ephemeral['name']}")
        patch = {"spec": {"ephemeralContainers": [ephemeral]}}
        self._registry.patch(
            ADMIN, "pods", name, patch, NAMESPACE, subresource="ephemeralcontainers"
        )

    def _note(self, what: str) -> None:
        self._history.note("user", what)


class RandomUser:
    """Does one thing after the other, by the seed."""

    def __init__(self, user: User, rng: random.Random) -> None:
        self._user = user
        self._rng = rng
        self._made = 0
        self._free_names: list[str] = []

    def act(self, max_pods: int) -> None:
        """Do one thing."""
        rng, pods = self._rng, self._user.pods()
        names = [p["metadata"]["name"] for p in pods]
        if not pods or (len(pods) < max_pods and rng.random() < 0.4):
            self._create(names)
            return
        chosen = rng.choice(pods)
        name = chosen["metadata"]["name"]
        point = rng.random()
        try:
            if point < 0.35:
                self._delete(name)
            elif point < 0.65:
                self._update(chosen)
            elif point < 0.8:
                self._user.annotate(name, str(rng.randrange(10**6)))
            else:
                self._debug(chosen)
        except ApiError as refusal:
            self._user._note(f"refused: {refusal.message[:100]}")

    def _create(self, taken: list[str]) -> None:
        rng = self._rng
        again = [name for name in self._free_names if name not in taken]
        if again and rng.random() < 0.5:
            name = rng.choice(again)
        else:
            self._made += 1
            name = f"pod{self._made}"
            self._free_names.append(name)
        self._user.create(random_pod(rng, name))

    def _delete(self, name: str) -> None:
        self._user.delete(name, self._rng.choice((None, None, None, 0, 1, 2, 20)))

    def _update(self, obj: JSON) -> None:
        rng = self._rng
        containers = obj["spec"]["containers"]
        index = rng.randrange(len(containers))
        if containers[index].get("resources") and rng.random() < 0.6:
            new = resources(rng.choice(SIZES), rng.choice(("64Mi", "96Mi")))
            self._user.resize(obj["metadata"]["name"], index, new)
            return
        image = containers[index]["image"]
        base, _, version = image.rpartition(":")
        if rng.random() < 0.3:
            base = f"{scripts.LOCAL}/{rng.choice(('run', 'fail', 'run143', 'stubborn'))}"
        image = f"{base}:{2 if version == '1' else 1}"
        self._user.set_image(obj["metadata"]["name"], index, image)

    def _debug(self, obj: JSON) -> None:
        count = len(obj["spec"].get("ephemeralContainers") or ())
        if count >= 2:
            return
        what = self._rng.choice(("run", "done", "fail"))
        self._user.debug(obj["metadata"]["name"], container(f"debug{count}", what))


SIZES = ("100m", "150m", "200m", "200m", TOO_BIG)

ALWAYS = ("run", "run", "run", "run143", "stubborn", "slowstop", "fail", "failslow", "flakyrun")
ENDING = ("done", "doneslow", "fail", "failslow", "flaky", "instant", "run", "stubborn")
SIDECARS = ("run", "run", "stubborn", "flakyrun")
INITS = ("done", "done", "done", "doneslow", "flaky", "fail", "instant")


def random_pod(rng: random.Random, name: str) -> JSON:
    """Any kind of pod."""
    restart = rng.choice(("Always", "Always", "OnFailure", "Never"))
    kinds = ALWAYS if restart == "Always" else ENDING
    containers = [
        container(f"c{index}", rng.choice(kinds), _host(rng))
        for index in range(rng.choice((1, 1, 2, 3)))
    ]
    for each in containers:
        if rng.random() < 0.4:
            each["resources"] = resources("100m")
    init: list[JSON] = []
    if rng.random() < 0.4:
        for index in range(rng.choice((1, 2))):
            if rng.random() < 0.35:
                init.append(sidecar(f"i{index}", rng.choice(SIDECARS)))
            else:
                init.append(container(f"i{index}", rng.choice(INITS), _host(rng)))
    spec: JSON = {}
    if rng.random() < 0.1:
        spec["hostNetwork"] = True
    if rng.random() < 0.5:
        spec["imagePullSecrets"] = [{"name": PULL_SECRET}]
    if rng.random() < 0.06:
        spec["activeDeadlineSeconds"] = rng.randrange(5, 60)
    if rng.random() < 0.05:
        containers[0]["image"] = f"{scripts.LOCAL}/badstart:1"
    return pod(
        name, containers, init=init, restart=restart, grace=rng.choice((1, 2, 5, 30)), **spec
    )


def _host(rng: random.Random) -> str:
    return rng.choice(
        (scripts.LOCAL,) * 6 + (scripts.REMOTE, scripts.REMOTE, scripts.SLOW, scripts.SECRET)
        if rng.random() > 0.03
        else (scripts.MISSING,)
    )
