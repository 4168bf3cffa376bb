"""The report of a preflight as values. Pure."""

from __future__ import annotations

from enum import StrEnum

from kubeletpy.agent.takeover.preflight.pods import HARMED, PodOutcome, PodVerdict
from kubeletpy.base.structs import Struct
from kubeletpy.config.version_choice import ResolvedVersion


class Severity(StrEnum):
    """How much a finding matters."""

    TAKEN = "taken"
    """State that the agent takes over."""
    NOTE = "note"
    """For information; nothing is lost."""
    DIFFERS = "differs"
    """The agent ignores it, or does otherwise than the kubelet."""
    UNCLEAR = "unclear"
    """It could not be read or judged."""
    BLOCKS = "blocks"
    """The agent would not start, or not work."""


UNSAFE = frozenset({Severity.UNCLEAR, Severity.BLOCKS})


class Area(StrEnum):
    """The subjects of findings, in the order of the report."""

    KUBELET = "kubelet"
    SETTINGS = "settings"
    CREDENTIALS = "credentials"
    VERSION = "version"
    RIGHTS = "rights"
    RUNTIME = "runtime"
    STATE = "state"
    PODS = "pods"


class Finding(Struct, frozen=True):
    """One fact that matters before the agent takes over.

    Attributes:
        subject: the file, unit, flag, field, gate or process that it is about.
        what: what was found there.
        consequence: what follows for the node, and what to do; may be empty.
    """

    area: Area
    severity: Severity
    subject: str
    what: str
    consequence: str = ""

    @property
    def text(self) -> str:
        """The finding in one line."""
        said = f"{self.subject}: {self.what}" if self.what else self.subject
        return f"{said}: {self.consequence}" if self.consequence else said


class KubeletFound(Struct, frozen=True):
    """The kubelet whose node would be taken over.

    Attributes:
        source: where its command line was found, for people.
        program: path of its program; empty when only flags are known.
        arguments: its flags. They may hold secrets: never shown.
        directory: its working directory, against which relative paths are resolved.
        files: the unit file, its drop-ins and its environment files.
        pid: of the running process; 0 when it does not run.
    """

    source: str
    program: str
    arguments: tuple[str, ...]
    directory: str = "/"
    files: tuple[str, ...] = ()
    pid: int = 0


class PreflightReport(Struct, frozen=True):
    """Everything that a preflight has found.

    Attributes:
        pods: None: the pods of the node could not be determined.
        version: what the agent would run as; None: the report is incomplete.
    """

    kubelet: KubeletFound | None
    findings: tuple[Finding, ...]
    pods: tuple[PodVerdict, ...] | None = None
    version: ResolvedVersion | None = None

    @property
    def safe(self) -> bool:
        """Whether nothing would be restarted and nothing is unclear."""
        if self.kubelet is None or self.pods is None:
            return False
        harmed = HARMED | {PodOutcome.UNCLEAR}
        return not any(each.severity in UNSAFE for each in self.findings) and not any(
            each.outcome in harmed for each in self.pods
        )
