"""Reads feature gates from the Go sources of one Kubernetes version. Pure.

A gate is a constant (``Name featuregate.Feature = "Name"``) with an entry in a map of versioned
specs. A version uses the last spec whose own version is not newer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_CONSTANT = re.compile(r'^\s*(\w+)\s+(?:featuregate\.)?Feature\s*=\s*"(\w+)"', re.MULTILINE)
_ENTRY = re.compile(r"^\t+(?:\w+\.)?(\w+): \{\n((?:\t+(?:\{Version: .*|//.*)\n)+)", re.MULTILINE)
_SPEC = re.compile(r'^\t+\{Version: version\.MustParse\("1\.(\d+)"\)(.*)\}', re.MULTILINE)
_STAGE = re.compile(r"PreRelease: (?:featuregate\.)?(\w+)")

EVERYWHERE: Mapping[str, str] = {"AllAlpha": "Alpha", "AllBeta": "Beta"}
"""Gates that the registry itself adds, in every version."""


def gates(sources: Iterable[str], minor: int) -> dict[str, str]:
    """The gates of a version with their tokens, such as ``{"PodsAPI": "Beta+"}``.

    A token is the stage, then ``+`` for on by default, then ``!`` for locked.

    Args:
        sources: texts of the Go files that declare and register gates.
        minor: minor version that the sources are of.
    """
    texts = list(sources)
    names = {
        constant: name
        for text in texts
        for constant, name in _CONSTANT.findall(text)
        if not constant.startswith(("test", "all"))
    }
    found = dict(EVERYWHERE)
    for text in texts:
        for constant, body in _ENTRY.findall(text):
            specs = ((int(since), spec) for since, spec in _SPEC.findall(body))
            held = [each for each in specs if each[0] <= minor and _applies(each[1], minor)]
            if held:
                found[names.get(constant, constant)] = _token(max(held)[1])
    return found


def _applies(spec: str, minor: int) -> bool:
    """Whether a spec holds for a component that is compatible with the previous minor."""
    least = re.search(r'MinCompatibilityVersion: version\.MustParse\("1\.(\d+)"\)', spec)
    return least is None or int(least.group(1)) < minor


def _token(spec: str) -> str:
    stage = _STAGE.search(spec)
    on = "+" if re.search(r"\bDefault: true", spec) else ""
    locked = "!" if "LockToDefault: true" in spec else ""
    return f"{stage.group(1) if stage else 'GA'}{on}{locked}"


def differences(old: Mapping[str, str], new: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Rows (gate, token in the old version, token in the new one); an absent gate's is empty."""
    rows = ((name, old.get(name, ""), new.get(name, "")) for name in sorted({*old, *new}))
    return [row for row in rows if row[1] != row[2]]
