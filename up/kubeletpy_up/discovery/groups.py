"""Discovery: which groups, versions and resources there are, plain and aggregated, and /version.

Only the resources of :mod:`kubeletpy_up.resources` are listed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kubeletpy.base.kubernetes_version import NEWEST
from kubeletpy_up import resources

if TYPE_CHECKING:
    from kubeletpy.base.api.types import JSON
    from kubeletpy_up.resources import ResourceInfo

GIT_VERSION = NEWEST.release


def version_info(architecture: str) -> JSON:
    """The answer of /version: the API's version that we speak, on a machine like ``arm64``."""
    major, minor = str(NEWEST).split(".")
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": minor,
        "gitVersion": GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": f"linux/{architecture}",
    }


def _groups() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for group, version in resources.group_versions():
        if group:
            found.setdefault(group, []).append(version)
    return found


def api_versions(server_address: str = "") -> JSON:
    """The answer of /api. ``server_address`` is HOST:PORT, for clients that read it."""
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}]
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": addresses if server_address else [],
    }


def _api_group(group: str, versions: list[str]) -> JSON:
    listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": listed, "preferredVersion": listed[0]}


def api_group(name: str) -> JSON | None:
    """The answer of /apis/GROUP; None for a group that isn't served."""
    versions = _groups().get(name)
    if versions is None:
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_api_group(name, versions)}


def api_group_list(absent: str = "") -> JSON:
    """The answer of /apis, without the group ``absent``."""
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_api_group(*each) for each in _groups().items() if each[0] != absent],
    }


def resource_list(group: str, version: str) -> JSON | None:
    """The answer of /api/v1 or /apis/GROUP/VERSION; None for one that isn't served."""
    if (group, version) not in resources.group_versions():
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": [
            entry
            for resource in resources.listed_resources()
            if (resource.group, resource.version) == (group, version)
            for entry in resource.entries
        ],
    }


def _aggregated_resource(resource: ResourceInfo) -> JSON:
    found: JSON = {
        "resource": resource.plural,
        "responseKind": {
            "group": resource.group,
            "version": resource.version,
            "kind": resource.kind,
        },
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        found["shortNames"] = list(resource.short_names)
    if resource.categories:
        found["categories"] = list(resource.categories)
    if resource.subresources:
        found["subresources"] = [
            {
                "subresource": sub.name,
                "responseKind": {
                    "group": sub.group or (resource.group if not sub.version else ""),
                    "version": sub.version or resource.version,
                    "kind": sub.kind,
                },
                "verbs": list(sub.verbs),
            }
            for sub in resource.subresources
        ]
    return found


def aggregated(core: bool, version: str = "v2", absent: str = "") -> JSON:
    """Aggregated discovery (APIGroupDiscoveryList) of /api (``core``) or /apis but for a group."""
    groups = {"": ["v1"]} if core else _groups()
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": group} if group else {},
                "versions": [
                    {
                        "version": served,
                        "resources": [
                            _aggregated_resource(resource)
                            for resource in resources.listed_resources()
                            if (resource.group, resource.version) == (group, served)
                        ],
                        "freshness": "Current",
                    }
                    for served in versions
                ],
            }
            for group, versions in groups.items()
            if group != absent or core
        ],
    }
