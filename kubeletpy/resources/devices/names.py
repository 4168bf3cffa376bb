"""Which resources device plugins may register. Pure.

Source: docs/reference/behaviour-resources.md, rn.
"""

from __future__ import annotations

import re
from collections.abc import Collection

VERSION = "v1beta1"

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)
_MAX_DOMAIN, _MAX_NAME = 253, 63
_REQUESTS = "requests."
"""The prefix that quotas add to a resource's name: a name that already has it is refused."""


class RegistrationRefused(Exception):
    """A plugin can't be registered; the text is for it and for the log."""


def check_version(versions: Collection[str]) -> None:
    """Raise RegistrationRefused when none of a plugin's versions is supported."""
    if VERSION not in versions:
        shown = ", ".join(versions)[:200] or "none"
        raise RegistrationRefused(
            f"requested API version {shown!r} is not supported by kubelet. "
            f"Supported version is {VERSION!r}"
        )


def check_resource(name: str) -> None:
    """Raise RegistrationRefused when a name is not that of an extended resource."""
    domain, _, rest = name.partition("/")
    good = (
        len(domain) + len(_REQUESTS) <= _MAX_DOMAIN
        and len(rest) <= _MAX_NAME
        and _DOMAIN.fullmatch(domain)
        and _NAME.fullmatch(rest)
        and not domain.startswith(_REQUESTS)
        and "kubernetes.io/" not in name
    )
    if not good:
        raise RegistrationRefused(
            f"the ResourceName {name[:320]!r} is invalid: it is not that of an extended resource, "
            "such as vendor.example/gpu"
        )
