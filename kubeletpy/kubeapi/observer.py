"""The interface for counting a client's requests. Pure.

Must never import a metrics library, nor get a path.
"""

from __future__ import annotations

from typing import Protocol


class RequestObserver(Protocol):
    """``method`` is the HTTP method, ``host`` the API server's host and port."""

    def tried(
        self, code: int | None, method: str, host: str, seconds: float, sent: int, *, again: bool
    ) -> None:
        """An attempt ended with an HTTP code, or None when there was no response.

        rest_client_requests_total, _request_duration_seconds, _request_size_bytes (``sent``), and
        _request_retries_total if it was not the first attempt of its request (``again``).
        """
        return

    def held_back(self, method: str, host: str, seconds: float) -> None:
        """rest_client_rate_limiter_duration_seconds: how long an attempt waited; may be 0."""
        return

    def answered(self, method: str, host: str, received: int) -> None:
        """rest_client_response_size_bytes: the length of a response; a watch has none."""
        return

    def connection_lost(self) -> None:
        """kubeletpy_api_connections_lost_total: HTTP/2, broken or ended by the server."""
        return


class NoObserver(RequestObserver):
    """Counts nothing."""
