"""Turns the kubelet's flags into values: those of the document and those of the node. Pure.

Flags are read as Go programs read them: ``--flag value``, ``--flag=value``, ``--bool``, underscores
for dashes, one-letter forms. Must never read the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from kubeletpy.base.api.times import parse_duration
from kubeletpy.base.structs import Struct, field
from kubeletpy.config import effects
from kubeletpy.config.flag_rules import (
    check_kubernetes_version,
    check_node_ip,
    check_node_labels,
    check_node_name,
)
from kubeletpy.config.flag_table import FLAGS, SHORT, Flag
from kubeletpy.config.problems import ConfigError, Problem, show
from kubeletpy.config.version_choice import AUTO

_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False")
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class NodeFlags(Struct, frozen=True):
    """Settings that only flags can set. Paths and names as given; durations in seconds."""

    bootstrap_kubeconfig: str = ""
    cert_dir: str = "/var/lib/kubelet/pki"
    cloud_provider: str = ""
    config: str = ""
    config_dir: str = ""
    device_plugins_dir: str = "/var/lib/kubelet/device-plugins"
    exit_on_lock_contention: bool = False
    experimental_allocatable_ignore_eviction: bool = False
    flight_recorder_mib: int = 16
    """MiB on disk for the flight recorder; 0: nothing is recorded."""
    help: bool = False
    hostname_override: str = ""
    image_credential_provider_bin_dir: str = ""
    image_credential_provider_config: str = ""
    keep_kernel_settings: bool = False
    kubeconfig: str = ""
    kubernetes_version: str = AUTO
    """The minor version whose kubelet this agent is, such as 1.36; auto: the API server's."""
    lock_file: str = ""
    maximum_dead_containers: int = -1
    maximum_dead_containers_per_container: int = 1
    minimum_container_ttl_duration: float = 0.0
    no_cluster_dns: bool = False
    """Without cluster DNS, pods that request it get the host's resolvers without a warning."""
    node_ip: str = ""
    node_labels: Mapping[str, str] = _NOTHING
    root_dir: str = "/var/lib/kubelet"
    runtime_cgroups: str = ""
    version: str = ""
    """``true``: for people; ``raw``: in full."""


class FieldFlag(Struct, frozen=True):
    """A document's field set by a flag: which flag, and the value as a document would have it."""

    flag: str
    value: Any


class FlagValues(Struct, frozen=True):
    """A whole command line, parsed."""

    fields: Mapping[str, FieldFlag] = _NOTHING
    node: NodeFlags = field(default_factory=NodeFlags)
    warnings: tuple[str, ...] = ()
    ignored: Mapping[str, str] = _NOTHING
    """The given flags of :data:`kubeletpy.config.effects.FLAGS`, with their texts."""


def parse_flags(arguments: Sequence[str]) -> FlagValues:
    """Read a command line (without the program's and the command's name).

    Raises:
        ConfigError: unknown flags (with the nearest name), missing or unreadable values, words that
            belong to no flag; all of them at once.
    """
    problems: list[Problem] = []
    texts = _split(arguments, problems)
    field_values: dict[str, FieldFlag] = {}
    node: dict[str, Any] = {}
    warnings = []
    node_names = set(NodeFlags.__struct_fields__)
    for name, given in texts.items():
        flag = FLAGS[name]
        try:
            value = _READERS[flag.kind](given)
        except ValueError as error:
            problems.append(Problem(f"--{name}", show(flag.field, given[-1]), str(error)))
            continue
        if flag.field:
            field_values[flag.field] = FieldFlag(f"--{name}", value)
        elif name.replace("-", "_") in node_names:
            node[name.replace("-", "_")] = value
        if warning := _warning(flag):
            warnings.append(warning)
    labels: Mapping[str, str] = node.get("node_labels", {})
    problems += check_node_labels(labels)
    problems += check_node_name(node.get("hostname_override", ""))
    problems += check_node_ip(node.get("node_ip", ""))
    problems += check_kubernetes_version(node.get("kubernetes_version", ""))
    if node.get("exit_on_lock_contention") and not node.get("lock_file"):
        problems.append(Problem("--exit-on-lock-contention", "true", "needs --lock-file"))
    if problems:
        raise ConfigError(problems)
    if "node_labels" in node:
        node["node_labels"] = MappingProxyType(dict(labels))
    ignored = MappingProxyType({name: texts[name][-1] for name in texts if name in effects.FLAGS})
    return FlagValues(MappingProxyType(field_values), NodeFlags(**node), tuple(warnings), ignored)


def _warning(flag: Flag) -> str:
    if flag.note == "meaningless":
        return ""  # reported with its consequence
    if flag.note == "deprecated" and flag.field:
        return f"flag --{flag.name} is deprecated: set {flag.field} in the file given to --config"
    return f"flag --{flag.name} is deprecated" if flag.note else ""


