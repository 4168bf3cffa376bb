"""The registration service of a real server on a socket, and answers that are refused."""

from __future__ import annotations

from pathlib import Path

import grpc
import grpc.aio
import pytest

from kubeletpy.remote.generated import pluginregistration_pb2 as pb
from kubeletpy.resources.plugins import plugin_manager
from kubeletpy.resources.plugins.model import PluginInfo, PluginRefused
from kubeletpy.resources.plugins.plugin_manager import SocketRegistrations, read_info

STAMP = (1, 1)
Context = grpc.aio.ServicerContext[pb.RegistrationStatus, pb.RegistrationStatusResponse]


async def test_a_conversation(tmp_path: Path) -> None:
    heard: list[pb.RegistrationStatus] = []

    async def info(_: pb.InfoRequest, __: object) -> pb.PluginInfo:
        return pb.PluginInfo(
            type="CSIPlugin", name="x", endpoint="/run/x.sock", supported_versions=["1.0.0"]
        )

    async def notify(status: pb.RegistrationStatus, _: Context) -> pb.RegistrationStatusResponse:
        heard.append(status)
        return pb.RegistrationStatusResponse()

    server = grpc.aio.server()
    methods = {
        "GetInfo": grpc.unary_unary_rpc_method_handler(
            info, pb.InfoRequest.FromString, pb.PluginInfo.SerializeToString
        ),
        "NotifyRegistrationStatus": grpc.unary_unary_rpc_method_handler(
            notify,
            pb.RegistrationStatus.FromString,
            pb.RegistrationStatusResponse.SerializeToString,
        ),
    }
    service = "pluginregistration.Registration"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
    socket = str(tmp_path / "reg.sock")
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        async with SocketRegistrations().open(socket, STAMP) as conversation:
            assert await conversation.info() == PluginInfo(
                "CSIPlugin", "x", "/run/x.sock", ("1.0.0",), socket, STAMP
            )
            await conversation.notify(registered=False, error="no")
            await conversation.notify(registered=True)
    finally:
        await server.stop(None)
    assert [(status.plugin_registered, status.error) for status in heard] == [
        (False, "no"),
        (True, ""),
    ]


async def test_a_missing_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin_manager, "CONNECT_S", 0.2)
    why = r"plugin at .*/dead\.sock: no answer within .*No such file"
    with pytest.raises(PluginRefused, match=why):
        async with SocketRegistrations().open(str(tmp_path / "dead.sock"), STAMP) as conversation:
            await conversation.info()


GOOD = {"type": "CSIPlugin", "name": "x"}


@pytest.mark.parametrize(
    ("stated", "problem"),
    [
        ({**GOOD, "type": ""}, "gives no type"),
        ({**GOOD, "name": ""}, "gives no name"),
        ({**GOOD, "name": "x" * 300}, "is no name"),
        ({**GOOD, "name": "x\ny"}, "is no name"),
        ({**GOOD, "supported_versions": ["1"] * 65}, "more than 64 versions"),
        ({**GOOD, "endpoint": "tcp:1.2.3.4:5"}, "not supported"),
        ({**GOOD, "endpoint": "relative"}, "absolute path"),
    ],
)
def test_names_and_versions_that_are_refused(stated: dict[str, str], problem: str) -> None:
    with pytest.raises(PluginRefused, match=problem):
        read_info(pb.PluginInfo(**stated), "/p/x.sock", STAMP)


def test_without_an_endpoint_the_socket_serves() -> None:
    assert read_info(pb.PluginInfo(**GOOD), "/p/x.sock", STAMP).endpoint == "/p/x.sock"
