"""Containers of all three lists: regular, init, ephemeral."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubeletpy.base.structs import Struct
from kubeletpy_up.schema import formats
from kubeletpy_up.validation import amounts, env, handlers, security, volumes

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.validation.report import Report

_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES = ("File", "FallbackToLogsOnError")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_RESTART_POLICIES = ("Always", "Never", "OnFailure")
_RULE_ACTIONS = ("Restart", "RestartAllContainers")
_RULE_OPERATORS = ("In", "NotIn")
_MAX_RULES = 20
_MAX_EXIT_CODES = 255
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_NOT_EPHEMERAL = (
    "ports",
    "lifecycle",
    *_PROBES,
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
)


class PodFacts(Struct, frozen=True):
    """Facts of a pod that its containers' fields are checked against.

    Attributes:
        volumes: the pod's volumes by name, without those that are invalid themselves.
        claims: names of the pod's resource claims.
        grace: terminationGracePeriodSeconds.
        restart_policy: the pod's.
        host_users: the pod has no user namespace of its own.
    """

    volumes: dict[str, JSON]
    claims: set[str]
    grace: int
    restart_policy: str
    host_users: bool


def _ports(report: Report, ports: list[JSON], path: str) -> None:
    names: set[str] = set()
    for index, port in enumerate(ports):
        where = f"{path}[{index}]"
        name = port.get("name") or ""
        if name:
            details = formats.port_name(name)
            report.all_invalid(f"{where}.name", name, details)
            if name in names:
                report.duplicate(f"{where}.name", name)
            elif not details:
                names.add(name)
        number = port.get("containerPort") or 0
        report.well_formed(f"{where}.containerPort", number, formats.port_number)
        host = port.get("hostPort") or 0
        if host:
            report.all_invalid(f"{where}.hostPort", host, formats.port_number(host))
        report.one_of(f"{where}.protocol", port.get("protocol"), _PROTOCOLS)


def host_port_conflicts(report: Report, containers: list[JSON], path: str) -> None:
    """No two containers request the same host port."""
    seen: set[str] = set()
    for index, container in enumerate(containers):
        for number, port in enumerate(container.get("ports") or ()):
            if port.get("hostPort"):
                key = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{port['hostPort']}"
                if key in seen:
                    report.duplicate(f"{path}[{index}].ports[{number}].hostPort", key)
                seen.add(key)


def _common(report: Report, container: JSON, path: str, pod: PodFacts) -> None:
    name, image = container.get("name") or "", container.get("image") or ""
    report.well_formed(f"{path}.name", name, formats.dns_label)
    if not image:
        report.required(f"{path}.image")
    elif image.strip() != image:
        report.invalid(f"{path}.image", image, "must not have leading or trailing whitespace")
    message_policy = container.get("terminationMessagePolicy")
    report.one_of(f"{path}.terminationMessagePolicy", message_policy, _MESSAGE_POLICIES)
    _ports(report, container.get("ports") or [], f"{path}.ports")
    env.validate(report, container.get("env") or [], f"{path}.env")
    env.validate_from(report, container.get("envFrom") or [], f"{path}.envFrom")
    volumes.mounts(report, container, path, pod.volumes)
    report.one_of(f"{path}.imagePullPolicy", container.get("imagePullPolicy"), _PULL_POLICIES)
    resources = container.get("resources") or {}
    amounts.requirements(report, resources, f"{path}.resources", pod.claims)
    policies = container.get("resizePolicy") or []
    amounts.resize_policies(report, policies, f"{path}.resizePolicy", pod.restart_policy)
    context = container.get("securityContext")
    security.container(report, context, f"{path}.securityContext", host_users=pod.host_users)


def _hooks_and_probes(report: Report, container: JSON, path: str, pod: PodFacts) -> None:
    handlers.lifecycle(report, container.get("lifecycle"), f"{path}.lifecycle", grace=pod.grace)
    for kind in _PROBES:
        handlers.probe(report, container.get(kind), f"{path}.{kind}", kind=kind)


def _restart_rules(report: Report, container: JSON, path: str) -> None:
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or []
    if policy is None:
        if rules:
            detail = "must specify restartPolicy when restart rules are used"
            report.required(f"{path}.restartPolicy", detail)
    elif policy not in _RESTART_POLICIES:
        report.unsupported(f"{path}.restartPolicy", policy, _RESTART_POLICIES)
    report.at_most(f"{path}.restartPolicyRules", rules, _MAX_RULES)
    for index, rule in enumerate(rules):
        where = f"{path}.restartPolicyRules[{index}]"
        report.supported(f"{where}.action", rule.get("action"), _RULE_ACTIONS)
        codes = rule.get("exitCodes")
        if codes is None:
            report.required(f"{where}.exitCodes", "must be specified")
            continue
        if codes.get("operator") not in _RULE_OPERATORS:
            operator = codes.get("operator") or ""
            report.unsupported(f"{where}.exitCodes.operator", operator, _RULE_OPERATORS)
        count = len(codes.get("values") or ())
        if count > _MAX_EXIT_CODES:
            report.too_many(f"{where}.exitCodes.values", count, _MAX_EXIT_CODES)


def regular(report: Report, supplied: list[JSON], path: str, pod: PodFacts) -> None:
    """Check ``spec.containers`` of a pod."""
    if not supplied:
        report.required(path)
        return
    names: set[str] = set()
    for index, container in enumerate(supplied):
        where = f"{path}[{index}]"
        _common(report, container, where, pod)
        name = container.get("name") or ""
        if name in names:
            report.duplicate(f"{where}.name", name)
        names.add(name)
        _hooks_and_probes(report, container, where, pod)
        _restart_rules(report, container, where)
    host_port_conflicts(report, supplied, path)


def init(report: Report, supplied: list[JSON], path: str, pod: PodFacts, names: set[str]) -> None:
    """``spec.initContainers``; ``names``: those of the regular containers."""
    taken = set(names)
    for index, container in enumerate(supplied):
        where = f"{path}[{index}]"
        _common(report, container, where, pod)
        _restart_rules(report, container, where)
        name = container.get("name") or ""
        if name in taken:
            report.duplicate(f"{where}.name", name)
        elif name:
            taken.add(name)
        host_port_conflicts(report, [container], path)
        if container.get("restartPolicy") == "Always":
            _hooks_and_probes(report, container, where, pod)
            continue
        for key in ("lifecycle", *_PROBES):
            if container.get(key) is not None:
                detail = "may not be set for init containers without restartPolicy=Always"
                report.forbidden(f"{where}.{key}", detail)


def ephemeral(
    report: Report, supplied: list[JSON], path: str, pod: PodFacts, names: set[str]
) -> None:
    """``spec.ephemeralContainers``; ``names``: those of all other containers."""
    taken = set(names)
    detail = "cannot be set for an Ephemeral Container"
    for index, container in enumerate(supplied):
        where = f"{path}[{index}]"
        _common(report, container, where, pod)
        name = container.get("name") or ""
        if name in taken:
            report.duplicate(f"{where}.name", name)
        taken.add(name)
        target = container.get("targetContainerName")
        if target and target not in names:
            report.not_found(f"{where}.targetContainerName", target)
        for key in _NOT_EPHEMERAL:
            if container.get(key):
                report.forbidden(f"{where}.{key}", detail)
        if container.get("resources"):
            report.forbidden(f"{where}.resources", detail)
        for number, mount in enumerate(container.get("volumeMounts") or ()):
            for key in ("subPath", "subPathExpr"):
                if mount.get(key):
                    report.forbidden(f"{where}.volumeMounts[{number}].{key}", detail)