def _split(arguments: Sequence[str], problems: list[Problem]) -> dict[str, list[str]]:
    texts: dict[str, list[str]] = {}
    waiting = list(reversed(arguments))
    while waiting:
        word = waiting.pop()
        if word == "--":
            for stray in reversed(waiting):
                problems.append(Problem(stray, "", "is not a flag; this command takes only flags"))
            break
        if not word.startswith("-") or word == "-":
            problems.append(Problem(word, "", "is not a flag; this command takes only flags"))
            continue
        given, separator, value = word.partition("=")
        name = given.lstrip("-").replace("_", "-") if given.startswith("--") else ""
        if not name:
            letter, rest = given[1:2], given[2:]
            name = SHORT.get(letter, "")
            if name and rest:
                separator, value = "=", rest + separator + value
        flag = FLAGS.get(name)
        if flag is None:
            problems.append(Problem(given, "", _unknown(name)))
            if not separator and waiting and not waiting[-1].startswith("-"):
                waiting.pop()
            continue
        if not separator:
            if flag.kind in ("bool", "version"):
                value = "true"
            elif waiting:
                value = waiting.pop()
            else:
                problems.append(Problem(f"--{name}", "", "needs a value"))
                continue
        texts.setdefault(name, []).append(value)
    return texts


def _unknown(name: str) -> str:
    near = get_close_matches(name.lower(), FLAGS, 1)
    return "no such flag" + (f"; did you mean --{near[0]}?" if near else "")


def _bool(given: list[str]) -> bool:
    if given[-1] in _TRUE:
        return True
    if given[-1] in _FALSE:
        return False
    raise ValueError("must be true or false")


def _int(given: list[str]) -> int:
    try:
        return int(given[-1], 0)
    except ValueError:
        raise ValueError("must be a whole number") from None


def _duration(given: list[str]) -> float:
    try:
        return parse_duration(given[-1])
    except ValueError:
        raise ValueError("must be a duration such as 10s or 1m30s") from None


def _words(given: list[str]) -> list[str]:
    return [word.strip() for text in given for word in text.split(",") if word.strip()]


def _pairs(separator: str, example: str) -> Callable[[list[str]], dict[str, str]]:
    def read(given: list[str]) -> dict[str, str]:
        found = {}
        for word in _words(given):
            key, middle, value = word.partition(separator)
            if not middle or not key:
                raise ValueError(f"must be like {example}")
            found[key.strip()] = value.strip()
        return found

    return read


def _gates(given: list[str]) -> dict[str, bool]:
    pairs = _pairs("=", "SomeFeature=true,OtherFeature=false")(given)
    return {name: _bool([value]) for name, value in pairs.items()}


def _headers(given: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for word in _words(given):
        key, middle, value = word.partition(":")
        if not middle:
            raise ValueError("must be like name:value,other:value")
        found.setdefault(key.strip(), []).append(value.strip())
    return found


def _taints(given: list[str]) -> list[dict[str, str]]:
    found = []
    for word in _words(given):
        label, middle, effect = word.rpartition(":")
        if not middle:
            raise ValueError("must be like key=value:NoSchedule")
        key, _, value = label.partition("=")
        found.append({"key": key, "value": value, "effect": effect})
    return found


def _memory(given: list[str]) -> list[dict[str, Any]]:
    found = []
    for text in (part for each in given for part in each.split(";") if part.strip()):
        node, middle, limits = text.strip().partition(":")
        if not middle or not node.isdecimal():
            raise ValueError("must be like 0:memory=1Gi,hugepages-1Gi=2Gi")
        pairs = _pairs("=", "0:memory=1Gi,hugepages-1Gi=2Gi")([limits])
        found.append({"numaNode": int(node), "limits": pairs})
    return found


def _vmodule(given: list[str]) -> list[dict[str, Any]]:
    pairs = _pairs("=", "pattern=3,other=4")(given)
    return [
        {"filePattern": pattern, "verbosity": _int([level])} for pattern, level in pairs.items()
    ]


def _version(given: list[str]) -> str:
    if given[-1] == "raw":
        return "raw"
    try:
        return "true" if _bool(given) else ""
    except ValueError:
        raise ValueError("must be true, false or raw") from None


_READERS: Mapping[str, Callable[[list[str]], Any]] = {
    "text": lambda given: given[-1],
    "bool": _bool,
    "version": _version,
    "int": _int,
    "duration": _duration,
    "list": _words,
    "map": _pairs("=", "key=value,other=value"),
    "signals": _pairs("<", "memory.available<100Mi,nodefs.available<10%"),
    "gates": _gates,
    "headers": _headers,
    "taints": _taints,
    "memory": _memory,
    "vmodule": _vmodule,
}
