"""A way from a node to its API server that a test can cut, while others still reach the server."""

from __future__ import annotations

import contextlib
import socket
import threading

from tools.env.ports import free_port


class Link:
    """Carries TCP connections from another port to ``target`` on loopback.

    Attributes:
        port: where it listens; kept over :meth:`cut`.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self.port = free_port()
        self._listener: socket.socket | None = None
        self._carried: set[socket.socket] = set()
        self._lock = threading.Lock()

    def open(self) -> None:
        """Accept connections."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        """End all connections, and refuse new ones."""
        if self._listener is None:
            return
        with self._lock:
            listener, self._listener = self._listener, None
            ended = [listener, *self._carried]
        for each in ended:
            with contextlib.suppress(OSError):  # the other end was first
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()  # the API server is not there
                continue
            with self._lock:
                if self._listener is not listener:
                    client.close()
                    server.close()
                    return
                self._carried |= {client, server}
            for one, other in ((client, server), (server, client)):
                threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
        for each in (one, other):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._carried -= {one}
        one.close()
