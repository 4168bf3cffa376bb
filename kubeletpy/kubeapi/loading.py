"""Loads the code of a transport when a server turns out to need it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kubeletpy.base.host.patient_threads import PatientThreads
from kubeletpy.kubeapi.transport import TransportError

_code: dict[str, Any] = {}
_threads = PatientThreads(1)
"""A separate pool: a heartbeat waits for no file work."""


async def loaded(name: str) -> Any:
    """A module, imported in a thread: aiohttp and h2 would block the event loop for 0.1 s.

    Raises TransportError: it can't be loaded now (for example, no descriptor is left); the next
    attempt may.
    """
    if name not in _code:
        try:
            _code[name] = await _threads.run(import_module, name)
        except (OSError, ImportError) as error:
            raise TransportError(f"the protocol's code can't be loaded: {error}") from error
    return _code[name]
