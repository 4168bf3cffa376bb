"""Settings with another effect than in the kubelet, unlike those without any effect. Pure.

Source: docs/reference/differences.csv: config.csv. What has no effect at all is in
:mod:`kubeletpy.config.effects`.
"""

from __future__ import annotations

from kubeletpy.config.effects import Notice
from kubeletpy.config.flags import NodeFlags
from kubeletpy.config.settings import KubeletSettings

FIELDS = ("enableServer", "tracing")
"""The fields of :func:`other_effects`, as rows of the table have them."""


def other_effects(settings: KubeletSettings, flags: NodeFlags) -> list[Notice]:
    """The settings that have another effect here, each with that effect."""
    found = []
    if not settings.enable_server:
        text = "the Node object shows no port; the kubelet publishes the port that is not served"
        found.append(Notice("enableServer", "false", text))
    if settings.tracing.endpoint is not None and settings.tracing.sampling_rate_per_million:
        text = (
            "spans are sent only if kubeletpy[tracing] is installed; steps of a sync are spans too"
        )
        found.append(Notice("tracing", "on", text))
    default = NodeFlags()
    if flags.root_dir != default.root_dir and flags.cert_dir == default.cert_dir:
        text = f"certificates are in {flags.root_dir}/pki; the kubelet has them in {flags.cert_dir}"
        found.append(Notice("--root-dir", flags.root_dir, f"{text}: give the agent --cert-dir"))
    return found
