"""The configuration of the agent's server, facts about the program, and the verbosity of its logs.

Must never open anything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from kubeletpy.base.structs import Struct, field
from kubeletpy.config import KubeletSettings, NodeFlags
from kubeletpy.node.certificates.store import certificate_dir
from kubeletpy.server.routes import ServerError


class AccessSettings(Struct, frozen=True):
    """The settings authentication.* and authorization.*; times in seconds."""

    token_reviews: bool = True
    token_ttl: float = 120.0
    anonymous: bool = False
    always_allow: bool = False
    allowed_ttl: float = 300.0
    refused_ttl: float = 30.0


class EndpointSettings(Struct, frozen=True):
    """The enabled endpoints, named like the settings, and the paths of their files.

    Attributes:
        checkpoint_dir: None without checkpoints (gate ContainerCheckpoint).
        flagz, statusz: gates ComponentFlagz and ComponentStatusz.
        split_log_streams: gate PodLogsQuerySplitStreams.
        allocated_pods: gate KubeletAllocatedPodsEndpoint.
    """

    system_logs: bool = True
    system_log_query: bool = False
    profiling: bool = True
    debug_flags: bool = True
    flagz: bool = True
    statusz: bool = True
    split_log_streams: bool = False
    allocated_pods: bool = False
    log_dir: str = "/var/log"
    checkpoint_dir: Path | None = None


class ServerSettings(Struct, frozen=True):
    """The configuration of the server; times in seconds. Port 0 is any free one, or off."""

    address: str = "0.0.0.0"
    port: int = 10250
    read_only_port: int = 0
    certificate: str = ""
    key: str = ""
    client_ca: str = ""
    tls_min_version: str = ""
    tls_ciphers: Sequence[str] = ()
    certificate_dir: Path = Path("/var/lib/kubelet/pki")
    access: AccessSettings = field(default_factory=AccessSettings)
    debugging: bool = True
    endpoints: EndpointSettings = field(default_factory=EndpointSettings)
    idle_timeout: float = 4 * 3600.0

    @classmethod
    def from_settings(cls, settings: KubeletSettings, flags: NodeFlags) -> ServerSettings:
        """Return the server's part of the settings.

        Raises:
            ServerError: they need an API and there is none.
        """
        if not flags.kubeconfig:
            _check_alone(settings)
        authentication, authorization = settings.authentication, settings.authorization
        return cls(
            address=settings.address,
            port=settings.port,
            read_only_port=settings.read_only_port,
            certificate=settings.tls_cert_file,
            key=settings.tls_private_key_file,
            client_ca=authentication.x509.client_ca_file,
            tls_min_version=settings.tls_min_version,
            tls_ciphers=settings.tls_cipher_suites,
            certificate_dir=certificate_dir(flags),
            access=AccessSettings(
                token_reviews=authentication.webhook.enabled,
                token_ttl=authentication.webhook.cache_ttl,
                anonymous=authentication.anonymous.enabled,
                always_allow=authorization.mode == "AlwaysAllow",
                allowed_ttl=authorization.webhook.cache_authorized_ttl,
                refused_ttl=authorization.webhook.cache_unauthorized_ttl,
            ),
            debugging=settings.enable_debugging_handlers,
            endpoints=_endpoints(settings, flags),
            idle_timeout=settings.streaming_connection_idle_timeout,
        )


def _endpoints(settings: KubeletSettings, flags: NodeFlags) -> EndpointSettings:
    gates = settings.feature_gates
    checkpoints = Path(flags.root_dir) / "checkpoints"
    return EndpointSettings(
        system_logs=settings.enable_system_log_handler,
        system_log_query=settings.enable_system_log_query and gates.enabled("NodeLogQuery"),
        profiling=settings.enable_profiling_handler,
        debug_flags=settings.enable_debug_flags_handler,
        flagz=gates.enabled("ComponentFlagz"),
        statusz=gates.enabled("ComponentStatusz"),
        split_log_streams=gates.enabled("PodLogsQuerySplitStreams"),
        allocated_pods=gates.enabled("KubeletAllocatedPodsEndpoint"),
        checkpoint_dir=checkpoints if gates.enabled("ContainerCheckpoint") else None,
    )


def _check_alone(settings: KubeletSettings) -> None:
    """Refuse settings that need an API on a node without one, like the kubelet."""
    problems = []
    if settings.authentication.webhook.enabled:
        problems.append("authentication.webhook.enabled true (set it to false)")
    if settings.authorization.mode == "Webhook":
        problems.append(
            "authorization.mode Webhook (set AlwaysAllow: clients with a certificate of "
            "authentication.x509.clientCAFile may then do anything)"
        )
    if problems:
        raise ServerError(
            f"without --kubeconfig there is no API to authenticate clients, but the settings "
            f"require it: {'; '.join(problems)}. Or serve nothing: enableServer false"
        )


class RunningProgram(Struct, frozen=True):
    """Facts about the running program for /flagz and /statusz.

    Attributes:
        flags: returns them by name without dashes; possible credentials are masked.
        started_at: Unix seconds.
        version: of the kubelet that this agent stands in for, ``v1.37.0+kubeletpy.0.1.0``.
    """

    flags: Callable[[], Mapping[str, str]]
    started_at: float
    version: str


@runtime_checkable
class LogSink(Protocol):
    """A log handler that has a verbosity and reports whether it works."""

    def set_verbosity(self, level: int) -> None:
        """Write only lines that this verbosity (the kubelet's ``-v``) includes."""

    def problem(self) -> str:
        """Return why lines are not written, or "" if they are."""


def sinks() -> list[LogSink]:
    """Return the log handlers that are sinks."""
    return [each for each in logging.getLogger().handlers if isinstance(each, LogSink)]


def log_problem() -> str:
    """Return why a sink writes no lines, or ""; it is the health check ``log``."""
    return next((why for sink in sinks() if (why := sink.problem())), "")
