"""Discovery of a runtime's cgroup driver, on virtual time."""

from __future__ import annotations

import pytest

from kubeletpy.base.kubernetes_version import SUPPORTED, KubernetesVersion
from kubeletpy.metrics.registry import Metrics
from kubeletpy.remote.client import cgroup_driver
from kubeletpy.remote.errors import CRIError, Unavailable, Unimplemented
from kubeletpy.remote.generated import api_pb2 as cri
from tests.virtual_time import on_virtual_time, timed


def config_with(driver: cri.CgroupDriver) -> cri.RuntimeConfigResponse:
    """A runtime's response with that cgroup driver."""
    return cri.RuntimeConfigResponse(linux=cri.LinuxRuntimeConfiguration(cgroup_driver=driver))


class Runtime:
    """A runtime that gives these answers or errors in turn."""

    def __init__(self, *answers: cri.RuntimeConfigResponse | CRIError) -> None:
        self.left = list(answers)

    async def runtime_config(self) -> cri.RuntimeConfigResponse:
        answer = self.left.pop(0)
        if isinstance(answer, CRIError):
            raise answer
        return answer


DOWN = Unavailable("RuntimeConfig", "not yet")


@pytest.mark.parametrize(
    ("answers", "driver", "seconds"),
    [
        ([config_with(cri.CgroupDriver.SYSTEMD)], "systemd", 0),
        ([config_with(cri.CgroupDriver.CGROUPFS)], "cgroupfs", 0),
        ([cri.RuntimeConfigResponse()], None, 0),
        ([Unimplemented("RuntimeConfig")], None, 0),
        ([DOWN, DOWN, config_with(cri.CgroupDriver.CGROUPFS)], "cgroupfs", 4),
        ([DOWN, Unimplemented("RuntimeConfig")], None, 2),
    ],
)
@on_virtual_time
async def test_driver(
    answers: list[cri.RuntimeConfigResponse | CRIError], driver: str | None, seconds: float
) -> None:
    runtime = Runtime(*answers)
    got, took = await timed(cgroup_driver(runtime))  # type: ignore[arg-type]
    assert (got, took, runtime.left) == (driver, seconds, [])


@pytest.mark.parametrize(
    ("version", "until"),
    list(zip(SUPPORTED, ("1.36.0", "1.37.0", "1.38.0"), strict=True)),
)
@pytest.mark.parametrize(
    ("answer", "losing"),
    [
        (Unimplemented("RuntimeConfig"), 1),
        (cri.RuntimeConfigResponse(), 0),
        (config_with(cri.CgroupDriver.CGROUPFS), 0),
    ],
)
async def test_a_runtime_without_the_call_is_losing_support(
    answer: cri.RuntimeConfigResponse | CRIError,
    losing: int,
    version: KubernetesVersion,
    until: str,
) -> None:
    metrics = Metrics(version)
    await cgroup_driver(Runtime(answer), metrics.runtime.losing_support)  # type: ignore[arg-type]
    text = metrics.render().decode()
    assert text.count(f'\nkubelet_cri_losing_support{{version="{until}"}} 1\n') == losing
    assert text.count("\nkubelet_cri_losing_support{") == losing


@on_virtual_time
async def test_three_failures_are_an_error() -> None:
    runtime = Runtime(DOWN, DOWN, DOWN)
    with pytest.raises(Unavailable):
        await cgroup_driver(runtime)  # type: ignore[arg-type]
    assert runtime.left == []
