"""Requests to the API: callers, paths, and the options of writes and deletes. Pure.

Must never read a request body's object: only its options.
"""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import unquote

from kubeletpy.base.structs import Struct, field
from kubeletpy_up.errors import bad_request, invalid_options
from kubeletpy_up.resources import ResourceInfo, find_in_group

_REPORTED = 60
"""How many characters of a wrong option a refusal shows."""
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")

NODE_USER_PREFIX = "system:node:"
NODES_GROUP = "system:nodes"
ADMIN_GROUP = "system:masters"
BOOTSTRAP_GROUP = "system:bootstrappers"


class Caller(Struct, frozen=True):
    """An authenticated user with its groups."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""

    @property
    def is_admin(self) -> bool:
        """Whether everything is allowed."""
        return ADMIN_GROUP in self.groups

    @property
    def is_joining(self) -> bool:
        """Whether it authenticated with a bootstrap token."""
        return BOOTSTRAP_GROUP in self.groups

    @property
    def node_name(self) -> str:
        """The node whose identity this is, or empty."""
        if self.user.startswith(NODE_USER_PREFIX) and NODES_GROUP in self.groups:
            return self.user.removeprefix(NODE_USER_PREFIX)
        return ""


ADMIN = Caller("kubernetes-admin", (ADMIN_GROUP, "system:authenticated"))
SCHEDULER = Caller("system:kube-scheduler", (ADMIN_GROUP, "system:authenticated"))
CONTROLLER = Caller("system:kube-controller-manager", (ADMIN_GROUP, "system:authenticated"))


def node_caller(name: str) -> Caller:
    """The identity of a node agent."""
    return Caller(NODE_USER_PREFIX + name, (NODES_GROUP, "system:authenticated"))


class Target(Struct, frozen=True):
    """The target of a write: caller, object and path. ``namespace``: empty if cluster-wide."""

    caller: Caller
    info: ResourceInfo
    namespace: str
    name: str = ""
    subresource: str = ""


class WriteOptions(Struct):
    """Options of create, update and patch.

    Attributes:
        field_validation: Strict, Warn or Ignore.
        force: of server-side apply: take over conflicting fields.
        subject: the subject of a certificate request, once it has been read.
        is_patch: the write comes from a patch.
        warnings: out: what to show the client.
        created: out: an update or apply patch has created the object.
    """

    dry_run: bool = False
    field_manager: str = ""
    field_validation: str = "Warn"
    force: bool = False
    subject: str | None = None
    is_patch: bool = False
    warnings: list[str] = field(default_factory=list)
    created: bool = False


class DeleteOptions(Struct, frozen=True):
    """metav1.DeleteOptions.

    Attributes:
        grace_period_seconds: None means the object's own.
        propagation: Orphan, Background or Foreground; empty: the object's finalizers decide.
    """

    grace_period_seconds: int | None = None
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False
    propagation: str = ""


def is_dry_run(values: object, options: str) -> bool:
    """Read dryRun: absent or ["All"]; ``options`` is their kind, such as ``CreateOptions``.

    Raises:
        ApiError: 422, another value.
    """
    if not values:
        return False
    if values not in (["All"], "All"):
        reported = json.dumps([values] if isinstance(values, str) else values)[:_REPORTED]
        text = f'Unsupported value: {reported}: supported values: "All"'
        raise invalid_options(options, "dryRun", "FieldValueNotSupported", text)
    return True


def read_delete_options(body: object, query: dict[str, str]) -> DeleteOptions:
    """Merge the options of a DELETE's body and query.

    Options in the body replace those of the query, as on a real server.

    Raises:
        ApiError: 400, a value of the wrong type; 422, an unknown policy.
    """
    supplied: dict[str, Any] = {}
    if body:
        if not isinstance(body, dict):
            raise bad_request("the body of a delete must be DeleteOptions")
        supplied, query = body, {}
        kind, version = supplied.get("kind") or "DeleteOptions", supplied.get("apiVersion") or "v1"
        if kind != "DeleteOptions":
            raise bad_request(
                f'no kind "{kind}" is registered for version "{version}" in scheme '
                '"pkg/runtime/scheme.go:111"'
            )
    grace: object = supplied.get("gracePeriodSeconds")
    if "gracePeriodSeconds" in query:
        if not _NUMBER.fullmatch(query["gracePeriodSeconds"]):
            raise bad_request("gracePeriodSeconds: not a number")
        grace = int(query["gracePeriodSeconds"])
    if grace is not None and (not isinstance(grace, int) or isinstance(grace, bool)):
        raise bad_request("gracePeriodSeconds: not a number")
    if grace is not None and not -(2**63) <= grace < 2**63:
        raise bad_request("gracePeriodSeconds: not a number of 64 bits")
    preconditions = supplied.get("preconditions") or {}
    policy = query.get("propagationPolicy") or supplied.get("propagationPolicy") or ""
    if not isinstance(preconditions, dict):
        raise bad_request("preconditions: not an object")
    if policy not in ("", "Orphan", "Background", "Foreground"):
        text = (
            f'Unsupported value: "{policy}": supported values: "Foreground", "Background", '
            '"Orphan", "nil"'
        )
        options = "DeleteOptions"
        raise invalid_options(options, "propagationPolicy", "FieldValueNotSupported", text)
    orphans = supplied.get("orphanDependents")
    if "orphanDependents" in query:
        orphans = query["orphanDependents"].lower() not in ("false", "0")
    if orphans is not None:
        if policy:
            text = (
                f'Invalid value: "{policy}": orphanDependents and deletionPropagation cannot be '
                "both set"
            )
            raise invalid_options("DeleteOptions", "propagationPolicy", "FieldValueInvalid", text)
        policy = "Orphan" if orphans else "Background"
    return DeleteOptions(
        grace_period_seconds=grace,
        uid=str(preconditions.get("uid") or ""),
        resource_version=str(preconditions.get("resourceVersion") or ""),
        dry_run=is_dry_run(query.get("dryRun") or supplied.get("dryRun"), "DeleteOptions"),
        propagation=policy,
    )


# Request paths.

_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})


class Route(Struct, frozen=True):
    """A resource path. ``namespace`` None is all namespaces, or a cluster-wide resource."""

    info: ResourceInfo
    namespace: str | None = None
    name: str = ""
    subresource: str = ""
    watch: bool = False


def split_path(raw_path: str) -> list[str]:
    """The path's parts, unquoted one by one; empty parts are dropped."""
    return [unquote(part) for part in raw_path.split("/") if part]


