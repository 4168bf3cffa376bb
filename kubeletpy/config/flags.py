"""The kubelet's flags: their text to values, and the values in effect for ``/flagz``. Pure.

Flags are read as Go programs read them: ``--flag value``, ``--flag=value``, ``--bool``, underscores
for dashes, one-letter forms. Must never read the machine, nor show what the document masks.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from kubeletpy.base.api import names
from kubeletpy.base.api.times import parse_duration
from kubeletpy.base.kubernetes_version import KNOWN, KubernetesVersion, supported, within
from kubeletpy.base.structs import Struct, field
from kubeletpy.base.text import nearest
from kubeletpy.config.decode import document
from kubeletpy.config.generated import tables
from kubeletpy.config.problems import ConfigError, Problem, show
from kubeletpy.config.rules import dns_subdomain, host_address, label_value, qualified_name
from kubeletpy.config.settings import KubeletSettings
from kubeletpy.config.version_choice import AUTO


class Flag(Struct, frozen=True):
    """One flag.

    Attributes:
        name: without dashes.
        kind: how its text is read; a key of :data:`_READERS`, ``bool`` or ``version``.
        field: path of the document's field it sets; empty when it sets none.
        note: ``deprecated``, ``meaningless`` (accepted, does nothing here) or empty.
        until: the last Kubernetes version that has the flag, such as ``1.36``; empty: the newest.
        short: its one-letter form, or empty.
    """

    name: str
    kind: str
    field: str
    note: str
    until: str
    short: str

    def removed(self, version: KubernetesVersion) -> bool:
        """Whether the kubelet of a version lacks the flag, and does not start with it."""
        return not within(version, until=self.until)


def _read_table() -> Iterator[Flag]:
    for line in tables.FLAGS.strip().split("\n"):
        yield Flag(*("" if cell == "-" else cell for cell in line.split()))


FLAGS: Mapping[str, Flag] = MappingProxyType({flag.name: flag for flag in _read_table()})
SHORT = {flag.short: flag.name for flag in FLAGS.values() if flag.short}
"""Names by one-letter form."""


# Rules for the node's own flags. Whether an address is one of this node's is not decided here.


def check_node_name(name: str, flag: str = "--hostname-override") -> list[Problem]:
    """A node's name, trimmed and in lower case, has to be valid as the name of an API object."""
    if not name or dns_subdomain(name.strip().lower()):
        return []
    allowed = "must be a node's name: letters, digits, - and ., such as node-1.example"
    return [Problem(flag, show(flag, name), allowed)]


def node_addresses(text: str) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    """The addresses in ``--node-ip``. Raises ValueError for one that others can't use."""
    return [host_address(part.strip()) for part in text.split(",") if part.strip()]


def check_node_ip(text: str) -> list[Problem]:
    """``--node-ip``: one address, or one of each family; 0.0.0.0 and :: only request a family.

    Source: the kubelet's flag; KEP-1664 and KEP-3705 for two families.
    """
    allowed = "must be an IP address, or an IPv4 and an IPv6 address with a comma between"
    try:
        found = node_addresses(text)
    except ValueError:
        found = []
    both = len(found) == 2 and {each.version for each in found} == {4, 6}
    if both and any(each.is_unspecified for each in found):
        allowed = "0.0.0.0 and :: request an address of a family, and stand alone"
    elif both or len(found) == 1 or not text:
        return []
    return [Problem("--node-ip", show("node-ip", text), allowed)]


def check_kubernetes_version(text: str) -> list[Problem]:
    """``--kubernetes-version``: auto, or a version that this agent can be a kubelet of."""
    if text in ("", AUTO) or supported(text) is not None:
        return []
    allowed = f"must be {AUTO} or one of {', '.join(map(str, KNOWN))}"
    return [Problem("--kubernetes-version", show("kubernetes-version", text), allowed)]


def check_offline_start(text: str) -> list[Problem]:
    """``--offline-start``: one of the modes."""
    if text in tuple(OfflineStart):
        return []
    return [Problem("--offline-start", text, f"must be one of {', '.join(OfflineStart)}")]


def check_node_labels(labels: Mapping[str, str]) -> list[Problem]:
    """Label syntax, and the kubernetes.io labels that a node may set on itself.

    Source: docs/reference/names.csv: node-label.
    """
    problems = []
    for key, value in labels.items():
        at = f"--node-labels {key}"
        if not qualified_name(key):
            problems.append(Problem(at, "", "is not a label key"))
        elif value and not label_value(value):
            problems.append(Problem(at, value, "is not a label value"))
        elif not _own_label(key):
            problems.append(
                Problem(at, "", "a node may not give itself this kubernetes.io or k8s.io label")
            )
    return problems


def _own_label(key: str) -> bool:
    domain = f".{key.rpartition('/')[0]}"
    reserved = domain.endswith((".kubernetes.io", ".k8s.io"))
    allowed = domain.endswith((".kubelet.kubernetes.io", ".node.kubernetes.io"))
    return not reserved or allowed or key in names.OWN


