"""Probes and lifecycle hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kubeletpy_up.schema import formats

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.validation.report import Report

_PROBE_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_HOOK_HANDLERS = ("exec", "httpGet", "tcpSocket", "sleep")
_SCHEMES = ("HTTP", "HTTPS")
_PROTOCOLS = ("HTTP1", "HTTP2")
_GRPC_MODES = ("Plaintext", "TLS")
_NUMBERS = (
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
)


def port(report: Report, value: Any, path: str) -> None:
    """A port by number or by name."""
    if isinstance(value, str):
        report.all_invalid(path, value, formats.port_name(value))
    else:
        report.all_invalid(path, value or 0, formats.port_number(value or 0))


def _http(report: Report, action: JSON, path: str) -> None:
    report.require(path, action, "path")
    port(report, action.get("port"), f"{path}.port")
    report.supported(f"{path}.scheme", action.get("scheme"), _SCHEMES)
    for header in action.get("httpHeaders") or ():
        name = header.get("name") or ""
        report.all_invalid(f"{path}.httpHeaders", name, formats.header_name(name))
    if action.get("protocol") is not None:
        _protocol(report, action, path)


def _protocol(report: Report, action: JSON, path: str) -> None:
    protocol = action["protocol"]
    if protocol not in _PROTOCOLS:
        report.unsupported(f"{path}.protocol", protocol, _PROTOCOLS)
    elif protocol == "HTTP2" and action.get("scheme") != "HTTP":
        report.invalid(f"{path}.protocol", protocol, "is only supported with HTTP (H2C)")
    elif protocol == "HTTP2" and action.get("host"):
        detail = 'must be empty when `protocol` is "HTTP2"'
        report.invalid(f"{path}.host", action["host"], detail)


def _sleep(report: Report, action: JSON, path: str, grace: int) -> None:
    seconds = action.get("seconds") or 0
    if not 0 <= seconds <= grace:
        report.invalid(
            path,
            seconds,
            f"must be non-negative and less than terminationGracePeriodSeconds ({grace})",
        )


def _handler(report: Report, supplied: JSON, path: str, kinds: tuple[str, ...], grace: int) -> None:
    present = [kind for kind in kinds if supplied.get(kind) is not None]
    if not present:
        report.required(path, "must specify a handler type")
        return
    for extra in present[1:]:
        report.forbidden(f"{path}.{extra}", "may not specify more than 1 handler type")
    kind, action = present[0], supplied[present[0]]
    where = f"{path}.{kind}"
    if kind == "exec":
        report.require(where, action, "command")
    elif kind == "httpGet":
        _http(report, action, where)
    elif kind == "sleep":
        _sleep(report, action, where, grace)
    else:
        port(report, action.get("port"), f"{where}.port")
        mode = action.get("mode")
        if kind == "grpc" and mode is not None and mode not in _GRPC_MODES:
            report.unsupported(f"{where}.mode", mode, _GRPC_MODES)


def probe(report: Report, supplied: JSON | None, path: str, *, kind: str) -> None:
    """``kind``: livenessProbe, readinessProbe or startupProbe."""
    if supplied is None:
        return
    _handler(report, supplied, path, _PROBE_HANDLERS, 0)
    for key in _NUMBERS:
        if (supplied.get(key) or 0) < 0:
            report.invalid(f"{path}.{key}", supplied[key], "must be greater than or equal to 0")
    grace = supplied.get("terminationGracePeriodSeconds")
    if grace is not None and grace <= 0:
        where = f"{path}.terminationGracePeriodSeconds"
        report.invalid(where, grace, "must be greater than 0")
    if kind == "readinessProbe":
        if grace is not None:
            where = f"{path}.terminationGracePeriodSeconds"
            report.invalid(where, grace, "must not be set for readinessProbes")
    elif supplied.get("successThreshold", 1) != 1:
        report.invalid(f"{path}.successThreshold", supplied["successThreshold"], "must be 1")


def lifecycle(report: Report, supplied: JSON | None, path: str, *, grace: int) -> None:
    """Post-start and pre-stop hooks; ``grace``: the pod's grace period in seconds."""
    for hook in ("postStart", "preStop"):
        if supplied and supplied.get(hook) is not None:
            _handler(report, supplied[hook], f"{path}.{hook}", _HOOK_HANDLERS, grace)
    if (
        supplied
        and supplied.get("stopSignal") is not None
        and not supplied["stopSignal"].startswith("SIG")
    ):
        report.unsupported(f"{path}.stopSignal", supplied["stopSignal"], ("SIGTERM", "SIGKILL"))