def parse_path(parts: list[str]) -> Route | None:
    """Read the parts of a resource path; None if it names nothing that is served."""
    if len(parts) >= 3 and parts[0] == "api":
        return _resource("", parts[1], parts[2:])
    if len(parts) >= 4 and parts[0] == "apis":
        return _resource(parts[1], parts[2], parts[3:])
    return None


def _goes_on(info: ResourceInfo, subresource: str) -> bool:
    """Whether a path of the node's own server follows the subresource."""
    return subresource == "proxy" and info.is_proxied(subresource)


def _resource(group: str, version: str, rest: list[str]) -> Route | None:
    watch = rest[0] == "watch"
    if watch:
        rest = rest[1:]
    namespace: str | None = None
    if len(rest) >= 3 and rest[0] == "namespaces" and rest[2] not in _NAMESPACE_SUBRESOURCES:
        namespace, rest = rest[1], rest[2:]
    info = find_in_group(group, version, rest[0]) if rest else None
    if info is None or (len(rest) > 3 and not _goes_on(info, rest[2])):
        return None
    if namespace is not None and not info.namespaced:
        return None
    name = rest[1] if len(rest) > 1 else ""
    if name and info.namespaced and namespace is None:
        return None
    return Route(info, namespace, name, rest[2] if len(rest) > 2 else "", watch)
