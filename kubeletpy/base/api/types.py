"""Kubernetes objects at run time: JSON. ``types.pyi`` gives type checkers their fields.

Made by tools/gen_api_types.py from the API's OpenAPI schema; do not edit. These types would take
1.4 MB as classes. A type checker reports a name that the stub lacks; here each name is JSON.
"""

from __future__ import annotations

from typing import Any

JSON = dict[str, Any]
"""Any JSON object."""


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    return JSON
