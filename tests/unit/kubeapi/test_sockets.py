"""A server that has vanished is detected soon, but not after a single lost packet."""

from __future__ import annotations

import socket

from kubeletpy.kubeapi.transport import new_socket


def test_several_probes_are_lost_before_a_connection_is() -> None:
    with new_socket((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 1))) as made:
        first, pause, milliseconds = (
            made.getsockopt(socket.IPPROTO_TCP, option)
            for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_USER_TIMEOUT)
        )
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    sent = range(first, milliseconds // 1000, pause)
    assert len(sent) == 3
    assert milliseconds <= 30_000