_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False")
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class OfflineStart(StrEnum):
    """Which pods an agent starts that has found no API server since its own start."""

    NEVER = "Never"
    UNTIL_REPLACED = "UntilReplaced"
    """Those that the control plane cannot have replaced elsewhere yet."""
    ALWAYS = "Always"


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
    offline_start: str = OfflineStart.NEVER
    """Which pods start after a reboot while the API server does not answer."""
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
    by_name = _split(arguments, problems)
    field_values: dict[str, FieldFlag] = {}
    node: dict[str, Any] = {}
    warnings = []
    node_names = set(NodeFlags.__struct_fields__)
    for name, texts in by_name.items():
        flag = FLAGS[name]
        try:
            value = _READERS[flag.kind](texts)
        except ValueError as error:
            problems.append(Problem(f"--{name}", show(flag.field, texts[-1]), str(error)))
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
    problems += check_offline_start(node.get("offline_start", OfflineStart.NEVER))
    if node.get("exit_on_lock_contention") and not node.get("lock_file"):
        problems.append(Problem("--exit-on-lock-contention", "true", "needs --lock-file"))
    if problems:
        raise ConfigError(problems)
    if "node_labels" in node:
        node["node_labels"] = MappingProxyType(dict(labels))
    ignored = MappingProxyType(
        {name: texts[-1] for name, texts in by_name.items() if FLAGS[name].note == "meaningless"}
    )
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
        option, separator, value = word.partition("=")
        name = option.lstrip("-").replace("_", "-") if option.startswith("--") else ""
        if not name:
            letter, rest = option[1:2], option[2:]
            name = SHORT.get(letter, "")
            if name and rest:
                separator, value = "=", rest + separator + value
        flag = FLAGS.get(name)
        if flag is None:
            problems.append(Problem(option, "", _unknown(name)))
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
    near = nearest(name.lower(), FLAGS)
    return "no such flag" + (f"; did you mean --{near}?" if near else "")


def _bool(texts: list[str]) -> bool:
    if texts[-1] in _TRUE:
        return True
    if texts[-1] in _FALSE:
        return False
    raise ValueError("must be true or false")


def _int(texts: list[str]) -> int:
    try:
        return int(texts[-1], 0)
    except ValueError:
        raise ValueError("must be a whole number") from None


def _duration(texts: list[str]) -> float:
    try:
        return parse_duration(texts[-1])
    except ValueError:
        raise ValueError("must be a duration such as 10s or 1m30s") from None


def _parts(texts: list[str]) -> list[str]:
    return [word.strip() for text in texts for word in text.split(",") if word.strip()]


def _pairs(separator: str, example: str) -> Callable[[list[str]], dict[str, str]]:
    def read(texts: list[str]) -> dict[str, str]:
        found = {}
        for word in _parts(texts):
            key, middle, value = word.partition(separator)
            if not middle or not key:
                raise ValueError(f"must be like {example}")
            found[key.strip()] = value.strip()
        return found

    return read


def _gates(texts: list[str]) -> dict[str, bool]:
    pairs = _pairs("=", "SomeFeature=true,OtherFeature=false")(texts)
    return {name: _bool([value]) for name, value in pairs.items()}


def _headers(texts: list[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for word in _parts(texts):
        key, middle, value = word.partition(":")
        if not middle:
            raise ValueError("must be like name:value,other:value")
        found.setdefault(key.strip(), []).append(value.strip())
    return found


def _taints(texts: list[str]) -> list[dict[str, str]]:
    found = []
    for word in _parts(texts):
        label, middle, effect = word.rpartition(":")
        if not middle:
            raise ValueError("must be like key=value:NoSchedule")
        key, _, value = label.partition("=")
        found.append({"key": key, "value": value, "effect": effect})
    return found


def _memory(texts: list[str]) -> list[dict[str, Any]]:
    found = []
    for text in (part for each in texts for part in each.split(";") if part.strip()):
        node, middle, limits = text.strip().partition(":")
        if not middle or not node.isdecimal():
            raise ValueError("must be like 0:memory=1Gi,hugepages-1Gi=2Gi")
        pairs = _pairs("=", "0:memory=1Gi,hugepages-1Gi=2Gi")([limits])
        found.append({"numaNode": int(node), "limits": pairs})
    return found


def _vmodule(texts: list[str]) -> list[dict[str, Any]]:
    pairs = _pairs("=", "pattern=3,other=4")(texts)
    return [
        {"filePattern": pattern, "verbosity": _int([level])} for pattern, level in pairs.items()
    ]


def _version(texts: list[str]) -> str:
    if texts[-1] == "raw":
        return "raw"
    try:
        return "true" if _bool(texts) else ""
    except ValueError:
        raise ValueError("must be true, false or raw") from None


_READERS: Mapping[str, Callable[[list[str]], Any]] = {
    "text": lambda texts: texts[-1],
    "bool": _bool,
    "version": _version,
    "int": _int,
    "duration": _duration,
    "list": _parts,
    "map": _pairs("=", "key=value,other=value"),
    "signals": _pairs("<", "memory.available<100Mi,nodefs.available<10%"),
    "gates": _gates,
    "headers": _headers,
    "taints": _taints,
    "memory": _memory,
    "vmodule": _vmodule,
}


# Values in effect, however they were set.


def flag_texts(settings: KubeletSettings, flags: NodeFlags) -> dict[str, str]:
    """Values by flag, without dashes; flags that do nothing here are left out."""
    full = document(settings)
    texts: dict[str, str] = {}
    for name, flag in FLAGS.items():
        if flag.field:
            texts[name] = _text(_at(full, flag.field))
        elif flag.note != "meaningless":
            texts[name] = _text(getattr(flags, name.replace("-", "_"), ""))
    return texts


def _at(document: Mapping[str, Any], path: str) -> Any:
    value: Any = document
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return "" if value is None else value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return ",".join(f"{key}={_text(each)}" for key, each in sorted(value.items()))
    if isinstance(value, list | tuple):
        return "[" + ",".join(_text(each) for each in value) + "]"
    return str(value)
