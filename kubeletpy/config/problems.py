"""Problems of a configuration: all of them at once, each naming its field; and YAML too deep. Pure.

Must never show what may be secret: fields listed in MASKED are shown without their value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import yaml

from kubeletpy.base.kubernetes_version import NEWEST, KubernetesVersion
from kubeletpy.base.structs import Component, Struct
from kubeletpy.config.generated import tables

MASKED = ("staticPodURLHeader",)
"""Fields whose values stay out of messages (docs/reference/config.csv; masked in logs)."""

DOCUMENTED = "reference/errors.md"
"""The page of the documentation that has an anchor for each setting and each flag."""
_REPORTED_LENGTH = 100


class Problem(Struct, frozen=True):
    """One thing that is wrong.

    Attributes:
        field: path of the field, or the flag.
        value: the value as a person would have written it, shortened; empty when nothing was given.
        allowed: what would be right.
        source: the file or flag it came from; empty when it comes from several together.
    """

    field: str
    value: str
    allowed: str
    source: str = ""

    def __str__(self) -> str:
        where = f"{self.source}: " if self.source and self.source != self.field else ""
        value = f" is {self.value}" if self.value else ""
        return f"{where}{self.field}{value}: {self.allowed}"


class ConfigError(Exception):
    """The configuration cannot be used.

    Attributes:
        problems: all of them, in the order they were found.
        warnings: what would only be left out if there were no problem, and may be their cause.
    """

    def __init__(self, problems: Iterable[Problem], warnings: Iterable[Problem] = ()) -> None:
        self.problems = tuple(problems)
        self.warnings = tuple(warnings)
        head = _counted(len(self.problems), "problem")
        if self.warnings:
            head += f", {_counted(len(self.warnings), 'warning')}"
        lines = [str(each) for each in self.problems]
        lines += [f"warning: {each}" for each in self.warnings]
        anchors = dict.fromkeys(map(_anchor, self.problems))
        if known := " ".join(each for each in anchors if each):
            lines.append(f"in the documentation: {DOCUMENTED}{known}")
        reported = "\n".join(f"  {line}" for line in lines)
        super().__init__(f"{head} in the configuration:\n{reported}")


def _anchor(problem: Problem) -> str:
    """The anchor of a problem's setting or flag on the page DOCUMENTED; empty if it has none."""
    name, headings = problem.field.partition(" ")[0], _headings()
    while name and name not in headings:  # a[0].b -> a[0] -> a
        name = re.sub(r"[.[]?[^.[]*$", "", name)
    return f"#{headings[name].lower().replace('.', '')}" if name else ""


@cache
def _headings() -> Mapping[str, str]:
    """The headings of the page DOCUMENTED, by the field or flag that a problem names."""
    found = {name: name for name in ("apiVersion", "kind", *(row[0] for row in tables.FIELDS))}
    found["providers"] = "CredentialProviderConfig.providers"
    for line in tables.FLAGS.strip().split("\n"):
        flag, _kind, field, *_more = line.split()
        found[f"--{flag}"] = flag if field == "-" else field
    return found


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def show(field: str, value: object) -> str:
    """A value for a message, shortened; masked where the field may hold a secret."""
    if field.startswith(MASKED):
        return "<masked>"
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError):
        text = str(value)
    return text if len(text) <= _REPORTED_LENGTH else text[: _REPORTED_LENGTH - 1] + "…"


class ProblemReport(Component):
    """Collects the problems of one source while it is decoded.

    Attributes:
        problems: found so far.
        bad: top-level field paths that have a problem, so that rules over several fields skip them.
        version: the Kubernetes version that the source is read for.
        lenient: what a strict reader refuses and this one warns about: unknown fields, duplicates.
    """

    source: str = ""
    version: KubernetesVersion = NEWEST
    strict: bool = False
    """Whether what is otherwise left out is a problem."""

    def __post_init__(self) -> None:
        self.problems: list[Problem] = []
        self.bad: set[str] = set()
        self.field = ""
        self.lenient: list[Problem] = []

    def add(self, at: str, value: object, allowed: str, *, missing: bool = False) -> None:
        """Note a problem at a path; ``missing`` means that there was no value to show."""
        reported = "" if missing else show(at, value)
        self.problems.append(Problem(at, reported, allowed, self.source))
        self.bad.add(self.field or at)

    def drop(
        self,
        at: str,
        value: object,
        why: str,
        *,
        missing: bool = False,
        then: str = "it is skipped",
    ) -> None:
        """Note what is skipped; only a strict reader has a problem with it."""
        if self.strict:
            self.add(at, value, why, missing=missing)
            return
        reported = "" if missing else show(at, value)
        self.lenient.append(Problem(at, reported, f"{why}; {then}", self.source))


# Depth of YAML: beyond a limit, the C loader would crash the process.

MAX_DEPTH = 100
_REFUSED_DEPTH = "maximum nesting depth"
"""Part of libyaml's message for a depth that its own scanner refuses."""


class TooDeep(ValueError):
    """More than MAX_DEPTH nested collections."""

    def __init__(self) -> None:
        super().__init__("is nested too deeply")


def check_depth(data: str | bytes, loader: Any) -> None:
    """Refuse YAML that is nested too deeply, without building any of it.

    The scanner of the C loader reads ahead of its events. From libyaml 0.2.6 on (in PyYAML 6.0.4)
    it refuses a depth of 1,000 on its own, before the first of those events is counted here.

    Raises:
        TooDeep: it is nested too deeply.
        yaml.YAMLError: it is not YAML.
    """
    depth = 0
    try:
        for event in yaml.parse(data, loader):
            if isinstance(event, yaml.events.CollectionStartEvent):
                depth += 1
                if depth > MAX_DEPTH:
                    raise TooDeep
            elif isinstance(event, yaml.events.CollectionEndEvent):
                depth -= 1
    except yaml.scanner.ScannerError as error:
        if _REFUSED_DEPTH in (error.problem or ""):
            raise TooDeep from None
        raise
