"""Feature gates: the kubelet's names, their defaults, what a user may change. Pure.

Source: docs/reference/features.csv. Each gate has a stage in each Kubernetes version. A locked gate
may be named only with its own default. Gates of other components are known by name and change
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from kubeletpy.base.kubernetes_version import KNOWN, NEWEST, KubernetesVersion
from kubeletpy.base.structs import Struct
from kubeletpy.base.text import nearest
from kubeletpy.config.generated.tables import GATES, HERE
from kubeletpy.config.problems import ProblemReport

_ABSENT = "-"


class Gate(Struct, frozen=True):
    """One known gate; stage is Alpha, Beta, GA or Deprecated, a locked one keeps its default."""

    name: str
    stage: str
    default: bool
    locked: bool


@cache
def known_gates(version: KubernetesVersion = NEWEST) -> Mapping[str, Gate]:
    """Every gate that a version has, by name."""
    column = KNOWN.index(version)
    rows = ((name, tokens[column]) for name, tokens in _tokens().items())
    return MappingProxyType(
        {
            name: Gate(name, token.rstrip("+!"), "+" in token, "!" in token)
            for name, token in rows
            if token != _ABSENT
        }
    )


@cache
def absent_gates(version: KubernetesVersion = NEWEST) -> Mapping[str, bool]:
    """The gates that only other versions have, with what a decision that reads them gets.

    A gate that is not there yet is off. One that was removed keeps its last default: its behavior
    has become part of Kubernetes, or was removed.
    """
    column = KNOWN.index(version)
    found = {}
    for name, tokens in _tokens().items():
        if tokens[column] == _ABSENT:
            before = [token for token in tokens[:column] if token != _ABSENT]
            found[name] = bool(before) and "+" in before[-1]
    return MappingProxyType(found)


@cache
def _tokens() -> Mapping[str, tuple[str, ...]]:
    lines = GATES.split("\n")
    parts = (line.split() for line in lines if line)
    return {name: tuple(tokens) for name, *tokens in parts}


def _why_unknown(name: str, version: KubernetesVersion) -> str:
    tokens = _tokens().get(name)
    if tokens is None:
        near = nearest(name, known_gates(version))
        hint = f"; did you mean {near}?" if near else ""
        return f"no such feature gate{hint}"
    having = [each for each, token in zip(KNOWN, tokens, strict=True) if token != _ABSENT]
    until = KNOWN.index(having[-1]) < KNOWN.index(version)
    when = f"removed after {having[-1]}" if until else f"new in {having[0]}"
    return f"does not exist in Kubernetes {version}; {when}"


class FeatureGates(Struct, frozen=True):
    """Which features are on.

    Attributes:
        version: the Kubernetes version whose gates these are.
        explicit: what the user set, by gate.
        effective: the value in this agent of every gate of the version.
        requested: the values that the user set explicitly or that differ from a default.
    """

    version: KubernetesVersion
    explicit: Mapping[str, bool]
    effective: Mapping[str, bool]
    requested: Mapping[str, bool]

    def enabled(self, name: str) -> bool:
        """Whether a gate is on. Raises KeyError for a gate that no supported version has."""
        value = self.effective.get(name)
        return absent_gates(self.version)[name] if value is None else value

    def configured(self, name: str) -> bool:
        """A gate's value as configured, even where this agent acts otherwise (``HERE``)."""
        gate = known_gates(self.version).get(name)
        if gate is None:
            return absent_gates(self.version)[name]
        return self.requested.get(name, gate.default)


def resolve(explicit: Mapping[str, bool], version: KubernetesVersion = NEWEST) -> FeatureGates:
    """Every gate's value. AllAlpha and AllBeta set what the user left alone in their stage."""
    effective, requested = {}, {}
    for gate in known_gates(version).values():
        value = gate.default
        switch = f"All{gate.stage}"
        if switch in explicit:
            value = explicit[switch]
        value = explicit.get(gate.name, value)
        if gate.name in explicit or value != gate.default:
            requested[gate.name] = value
        effective[gate.name] = HERE[gate.name][0] if gate.name in HERE else value
    values = (MappingProxyType(each) for each in (dict(explicit), effective, requested))
    return FeatureGates(version, *values)


def decode_gates(value: object, at: str, report: ProblemReport) -> Mapping[str, bool]:
    """Read ``featureGates``: gates of the report's version, true or false, locked ones unchanged.

    A gate of another version is a problem that names both, such as ``does not exist in Kubernetes
    1.37; removed after 1.36``.
    """
    if not isinstance(value, dict):
        report.add(at, value, "must be a map from gate names to true or false")
        return {}
    gates = {}
    for name, on in value.items():
        gate = known_gates(report.version).get(name)
        if gate is None:
            report.add(f"{at}.{name}", on, _why_unknown(str(name), report.version))
        elif not isinstance(on, bool):
            report.add(f"{at}.{name}", on, "must be true or false")
        elif gate.locked and on != gate.default:
            fixed = "true" if gate.default else "false"
            report.add(f"{at}.{name}", on, f"this gate is locked to {fixed}")
        else:
            gates[name] = on
    return gates


def warnings(gates: FeatureGates) -> list[str]:
    """Warnings about gates that are set although they no longer matter, or not for long."""
    reported = []
    for name in sorted(gates.explicit):
        gate = known_gates(gates.version)[name]
        later = KNOWN[KNOWN.index(gates.version) + 1 :]
        absent = next((each for each in later if name not in known_gates(each)), None)
        if absent is not None:
            reported.append(
                f"feature gate {name} is absent in Kubernetes {absent}, whose kubelet does not "
                "start with it: remove it before the upgrade"
            )
        elif gate.stage in ("GA", "Deprecated"):
            reported.append(
                f"feature gate {name} is {gate.stage}: it will be removed, stop setting it"
            )
    return reported
