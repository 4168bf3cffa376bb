"""Fields that a runtime silently ignores are found by trying them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from kubeletpy.remote.errors import CRIError
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.runtime_manager.act.ignored_fields import NO_DEVICES, NO_PARTS, IgnoredFields


@dataclass
class Runtime:
    """A runtime that applies some fields, ignores the others, and may refuse a call."""

    devices: bool = True
    parts: bool = True
    refuses: str = ""
    removes: bool = True
    made: list[cri.ContainerConfig] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    async def create_container(self, sandbox: str, config: Any, sandbox_config: Any) -> str:
        assert sandbox == "sandbox-1"
        self.made.append(config)
        devices = [each.name for each in config.CDI_devices]
        parts = [mount.image_sub_path for mount in config.mounts if mount.image_sub_path]
        problem = self.refuses
        problem = problem or (f"unresolvable {devices[0]}" if devices and self.devices else "")
        problem = problem or (f"no {parts[0]} there" if parts and self.parts else "")
        if problem:
            raise CRIError("CreateContainer", problem)
        self.left.append(config.metadata.name)
        return str(config.metadata.name)

    async def remove_container(self, container_id: str) -> None:
        if not self.removes:
            raise CRIError("RemoveContainer", "busy")
        self.left.remove(container_id)


def config(*, devices: tuple[str, ...] = (), part: str = "", image: bool = False) -> Any:
    made = cri.ContainerConfig(command=["run"], labels={"l": "v"}, annotations={"a": "v"})
    made.metadata.name = "app"
    made.image.image = "i"
    made.envs.add(key="K", value=b"secret")
    made.linux.security_context.namespace_options.pid = cri.CONTAINER
    made.mounts.add(container_path="/plain", host_path="/x")
    for device in devices:
        made.CDI_devices.add(name=device)
    if part or image:
        made.mounts.add(container_path="/of", image=cri.ImageSpec(image="m"), image_sub_path=part)
    return made


async def why(tried: IgnoredFields, config: Any) -> str:
    return await tried.why("sandbox-1", config, cri.PodSandboxConfig())


@pytest.mark.parametrize(
    ("runtime", "desired", "stated", "trials"),
    [
        (Runtime(), config(), "", 0),
        (Runtime(devices=False, parts=False), config(image=True), "", 0),
        (Runtime(), config(devices=("v/c=0",), part="bin"), "", 2),
        (Runtime(devices=False), config(devices=("v/c=0", "v/c=1")), "v/c=0, v/c=1", 1),
        (Runtime(devices=False), config(part="bin"), "", 1),
        (Runtime(parts=False), config(part="bin"), "/of", 1),
        (Runtime(parts=False), config(devices=("v/c=0",)), "", 1),
        (Runtime(parts=False), config(devices=("v/c=0",), part="bin"), "/of", 2),
        (Runtime(refuses="no such image"), config(devices=("v/c=0",), part="bin"), "", 2),
    ],
)
async def test_trials_use_values_that_cannot_exist(
    runtime: Runtime, desired: Any, stated: str, trials: int
) -> None:
    found = await why(IgnoredFields(cast(Any, runtime)), desired)
    assert bool(found) is bool(stated)
    assert found in ("", f"{NO_DEVICES} {stated}", f"{NO_PARTS} {stated}")
    assert len(runtime.made) == trials
    assert runtime.left == []


async def test_a_trial_is_nobodys_container() -> None:
    runtime = Runtime(devices=False)
    await why(IgnoredFields(cast(Any, runtime)), config(devices=("v/c=0",), part="bin"))
    (trial,) = runtime.made
    assert trial.metadata.name == "app-trial"
    assert trial.image.image == "i"
    assert list(trial.command) == ["run"]
    assert trial.linux.security_context.namespace_options.pid == cri.CONTAINER
    assert not (trial.labels or trial.annotations or trial.envs or trial.mounts)
    (device,) = trial.CDI_devices
    assert device.name.startswith("kubeletpy.local/none=none-")


@pytest.mark.parametrize(("obeys", "stated"), [(True, ""), (False, f"{NO_DEVICES} v/c=0")])
async def test_a_conclusive_trial_is_not_repeated(obeys: bool, stated: str) -> None:
    """A trial causes a sync of its pod, which would then cause another trial."""
    runtime = Runtime(devices=obeys, removes=False)
    tried = IgnoredFields(cast(Any, runtime))
    for _ in range(2):
        assert await why(tried, config(devices=("v/c=0",))) == stated
    assert len(runtime.made) == 1


async def test_an_inconclusive_trial_is_repeated() -> None:
    runtime = Runtime(devices=False, refuses="out of space")
    tried = IgnoredFields(cast(Any, runtime))
    assert await why(tried, config(devices=("v/c=0",))) == ""
    runtime.refuses = ""
    assert await why(tried, config(devices=("v/c=0",)))
    assert len(runtime.made) == 2
