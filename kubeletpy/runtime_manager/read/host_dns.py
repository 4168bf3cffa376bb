"""Reads the host's resolver configuration."""

from __future__ import annotations

import logging
from pathlib import Path

from kubeletpy.runtime_manager.config.dns import ResolvConfError, ResolverConfig, parse_resolv_conf

log = logging.getLogger(__name__)


def host_dns(path: str) -> ResolverConfig | None:
    """The host's resolver configuration; None when the settings name no file."""
    if not path:
        return None
    try:
        return parse_resolv_conf(Path(path).read_text(errors="replace"))
    except (OSError, ResolvConfError) as error:
        log.warning("resolvConf can't be used", extra={"path": path, "why": str(error)})
        return ResolverConfig()
