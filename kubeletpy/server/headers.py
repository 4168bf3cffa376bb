"""The headers common to all answers of the agent's servers.

Must never depend on the request.
"""

from __future__ import annotations

from aiohttp import web


def guard_headers(app: web.Application) -> None:
    """Answers do not reveal the software behind them, and no browser guesses their type."""
    app.on_response_prepare.append(_guard)


async def _guard(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers.pop("Server", None)
    response.headers.setdefault("X-Content-Type-Options", "nosniff")
