"""The Kubernetes versions that this agent can be a kubelet of, and how they differ. Pure.

One :class:`KubernetesVersion` is resolved at the start, before the configuration is read, and is
part of the settings. Decisions never compare versions: they read a feature gate, or a table that
has a column for each version. docs/upgrading-kubernetes.md describes how a version is added.

Apart, because every wing reads it and a new version begins here.
"""

from __future__ import annotations

from kubeletpy.base.generated.versions import FACTS, MINORS, PREVIEWS, VersionFacts
from kubeletpy.base.structs import Struct
from kubeletpy.base.version import VERSION


class KubernetesVersion(Struct, frozen=True):
    """A minor version of Kubernetes 1.

    It has no order on purpose: what differs between versions is looked up in tables.
    """

    minor: int

    def __str__(self) -> str:
        """Major and minor, such as ``1.37``."""
        return f"1.{self.minor}"

    @property
    def release(self) -> str:
        """The release whose behavior applies: ``v1.37.0``, or ``v1.38.0-beta.0`` of a preview."""
        prerelease = PREVIEWS.get(self.minor)
        return f"v1.{self.minor}.0{f'-{prerelease}' if prerelease else ''}"

    @property
    def next_release(self) -> str:
        """The first release of the next minor version, without ``v``, such as ``1.38.0``."""
        return f"1.{self.minor + 1}.0"

    @property
    def kubelet(self) -> str:
        """The kubelet version that a node reports, such as ``v1.37.0+kubeletpy.0.1.0``.

        It sorts as the release does: semantic versions put anything with a ``-`` before it.
        """
        return f"{self.release}+kubeletpy.{VERSION}"


KNOWN = tuple(KubernetesVersion(minor) for minor in MINORS)
"""From the oldest to the newest: the columns of every table that depends on the version."""

SUPPORTED = tuple(each for each in KNOWN if each.minor not in PREVIEWS)
"""The versions that an agent takes of its own accord. A preview has to be named."""

OLDEST, NEWEST = SUPPORTED[0], SUPPORTED[-1]


def supported(text: str) -> KubernetesVersion | None:
    """The known version with that text, such as ``1.37``; None when there is no such one."""
    return next((each for each in KNOWN if str(each) == text), None)


def column(table: str, version: KubernetesVersion) -> dict[str, str]:
    """A version's column of a table by name.

    ``table``: a line for each name, with a value for each of KNOWN after it.
    """
    at = KNOWN.index(version)
    rows = (line.split() for line in table.split("\n") if line)
    return {name: values[at] for name, *values in rows}


def within(version: KubernetesVersion, *, since: str = "", until: str = "") -> bool:
    """Whether a version is in a span of known ones; empty: from the oldest, to the newest."""
    texts = [str(each) for each in KNOWN]
    first = texts.index(since) if since else 0
    last = texts.index(until) if until else len(texts) - 1
    return first <= KNOWN.index(version) <= last


def version_facts(version: KubernetesVersion = NEWEST) -> VersionFacts:
    """The differences of a version that no gate, field or flag describes.

    Decisions take a fact by its name. A fact that no decision needs is removed with its row.
    Source: docs/reference/versions.csv.
    """
    return FACTS[KNOWN.index(version)]
