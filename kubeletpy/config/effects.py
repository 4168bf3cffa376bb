"""Lists configured fields, flags and gates that have no effect. Pure.

Each has its consequence in words, is logged once at the start, and is shown by ``kubeletpy explain
--node``. Settings with an effect are not listed; :mod:`kubeletpy.config.rules` refuses a value that
can't be honoured at all. Must never hold secrets: values are masked as in messages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from kubeletpy.base.kubernetes_version import KubernetesVersion
from kubeletpy.base.structs import Struct, replace
from kubeletpy.base.text import snake_case
from kubeletpy.config.fields import JSON_TYPE, PROTOBUF
from kubeletpy.config.flags import FLAGS as FLAG_TABLE
from kubeletpy.config.gates import FeatureGates
from kubeletpy.config.generated.tables import HERE
from kubeletpy.config.problems import show
from kubeletpy.config.settings import KubeletSettings, Tracing, value_at


class Notice(Struct, frozen=True):
    """One setting that was requested and has no effect, or less than in the kubelet.

    Attributes:
        name: a field's path, a flag with its dashes, or ``feature gate NAME``.
        value: what was requested, as a document would have it.
        consequence: what applies instead.
    """

    name: str
    value: str
    consequence: str


class Fixed(Struct, frozen=True):
    """A field with a fixed value: ``value`` is in effect, whatever the field is set to."""

    value: Any
    consequence: str


_NETWORK = "the network of pods is the runtime's"
_AT_ONCE = "lines are written as they come, never held back"
FIELDS: Mapping[str, Fixed] = MappingProxyType(
    {
        "kernelMemcgNotification": Fixed(
            True, "the kernel's memory notifications are used wherever they exist"
        ),
        "volumePluginDir": Fixed(
            "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/",
            "there are no FlexVolumes: a pod with one waits, and an event reports it",
        ),
        "hairpinMode": Fixed("promiscuous-bridge", f"{_NETWORK}; the kubelet does nothing either"),
        "iptablesMasqueradeBit": Fixed(14, f"{_NETWORK}; the kubelet does nothing either"),
        "iptablesDropBit": Fixed(15, f"{_NETWORK}; the kubelet does nothing either"),
        "tlsCurvePreferences": Fixed((), "OpenSSL chooses the curve by its own order"),
        "enableContentionProfiling": Fixed(False, "there are no locks to profile"),
        "logging.options.text.infoBufferSize": Fixed(0, _AT_ONCE),
        "logging.options.json.infoBufferSize": Fixed(0, _AT_ONCE),
    }
)
"""Fields that are read and checked, and change nothing."""

_CADVISOR = "this agent measures by itself, without cAdvisor"
FLAGS: Mapping[str, str] = MappingProxyType(
    {
        **{name: _CADVISOR for name, flag in FLAG_TABLE.items() if flag.note == "meaningless"},
        "experimental-mounter-path": "the machine's own mount is used",
    }
)
"""Flags that are read and change nothing, with the consequence."""


def notices(
    settings: KubeletSettings,
    explicit: frozenset[str],
    flags: Mapping[str, str],
    cloud_provider: str = "",
) -> tuple[Notice, ...]:
    """The requested settings that have no effect.

    Args:
        settings: all of them.
        explicit: paths of the fields that the user set.
        flags: given flags of :data:`FLAGS`, without dashes, with their texts.
        cloud_provider: the value of ``--cloud-provider``.
    """
    found = []
    for path, fixed in FIELDS.items():
        requested = value_at(settings, path)
        if path in explicit and requested != fixed.value:
            found.append(Notice(path, show(path, requested), fixed.consequence))
    for name, text in flags.items():
        reported = "<masked>" if "password" in name else show(name, text)
        found.append(Notice(f"--{name}", reported, _of_flag(name, settings.feature_gates.version)))
    if cloud_provider not in ("", "external"):
        text = "only external is known: the node is run as without a cloud"
        found.append(Notice("--cloud-provider", show("", cloud_provider), text))
    if settings.content_type != _content_type(settings):
        text = "requests to the API are in JSON"
        found.append(Notice("contentType", show("contentType", settings.content_type), text))
    found += _of_tracing(settings.tracing)
    found += _of_reserved_memory(settings)
    return (*found, *gate_notices(settings.feature_gates))


def _of_flag(name: str, version: KubernetesVersion) -> str:
    """The consequence of a flag; one that the version does not have is accepted anyway.

    The flag never had an effect here, and after an upgrade of the API server a restarted agent has
    the newer version. If it refused the flag, a working node would go down.
    """
    if not FLAG_TABLE[name].removed(version):
        return FLAGS[name]
    removed = f"Kubernetes {version} does not have the flag, and its kubelet does not start with it"
    return f"{FLAGS[name]}; {removed}: remove it"


def _content_type(settings: KubeletSettings) -> str:
    """The content type of requests to the API."""
    return PROTOBUF if settings.content_type == PROTOBUF else JSON_TYPE


def _of_tracing(requested: Tracing) -> list[Notice]:
    """An endpoint to which nothing is sent, or whose name server is not used."""
    endpoint = requested.endpoint
    if endpoint is None:
        return []
    if not requested.sampling_rate_per_million:
        text = "no spans are sent: tracing.samplingRatePerMillion is 0"
    elif endpoint.startswith("dns://") and not endpoint.startswith("dns:///"):
        text = "the machine's own name servers are used"
    else:
        return []
    return [Notice("tracing.endpoint", show("tracing.endpoint", endpoint), text)]


def _of_reserved_memory(settings: KubeletSettings) -> list[Notice]:
    """Reservations that no memory manager reads."""
    if not settings.reserved_memory or settings.memory_manager_policy != "None":
        return []
    requested = [
        {"numaNode": each.numa_node, "limits": dict(each.limits)}
        for each in settings.reserved_memory
    ]
    text = "memoryManagerPolicy None has no use for it; the kubelet does nothing either"
    return [Notice("reservedMemory", show("reservedMemory", requested), text)]


def gate_notices(gates: FeatureGates) -> tuple[Notice, ...]:
    """Gates that were changed from their default, or named, and have another value here."""
    return tuple(
        Notice(f"feature gate {name}", show("", requested), HERE[name][1])
        for name, requested in gates.requested.items()
        if requested != gates.effective[name]
    )


def lines(found: Sequence[Notice]) -> list[str]:
    """The notices for a log: one line for all that have the same consequence."""
    together: dict[str, list[str]] = {}
    for each in found:
        together.setdefault(each.consequence, []).append(f"{each.name}={each.value}")
    return [
        f"without effect here: {', '.join(names)}: {consequence}"
        for consequence, names in together.items()
    ]


def in_effect(settings: KubeletSettings) -> KubeletSettings:
    """The settings with what applies in place of what was requested."""
    for path, fixed in FIELDS.items():
        settings = _with(settings, path.split("."), fixed.value)
    settings = replace(settings, content_type=_content_type(settings))
    gates = settings.feature_gates
    true = {name: gates.effective[name] for name in gates.explicit}
    return replace(settings, feature_gates=replace(gates, explicit=MappingProxyType(true)))


def _with(part: Any, path: Sequence[str], value: Any) -> Any:
    name = snake_case(path[0])
    if len(path) > 1:
        value = _with(getattr(part, name), path[1:], value)
    return replace(part, **{name: value})
