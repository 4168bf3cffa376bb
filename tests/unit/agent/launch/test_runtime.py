"""Information that the runtime reports at the start, and limits on its size."""

from __future__ import annotations

import pytest

from kubeletpy.agent.launch.runtime import LONGEST_HANDLER, MOST_HANDLERS, query_runtime
from kubeletpy.remote.generated import api_pb2 as cri
from kubeletpy.remote.simple import PartialRuntime
from kubeletpy.runtime_manager.read.status_reader import health_from_conditions


class Boasting(PartialRuntime):
    """A runtime with megabytes of text and thousands of handlers."""

    async def version(self) -> cri.VersionResponse:
        return cri.VersionResponse(runtime_name="a\n\x1b[2Jb" * 100_000, runtime_version="1.2.3")

    async def status(self, verbose: bool = False) -> cri.StatusResponse:
        names = ["", "x" * (LONGEST_HANDLER + 1), *(f"h{number % 3000}" for number in range(9000))]
        return cri.StatusResponse(
            runtime_handlers=[cri.RuntimeHandler(name=name) for name in names]
        )


async def test_what_the_runtime_reports_fits_a_node(caplog: pytest.LogCaptureFixture) -> None:
    info = await query_runtime(Boasting())
    assert info.name.startswith("a [2Jba [2Jb")
    assert len(info.name) <= 256
    assert info.version == "1.2.3"
    assert [handler.get("name") for handler in info.handlers] == [
        "",
        *(f"h{number}" for number in range(MOST_HANDLERS - 1)),
    ]
    (warning,) = caplog.records
    assert vars(warning)["reported"] == 3002
    assert vars(warning)["shown"] == MOST_HANDLERS


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        ({}, set()),
        ({"supplemental_groups_policy": True}, set()),
        ({"mount_options": True}, {"mount_options"}),
        (
            {"mount_options": True, "user_namespaces_host_network": True},
            {"mount_options", "user_namespaces_host_network"},
        ),
    ],
)
async def test_features_of_the_runtime_are_read(
    features: dict[str, bool], expected: set[str]
) -> None:
    class Featured(Boasting):
        async def status(self, verbose: bool = False) -> cri.StatusResponse:
            return cri.StatusResponse(features=cri.RuntimeFeatures(**features))

    info = await query_runtime(Featured())
    assert info.features == expected
    assert info.supplemental_groups_policy is bool(features.get("supplemental_groups_policy"))


def test_a_condition_of_megabytes_is_cut() -> None:
    long = "x" * 1_000_000
    condition = cri.RuntimeCondition(type="RuntimeReady", reason=long, message=f"\x1b{long}")
    assert len(health_from_conditions([condition]).message) < 9000
