"""Random actions of users in a soak: create, delete in all ways, resize, change objects.

Whatever a failed request leaves undone stays undone: an unavailable API is no reason to stop.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.manifests import NAMESPACE
from bench.soak.pods import SHARED, container, shared_objects, some_pod, static_pod
from bench.stand import Stand
from bench.watching import REMOVED
from kubeletpy.base.api.types import JSON
from kubeletpy.kubeapi.errors import ApiError, Conflict, NotFound
from kubeletpy.kubeapi.protocol import CONFIGMAPS, PODS, SECRETS
from kubeletpy.pods.pod import CONFIG_MIRROR

MOST = 25
EVERY = 0.7
STATIC = 3
GRACES = (None, None, None, 0, 1, 2)
"""For deletions, in seconds: None is the pod's own grace period, 0 is by force."""


class Churn:
    """``counts`` records what was done."""

    def __init__(self, stand: Stand, draw: random.Random, forced: Callable[[str], None]) -> None:
        """``forced`` is called with the uids of pods that are removed by force."""
        self._stand, self._draw = stand, draw
        self._forced = forced
        self._numbers = itertools.count(1)
        self._group: asyncio.TaskGroup | None = None
        self.manifests = stand.directory / "manifests"
        self.counts: Counter[str] = Counter()

    async def prepare(self) -> None:
        """Create the objects that pods mount."""
        config, secret = shared_objects()
        await self._stand.api.create(CONFIGMAPS, config, NAMESPACE)
        await self._stand.api.create(SECRETS, secret, NAMESPACE)

    async def run(self) -> None:
        """Do random actions at random intervals, until cancelled."""
        kinds: dict[str, tuple[int, Callable[[], Awaitable[None]]]] = {
            "create": (8, self._create),
            "delete": (6, self._delete),
            "create and delete": (1, self._flash),
            "recreate": (2, self._recreate),
            "resize": (3, self._resize),
            "config": (2, self._config),
            "static": (2, self._static),
            "debug": (1, self._debug),
        }
        weights = [weight for weight, _ in kinds.values()]
        async with asyncio.TaskGroup() as self._group:
            while True:
                await asyncio.sleep(self._draw.expovariate(1 / EVERY))
                what = self._draw.choices(list(kinds), weights)[0]
                self._group.create_task(self._tried(what, kinds[what][1]))

    async def remove_all(self) -> None:
        """Delete everything, with each pod's own grace period."""
        for file in self.manifests.iterdir():
            file.unlink()
        for name, found in list(self._stand.pods.latest.items()):
            if not _is_mirror(found):
                await self._remove(name, None)

    async def _tried(self, what: str, do: Callable[[], Awaitable[None]]) -> None:
        try:
            await do()
            self.counts[what] += 1
        except ApiError as error:
            self.counts[f"{what}: {type(error).__name__}"] += 1

    def _names(self, *, deleted: bool = False) -> list[str]:
        """Names of pods, without mirror pods."""
        return [
            name
            for name, found in self._stand.pods.latest.items()
            if not _is_mirror(found) and bool(found["metadata"].get("deletionTimestamp")) == deleted
        ]

    def _some(self, kind: str = "") -> str | None:
        names = [name for name in self._names() if kind in name]
        return self._draw.choice(names) if names else None

    async def _create(self) -> None:
        if len(self._stand.pods.latest) < MOST:
            await self._make(some_pod(f"p{next(self._numbers)}", self._draw))

    async def _make(self, made: JSON) -> None:
        await self._stand.api.create(PODS, made, NAMESPACE)

    async def _remove(self, name: str, grace: int | None) -> None:
        """Remove the current pod of that name; it is no error if there is none."""
        if (found := self._stand.pods.latest.get(name)) is None:
            return
        uid = found["metadata"]["uid"]
        if grace == 0:
            self._forced(uid)
        try:
            await self._stand.api.delete(PODS, name, NAMESPACE, grace_period_seconds=grace, uid=uid)
        except (NotFound, Conflict):
            return

    async def _delete(self) -> None:
        if (name := self._some()) is not None:
            await self._remove(name, self._draw.choice(GRACES))
            if self._draw.random() < 0.1:
                await self._remove(name, self._draw.choice([0, 1]))

    async def _flash(self) -> None:
        """A pod that is deleted right after it is created, or soon after."""
        made = some_pod(f"p{next(self._numbers)}", self._draw)
        await self._make(made)
        await asyncio.sleep(self._draw.choice([0.01, 0.1, 0.3]))
        await self._remove(made["metadata"]["name"], self._draw.choice(GRACES))

    async def _recreate(self) -> None:
        """A new pod with the name of a deleted one, immediately."""
        if (name := self._some()) is None:
            return
        self._stand.pods.forget(name)
        grace = self._draw.choice(GRACES)
        await self._remove(name, grace)
        await self._stand.pods.until(name, REMOVED)
        again = some_pod(name.partition("-")[0], self._draw)
        await self._make({**again, "metadata": {**again["metadata"], "name": name}})

    async def _resize(self) -> None:
        if (name := self._some("resizable")) is None:
            return
        cpu, memory = self._draw.choice([10, 20, 50]), self._draw.choice([8, 12, 16])
        sizes = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
        limits = {"cpu": f"{cpu * 5}m", "memory": f"{memory * 4}Mi"}
        main = {"name": "main", "resources": {"requests": sizes, "limits": limits}}
        patch = {"spec": {"containers": [main]}}
        await self._stand.api.patch(PODS, name, patch, NAMESPACE, subresource="resize")

    async def _config(self) -> None:
        change = {"data": {"a": str(self._draw.random())}}
        await self._stand.api.patch(CONFIGMAPS, SHARED, change, NAMESPACE)
        if (name := self._some()) is not None:
            note = {"metadata": {"annotations": {"soak/note": str(self._draw.random())}}}
            await self._stand.api.patch(PODS, name, note, NAMESPACE)

    async def _static(self) -> None:
        """A manifest appears, vanishes, or becomes another pod of the same name."""
        name = f"static{self._draw.randrange(STATIC)}"
        file = self.manifests / f"{name}.json"
        if file.exists() and self._draw.random() < 0.6:
            file.unlink()
            return
        made = static_pod(name)
        # never the same twice: a manifest that comes back is its old pod again, with a start more
        made["metadata"]["labels"] = {"version": str(next(self._numbers))}
        await asyncio.to_thread(_write, file, json.dumps(made))

    async def _debug(self) -> None:
        """Add an ephemeral container, like `kubectl debug`."""
        if (name := self._some("plain")) is None:
            return
        script = self._draw.choice(["exit 0", "trap 'exit 0' TERM; sleep 1000 & wait $!"])
        own = {"name": f"debug{next(self._numbers)}", **_without_name(container(script=script))}
        own.pop("resources")
        patch = {"spec": {"ephemeralContainers": [own]}}
        await self._stand.api.patch(PODS, name, patch, NAMESPACE, subresource="ephemeralcontainers")


def _without_name(obj: JSON) -> JSON:
    return {key: value for key, value in obj.items() if key != "name"}


def _is_mirror(found: JSON) -> bool:
    return CONFIG_MIRROR in (found["metadata"].get("annotations") or {})


def _write(file: Path, text: str) -> None:
    """Replace the file by another one, as editors and configuration tools do."""
    draft = file.with_name(f".{file.name}")
    draft.write_text(text)
    draft.replace(file)
